"""The generation loop.  Every rank runs `Trainer.train`; rank 0 alone has a Learner and writes the run."""

import logging
import math
import time
from collections.abc import Callable
from typing import Any

from mpies.comm import Communicator, RankLost
from mpies.comm.stopwatch import stopwatch
from mpies.comm.together import do_together
from mpies.config.schema import Config
from mpies.core.errors import SolverProblem
from mpies.core.text import counted
from mpies.runs.hdf5 import Arrays, Attributes
from mpies.runs.metrics import Row, parse_count, parse_number
from mpies.runs.snapshot import Snapshot
from mpies.runs.writer import RunWriter
from mpies.training.control import Control, GenerationAbandoned, Signals, rule_that_holds
from mpies.training.evaluator import EvaluationFailed, Evaluator
from mpies.training.generation import Population
from mpies.training.learner import Clock, Learner
from mpies.training.memory import require_memory
from mpies.training.noise_tables import NoiseTables
from mpies.training.task import build_task
from mpies.training.update import Updater, make_solver

log = logging.getLogger(__name__)

Callback = Callable[[Snapshot], Any]


class Trainer:
    """One rank's part of a run.  `build_table` comes before `train`; all ranks call both.

    run: the run directory; only the rank that is 0 at the time writes it.
    on_generation: called on rank 0 with the snapshot of each generation when it is recorded; True stops the run.
    signals: None where no signal is waited for.
    Raises EnvironmentProblem, ConfigError or SolverProblem where the config cannot be trained on this rank.
    """

    def __init__(
        self,
        config: Config,
        comm: Communicator,
        run: RunWriter | None = None,
        signals: Signals | None = None,
        on_generation: Callback = lambda snapshot: None,
    ) -> None:
        self.config, self.comm, self.run, self.on_generation = config, comm, run, on_generation
        self.task = build_task(config, comm)
        require_memory(self.task.training_needs())
        self.solver = make_solver(config, self.task.dimension, self.task.directions)
        self.control = Control(config.stop, comm, signals)
        self.updater = Updater(config, self.solver, comm)
        self.evaluator = Evaluator(config, self.task, self.solver, comm, self.control)
        self.has_learner = False  # whether this rank is rank 0 and has read the run
        self.failure = ""  # on rank 0: why the run stops, in one line, where the reason is "failures"
        self.pauses = stopwatch.paused  # seconds of all pauses that are recorded already
        # On rank 0: the population of a generation whose step is taken, until it is recorded.
        self.unrecorded: Population | None = None

    @property
    def learner(self) -> Learner | None:
        """The state of the run on rank 0; None elsewhere."""
        return self.updater.learner

    def build_table(self, tables: NoiseTables | None = None) -> None:
        """Make the noise table in the shared memory of each node, after warnings about the noise and the environment.

        tables: the noise tables of the node, where this run shares them with other runs of the job.
        Raises NotEnoughSharedMemory.
        """
        size, table = self.updater.table_size, None
        if self.comm.is_root:
            for warning in filter(None, (self.task.find_shared_noise(), self.task.find_unseeded_numbers())):
                log.warning("%s", warning)
        if tables:
            table = do_together(self.comm, lambda: tables.get(self.config.seed, size))
        self.updater.build_table(table)

    def train(self) -> str:
        """Run generations until there is a reason to stop; returns it, one of control.STOP_REASONS.

        Raises SolverProblem for a mistake of the user's solver; the complete generations are on disk by then.
        """
        while True:
            try:
                self.restore()
                if self.plays_again():
                    self.run_generation()
                while not (reason := self.control.stop_reason(self.learner)):
                    self.run_generation()
                if reason == "failures":
                    self.failure = self.evaluator.describe_failures(self.updater.generation)
                break
            except GenerationAbandoned:
                reason = "signal"
                break
            except EvaluationFailed as error:
                reason, self.failure = "failures", str(error)
                break
            except RankLost:
                self.recover()
            except SolverProblem:
                if self.learner and self.run:
                    self.run.flush()  # what is complete is on disk before this ends
                raise
        self.task.player.drop()
        return reason

    def run_generation(self) -> None:
        """Play a generation and take its step; evaluate the mean when that is due; record both."""
        parts, upcoming = self.updater.next_parts()
        population = self.evaluator.evaluate(parts, self.updater.generation, prefetch=upcoming)
        self.updater.apply(parts, population)
        self.unrecorded = population if self.learner else None
        self.finish_generation()

    def finish_generation(self) -> None:
        """Evaluate the mean when that is due, and record the generation."""
        evaluation, reason = None, self.control.stop_reason(self.learner)
        if self.evaluation_is_due(reason):
            mean, normalization = self.updater.broadcast_mean()
            is_result = reason not in ("", "signal")
            evaluation = self.evaluator.evaluate_mean(mean, normalization, self.updater.generation, is_result)
            if self.learner and evaluation:
                self.learner.update_solved(evaluation)
        is_last = bool(self.control.stop_reason(self.learner))
        if self.learner and self.run:  # no communication from here on: no loss of a rank can interrupt it
            is_best = evaluation is not None and self.learner.update_best(evaluation)
            snapshot = self.learner.snapshot(
                self.unrecorded,
                evaluation,
                is_best,
                ranks=self.comm.size,
                nodes=self.comm.nodes,
                starts=self.run.starts,
                paused=self.take_pause(),
            )
            self.run.record(snapshot, is_last)
            self.control.has_callback_stopped |= bool(self.on_generation(snapshot))
        self.unrecorded = None
        self.evaluator.forget_recovered()

    def evaluation_is_due(self, reason: str) -> bool:
        """Whether to evaluate the mean now: every few generations, and at the end unless the run was interrupted.

        After a signal it is evaluated if that is due, as this generation is not played again.

        reason: why the run stops; '' while it goes on.
        """
        every = self.config.evaluation.every
        if reason == "failures":
            return False
        return reason not in ("", "signal") or bool(every and self.updater.generation % every == 0)

    def take_pause(self) -> float:
        """Seconds for which this process was stopped since this was asked last."""
        pause, self.pauses = stopwatch.paused - self.pauses, stopwatch.paused
        if pause >= 1:
            log.info("this process was stopped for %.1f s, which do not count as seconds of training", pause)
        return pause

    def restore(self) -> None:
        """Bring all ranks to the same generation.  Rank 0 reads the run first, unless it already has."""
        if not self.comm.broadcast_int(self.has_learner):
            self.read_run()
            self.has_learner = self.comm.is_root
        self.updater.begin(self.learner)
        if self.comm.broadcast_int(self.unrecorded is not None):  # a rank was lost after the step
            self.finish_generation()

    def read_run(self) -> None:
        """Go on from the checkpoint, and replay the generations behind it from the ledger, without an environment."""
        run, learner, checkpoint = self.run, None, None
        records: list[Arrays] = []
        if self.comm.is_root and run:
            checkpoint, records = run.load(self.ends_unevaluated)
            learner = self.make_learner(checkpoint)
        self.updater.begin(learner)
        for number in range(self.comm.broadcast_int(len(records))):
            self.updater.replay(records[number] if learner else None)
        if learner and run:
            if records and learner.digest() != records[-1]["digest"].item():
                log.warning(
                    "the ledger of %s gives another state than recorded; going back to the checkpoint", run.name
                )
                learner = self.updater.learner = self.make_learner(checkpoint)
            if learner.clock.generation:
                log.info("%s: continuing from generation %d", run.name, learner.clock.generation)
            run.begin(learner.snapshot())

    def ends_unevaluated(self, row: Row) -> bool:
        """Whether the generation of this row is the run's last one, but was not evaluated.

        That is so if too many of its members failed, or if the config now ends the run at an earlier generation than
        before.  Such a generation is played again, and then evaluated.

        row: of metrics.csv.
        """
        steps, seconds = parse_count(row.get("steps")), parse_number(row.get("seconds"), 0.0)
        clock = Clock(int(row["generation"] or 0), 0, steps, seconds)
        return not row.get("eval_mean") and bool(rule_that_holds(self.config.stop, clock, -math.inf))

    def plays_again(self) -> bool:
        """Whether the coming generation was recorded before, and `ends_unevaluated` holds for it."""
        run, learner = self.run, self.learner
        return bool(self.comm.broadcast_int(bool(learner and run and run.again == learner.clock.generation + 1)))

    def make_learner(self, checkpoint: tuple[Arrays, Attributes] | None) -> Learner:
        """The learner of a checkpoint, or of a new run where there is none."""
        constants = self.task.policy.constants if self.task.policy else {}
        learner = Learner(self.config, self.solver, self.task.observation_size, constants)
        if checkpoint:
            learner.load_state_dict(checkpoint[0])
        else:
            learner.start(self.task.first_policy())
        return learner

    def recover(self) -> None:
        """Go on with the ranks that are left after one was lost."""
        began = time.perf_counter()
        self.evaluator.keep_finished()
        lost = self.comm.repair()
        if self.comm.is_root:
            seconds = time.perf_counter() - began
            left = counted(self.comm.size, "rank")
            what = f"lost {lost}" if lost else "MPI reported a failure, but no rank was lost"
            log.warning("%s; training continues on %s after %.3f s", what, left, seconds)
