"""One run on all ranks, from its config to its end: what the command line and `mpies.train` share."""

import contextlib
import logging
import os
import shlex
import sys
import traceback
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mpies.comm import Communicator
from mpies.comm.cores import hold_core
from mpies.comm.guarded import Guarded
from mpies.comm.mpiexec import JOB
from mpies.comm.together import do_together
from mpies.config.schema import Config
from mpies.core.errors import SolverProblem
from mpies.envs import BACKENDS
from mpies.runs.directory import find_backend, open_run, with_backend
from mpies.runs.snapshot import Snapshot
from mpies.runs.writer import RunWriter
from mpies.training.control import Signals
from mpies.training.evaluation.noise_tables import NoiseTables
from mpies.training.finished_run import find_finished_run
from mpies.training.logs import LogFile, log_to, output_may_fail
from mpies.training.progress import PLOTS, Phase, Phases, Progress, describe_generation, format_mean
from mpies.training.task import Task, build_task
from mpies.training.trainer import Trainer
from mpies.training.update import Updater, make_solver

log = logging.getLogger(__name__)

SWITCH_INTERVAL = 1e-4  # seconds; at Python's 5 ms the thread that writes the run would hold training up


@dataclass(frozen=True)
class RunRequest:
    """What to train, and where to.

    load: reads the config.  folder: the run directory.  out: the argument of --out that leads there.
    resume: as for open_run.
    callback: called on rank 0 with each generation's snapshot when it is recorded; True stops the run.
    job: the name that all ranks of the job share in the run's lock; '' makes one.
    tables: noise tables that this run shares with others; None where it has one of its own.
    when_over: called on rank 0 with the run directory when the run is over and nobody writes it any more.
    """

    load: Callable[[], Config]
    folder: Path
    out: Path
    resume: str
    callback: Callable[[RunWriter, Snapshot], bool] | None = None
    job: str = ""
    tables: NoiseTables | None = None
    when_over: Callable[[Path], object] = lambda folder: None


@dataclass(frozen=True)
class Ending:
    """How training ended.

    reason: one of control.STOP_REASONS; '' where the run was complete before.
    problem: on rank 0, why it is neither finished nor stopped, in one line; '' where it is.
    error: on rank 0, what a callback raised.
    """

    reason: str
    problem: str = ""
    error: BaseException | None = None


def train_run(comm: Communicator, request: RunRequest, signals: Signals, progress: Progress, began: float) -> Ending:
    """Train a run, or go on with it.  All ranks call this.

    began: time.monotonic() from which its time counts.
    Raises CollectiveError on all ranks for a user's mistake that is found before training, and SolverProblem on the
    rank where a user's solver fails while it trains.
    """
    with Phases(progress, comm, began) as phases, contextlib.ExitStack() as stack:

        def make_task() -> Task:
            task = build_task(config, comm)
            stack.callback(task.close)  # the process may go on to train other runs
            return task

        def make_writer() -> RunWriter:
            folder = request.folder
            if comm.is_root:
                run = open_run(folder, config, request.resume, job, comm.nodes)
            else:
                run = RunWriter(folder, config, job)
            stack.callback(run.close)
            return run

        phases.begin(Phase("reading the config"))
        config = do_together(comm, request.load)
        backend = do_together(comm, lambda: find_backend(request.folder if comm.is_root else None, config))
        config = with_backend(config, BACKENDS[comm.broadcast_int(BACKENDS.index(backend))])
        if _is_finished(comm, request, config, phases):
            return Ending("")
        core = stack.enter_context(hold_core(comm, config.bind_ranks))  # before a simulator makes threads
        phases.progress.set_stop(config.stop)
        played_by = "" if config.environment.backend == "auto" else f" ({config.environment.backend})"
        phases.begin(Phase(f"building the environment{played_by}"))
        task = do_together(comm, make_task)
        solver = do_together(comm, lambda: make_solver(config, task.dimension, task.directions))
        phases.begin(Phase("building the noise table"))
        for warning in task.find_warnings() if comm.is_root else ():
            log.warning("%s", warning)
        updater = do_together(comm, lambda: Updater(config, solver, comm, request.tables))
        phases.begin(Phase("reading the run"))
        # A supervisor gives all its starts one name: a later one may take the lock of the run at once.
        name = uuid.UUID(os.environ.get(JOB) or uuid.uuid4().hex)
        job = request.job or comm.broadcast([np.frombuffer(name.bytes, np.uint8)])[0].tobytes().hex()
        run = do_together(comm, make_writer)
        if (before := sys.getswitchinterval()) > SWITCH_INTERVAL:
            sys.setswitchinterval(SWITCH_INTERVAL)
            stack.callback(sys.setswitchinterval, before)
        log_file = LogFile(run.path / "log.txt")
        stack.enter_context(log_to(comm, log_file))
        if comm.is_root and played_by:
            log_file.append(f"{config.environment.id} is played by {config.environment.backend}")
        if comm.is_root and core:
            log_file.append(f"each rank stays on a core of its own, this one on {core}")
        watcher = _Watcher(request, run, phases, log_file)
        trainer = Trainer(config, comm, task, updater, run, signals, phases.begin_play, watcher.on_generation)
        try:
            reason = trainer.train()
            return watcher.end(trainer, reason) if trainer.learner else Ending(reason)
        except BaseException as error:
            if isinstance(error, SolverProblem):  # the user's code: the terminal gets one line, the file all of it
                log_file.append(traceback.format_exc(), "DEBUG", f"rank {comm.rank}")
                if trainer.learner:
                    run.flush()  # what is complete is on disk before this ends
            if comm.size > 1 and not isinstance(comm, Guarded):
                stack.pop_all()  # the caller ends all ranks, and nothing must delay that
            raise


