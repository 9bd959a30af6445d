"""The generation loop.  Every rank runs `Trainer.train`; rank 0 alone has a Learner and writes the run."""

import logging
import math
from collections.abc import Callable

import numpy as np

from mpies.comm import Communicator, RankLost
from mpies.comm.stopwatch import stopwatch
from mpies.config.schema import Config
from mpies.runs.formats.hdf5 import Arrays, Content
from mpies.runs.formats.metrics import Row, parse_count, parse_number
from mpies.runs.snapshot import Evaluation, Snapshot
from mpies.runs.writer import RunWriter
from mpies.training.control import Control, Signals, TrainingStopped, rule_that_holds
from mpies.training.evaluation.evaluator import Evaluator, OnPlay, ignore
from mpies.training.evaluation.generation import PlayedGeneration
from mpies.training.evaluation.recovery import go_on_without_the_lost
from mpies.training.learner import Clock, Learner, fitting
from mpies.training.task import Task, build_task
from mpies.training.update import Updater, make_solver

log = logging.getLogger(__name__)


class Trainer:
    """One rank's part of a run.

    task: what is played.  updater: takes the steps, with the noise table.
    run: the run directory, which only the rank that is 0 at the time writes; None writes nothing.
    signals: None where no signal is waited for.
    on_play: called on every rank when it begins to play queues.
    on_generation: called on rank 0 with the snapshot of each generation when it is recorded; True stops the run.

    failure: on rank 0, why the run stops, in one line, where the reason is "failures".
    """

    def __init__(
        self,
        config: Config,
        comm: Communicator,
        task: Task,
        updater: Updater,
        run: RunWriter | None = None,
        signals: Signals | None = None,
        on_play: OnPlay = ignore,
        on_generation: Callable[[Snapshot], object] = ignore,
    ) -> None:
        self.config, self.comm, self.task, self.updater, self.run = config, comm, task, updater, run
        self.on_generation = on_generation
        self.control = Control(config.stop, comm, signals)
        self.evaluator = Evaluator(config, task, updater.solver, comm, self.control, on_play)
        self.failure = ""
        self._has_learner = False  # whether this rank is rank 0 and has read the run
        self._pauses = stopwatch.paused  # seconds of all pauses that are recorded already
        self._unrecorded: PlayedGeneration | None = None  # on rank 0: a generation whose step is taken

    @property
    def learner(self) -> Learner | None:
        """The state of the run on rank 0; None elsewhere."""
        return self.updater.learner

    @property
    def is_recorded(self) -> bool:
        """Whether the newest generation is on record; if not, it is played again after a resume."""
        return self._unrecorded is None

    def train(self) -> str:
        """Run generations until there is a reason to stop; returns it, one of control.STOP_REASONS.

        Raises SolverProblem for a mistake of the user's solver.
        """
        while True:
            try:
                self.restore()
                while not (reason := self.control.stop_reason(self.learner)):
                    self.run_generation()
                if reason == "failures":
                    self.failure = self.evaluator.describe_failures(self.updater.generation)
                return reason
            except TrainingStopped as stop:
                self.failure = str(stop)
                return stop.reason
            except RankLost:
                self.evaluator.keep_finished()
                go_on_without_the_lost(self.comm)

    def run_generation(self) -> None:
        """Play a generation and take its step; evaluate the mean when that is due; record both."""
        parts, upcoming = self.updater.next_parts()
        played = self.evaluator.evaluate(parts, self.updater.generation, prefetch=upcoming)
        self.updater.apply(parts, played)
        self._unrecorded = played if self.learner else None
        self.finish_generation()

    def finish_generation(self) -> None:
        """Evaluate the mean when that is due, and record the generation whose step was taken.

        Raises TrainingStopped where that step led to a mean that is not finite, which is not recorded.
        """
        lost = int(np.count_nonzero(~np.isfinite(self.learner.solver.mean))) if self.learner else 0
        if self.comm.broadcast_int(lost):
            raise TrainingStopped(
                "failures",
                f"the mean after generation {self.updater.generation} is not finite ({lost:,} of "
                f"{self.task.dimension:,} parameters), so the run ends with generation {self.updater.generation - 1}; "
                "begin another one with a lower learning rate or sigma of the solver",
            )
        evaluation = self.evaluate_mean_if_due()
        is_last = bool(self.control.stop_reason(self.learner))
        if self.learner and self.run:  # no communication from here on: no loss of a rank can interrupt it
            is_best = evaluation is not None and self.learner.update_best(evaluation)
            job = {"ranks": self.comm.size, "nodes": self.comm.nodes, "starts": self.run.starts}
            snapshot = self.learner.snapshot(self._unrecorded, evaluation, is_best, **job, paused=self._take_pause())
            self.run.record(snapshot, is_last)
            self.control.has_callback_stopped |= bool(self.on_generation(snapshot))
        self._unrecorded = None
        self.evaluator.queues.forget_kept()

    def evaluate_mean_if_due(self) -> Evaluation | None:
        """Evaluate the mean every few generations, and at the end unless the run was interrupted.

        After a signal it is evaluated if that is due, as this generation is not played again.
        """
        reason, every = self.control.stop_reason(self.learner), self.config.evaluation.every
        is_result = reason not in ("", "signal", "failures")
        if reason == "failures" or not (is_result or (every and self.updater.generation % every == 0)):
            return None
        mean = self.updater.broadcast_mean()
        evaluation = self.evaluator.evaluate_mean(mean, self.updater.generation, is_result)
        if self.learner and evaluation:  # for the stop rule
            self.learner.solved = evaluation.mean if evaluation.confirmed else -math.inf
            self.learner.solved_interval = evaluation.interval
        return evaluation

    def _take_pause(self) -> float:
        """Seconds for which this process was stopped since this was asked last."""
        pause, self._pauses = stopwatch.paused - self._pauses, stopwatch.paused
        if pause >= 1:
            log.info("this process was stopped for %.1f s, which do not count as seconds of training", pause)
        return pause

    def restore(self) -> None:
        """Bring all ranks to the same generation.  Rank 0 reads the run first, unless it already has."""
        if not self.comm.broadcast_int(self._has_learner):
            self._read_run()
            self._has_learner = self.comm.is_root
        self.updater.begin(self.learner)
        if self.comm.broadcast_int(self._unrecorded is not None):  # a rank was lost after the step
            self.finish_generation()
        again = self.learner and self.run and self.run.again == self.learner.clock.generation + 1
        if self.comm.broadcast_int(bool(again)):  # it was recorded before, and `_ends_unevaluated` holds for it
            self.run_generation()

    def _read_run(self) -> None:
        """Go on from the checkpoint, and replay the generations behind it from the ledger, without an environment."""
        run, learner, checkpoint = self.run, None, None
        records: list[Arrays] = []
        if self.comm.is_root:
            checkpoint, records = run.load(self._ends_unevaluated) if run else (None, [])
            with fitting(run.name if run else ""):
                learner = self._make_learner(checkpoint)
        self.updater.begin(learner)
        for number in range(self.comm.broadcast_int(len(records))):
            with fitting(run.name if run else ""):
                self.updater.replay(records[number] if learner else None)
        if learner and run:
            if records and learner.digest() != records[-1]["digest"].item():
                log.warning(
                    "the ledger of %s gives another state than recorded; going back to the checkpoint", run.name
                )
                learner = self._make_learner(checkpoint)
                self.updater.learner = learner
            if learner.clock.generation:
                log.info("%s: continuing from generation %d", run.name, learner.clock.generation)
            run.begin(learner.snapshot())

    def _ends_unevaluated(self, row: Row) -> bool:
        """Whether the generation of this row of metrics.csv ends the run unevaluated: it is then played again.

        Too many of its members failed, or the config now ends the run earlier than before.
        """
        steps, seconds = parse_count(row.get("steps")), parse_number(row.get("seconds"), 0.0)
        clock = Clock(int(row["generation"] or 0), 0, steps, seconds)
        return not row.get("eval_mean") and bool(rule_that_holds(self.config.stop, clock, -math.inf))

    def _make_learner(self, checkpoint: Content | None) -> Learner:
        """The learner of a checkpoint, or of a new run where there is none."""
        policy = self.task.policy
        constants = {**policy.constants, "interface": policy.interface.pack()} if policy else {}
        learner = Learner(self.config, self.updater.solver, self.task.observation_size, constants)
        if checkpoint:
            learner.restore(checkpoint[0])
        else:
            from mpies.solvers.check import check_if_custom

            check_if_custom(self.updater.solver, self.task.behaviour_size)
            learner.start(self.task.first_policy())
        return learner


def make_trainer(config: Config, comm: Communicator, run: RunWriter | None = None, on_play: OnPlay = ignore) -> Trainer:
    """A Trainer with a task and a noise table of its own, as scripts use it.  All ranks call this together."""
    task = build_task(config, comm)
    solver = make_solver(config, task.dimension, task.directions)
    return Trainer(config, comm, task, Updater(config, solver, comm), run, None, on_play)