def _is_finished(comm: Communicator, request: RunRequest, config: Config, phases: Phases) -> bool:
    """Whether the run is complete already, and the config asks for no more of it; then rank 0 says so."""
    may_be_finished = comm.is_root and request.resume != "never"
    finished = do_together(comm, lambda: find_finished_run(request.folder, config) if may_be_finished else None)
    is_finished = bool(comm.broadcast_int(finished is not None))
    if finished:
        phases.close()
        with contextlib.suppress(OSError):  # launchers tell by its time that this job found the run complete
            (request.folder / "finished.yaml").touch()
        with output_may_fail():
            phases.progress.show_outcome(finished.describe(config, request.out), finished.values())
    return is_finished


class _Watcher:
    """On rank 0, shows the generations of a run, calls the callback with them, and writes down how the run ended."""

    def __init__(self, request: RunRequest, run: RunWriter, phases: Phases, log_file: LogFile) -> None:
        self._request, self._run, self._phases, self._log_file = request, run, phases, log_file
        self._error: BaseException | None = None  # what the callback raised

    def on_generation(self, snapshot: Snapshot) -> bool:
        """Show a generation that is recorded, and call the callback.  Returns whether it stops the run."""
        with output_may_fail():
            self._phases.show(snapshot.row)
        self._log_file.append(describe_generation(snapshot.row, with_spread=True))
        try:
            return self._request.callback is not None and self._request.callback(self._run, snapshot)
        except BaseException as error:  # it comes out when the run is on disk
            self._error = error
            return True

    def end(self, trainer: Trainer, reason: str) -> Ending:
        """The run is over for this job: leave it as a later job, or a reader, wants to find it."""
        self._phases.close()
        problem = self._finish_run(trainer, reason)
        self._phases.begin(Phase("closing the run", PLOTS))  # trackers may take their time
        self._run.close()
        if reason != "signal":  # after a signal the next start goes on
            self._request.when_over(self._run.path)
        return Ending(reason, problem, self._error)

    def _finish_run(self, trainer: Trainer, reason: str) -> str:
        """Report how the run ended, and mark it as finished when it is.

        Returns the problem where the run is neither finished nor stopped, else ''.
        """
        run, learner = self._run, trainer.learner
        assert learner
        clock = learner.clock
        # Where the newest generation was not evaluated as it should be, it is played again after a resume.
        snapshot = learner.snapshot() if trainer.is_recorded else None
        is_interrupted = reason in ("signal", "failures", "callback")
        is_finished = not is_interrupted or (reason == "callback" and not self._error)
        problem = ""
        if is_interrupted and not run.checkpoint(snapshot):
            problem = f"{run.name}: the state of generation {clock.generation} could not be written"
        elif reason == "failures":
            problem = trainer.failure
        elif is_finished and not run.finish(reason, learner.snapshot(), clock.steps):
            problem = f"{run.name}: the end of the run could not be written"
        if problem:
            log.error("%s", problem)
        elif reason == "signal":
            kept = clock.generation - (not trainer.is_recorded)
            log.info("stopped by a signal after generation %d; the same command continues from there", kept)
        elif is_finished:
            outcome = {"callback": "stopped by a callback"}.get(reason, f"all {reason} done")
            if reason == "solved":
                mean = format_mean(learner.solved, learner.solved_interval)
                outcome = f"solved: {mean}, target {learner.config.stop.target:g}"
            made = f"generation {clock.generation}, {clock.steps:,} steps, {clock.seconds:.1f} s of training"
            lines = [f"{run.name}: {outcome}; {made}", self._phases.describe()]
            files = f"{run.seconds / max(clock.seconds, 1e-9):.1%} more for writing files; a checkpoint takes"
            self._log_file.append(f"{'; '.join(lines)}; {files} {1000 * run.checkpoint_seconds:.0f} ms")
            commands = ["plot", "report"] if learner.config.environment.function else ["evaluate", "play", "report"]
            lines.append(f"next: {', '.join(f'mpies {command} {shlex.quote(run.name)}' for command in commands)}")
            with output_may_fail():
                self._phases.progress.show_outcome("\n".join(lines), {"reason": reason, "run": run.name})
        return problem
