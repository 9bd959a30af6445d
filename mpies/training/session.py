"""One run on all ranks, from its config to its end: what the command line and `mpies.train` share."""

import contextlib
import logging
import os
import sys
import threading
import traceback
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mpies.comm import Communicator
from mpies.comm.guarded import Guarded
from mpies.comm.mpiexec import JOB
from mpies.comm.together import do_together
from mpies.config.schema import Config
from mpies.core.errors import SolverProblem
from mpies.report.figures import draw_in_background
from mpies.runs.directory import open_run
from mpies.runs.snapshot import Snapshot
from mpies.runs.writer import RunWriter
from mpies.training.control import Signals
from mpies.training.finished_run import find_finished_run
from mpies.training.logs import LogFile, LoggedProgress, log_run_to, output_may_fail
from mpies.training.noise_tables import NoiseTables
from mpies.training.progress import PLOTS, Phase, Phases, Progress, format_mean
from mpies.training.trainer import Trainer

log = logging.getLogger(__name__)

SWITCH_INTERVAL = 1e-4  # seconds; at Python's 5 ms the thread that writes the run would hold training up

_switch_lock = threading.Lock()
_switch_users, _switch_before = 0, 0.0  # runs that this process trains now, and the interval before the first of them


@dataclass(frozen=True)
class RunRequest:
    """What to train, and where to.

    load: reads the config.  folder: the run directory.  out: the argument of --out that leads there.
    resume: as for open_run.
    callback: called on rank 0 with each generation's snapshot when it is recorded; True stops the run.
    job: the name that all ranks of the job share in the run's lock; '' makes one.
    has_plots: whether plots are drawn in the background when the run is over.
    tables: noise tables that this run shares with others; None where it has one of its own.
    """

    load: Callable[[], Config]
    folder: Path
    out: Path
    resume: str
    callback: Callable[[RunWriter, Snapshot], bool] | None = None
    job: str = ""
    has_plots: bool = True
    tables: NoiseTables | None = None


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
    Raises CollectiveError on all ranks for a user's mistake that is found before training.
    """
    with Phases(progress, comm, began) as phases, contextlib.ExitStack() as stack:

        def make_trainer() -> Trainer:
            trainer = Trainer(config, comm, signals=signals)
            stack.callback(_close_environment, trainer)
            return trainer

        def make_writer() -> RunWriter:
            folder = request.folder
            if comm.is_root:
                run = open_run(folder, config, request.resume, job, comm.nodes)
            else:
                run = RunWriter(folder, config, job)
            stack.callback(run.close)
            return run

        phases.begin_start_up("reading the config")
        config = do_together(comm, request.load)
        may_be_finished = comm.is_root and request.resume != "never"
        finished = do_together(comm, lambda: find_finished_run(request.folder, config) if may_be_finished else None)
        if comm.broadcast_int(finished is not None):
            if finished:
                phases.close()
                with contextlib.suppress(OSError):  # launchers tell by its time that this job found the run complete
                    (request.folder / "finished.yaml").touch()
                with output_may_fail():
                    phases.show_outcome(finished.describe(config, request.out), finished.values())
            return Ending("")
        phases.set_stop(config.stop)
        phases.begin_start_up("building the environment")
        trainer = do_together(comm, make_trainer)
        phases.begin_start_up("building the noise table")
        do_together(comm, lambda: trainer.build_table(request.tables))
        phases.begin_start_up("reading the run")
        # A supervisor gives all its starts one name: a later one may take the lock of the run at once.
        own = uuid.UUID(os.environ.get(JOB) or uuid.uuid4().hex)
        job = request.job or comm.broadcast([np.frombuffer(own.bytes, np.uint8)])[0].tobytes().hex()
        trainer.run = run = do_together(comm, make_writer)
        stack.enter_context(_short_switch_interval())
        log_file = LogFile(run.path / "log.txt")
        stack.enter_context(log_run_to(comm, log_file))
        try:
            return _train(trainer, request, run, LoggedProgress(phases, log_file), phases, log_file)
        except BaseException:
            if comm.size > 1 and not isinstance(comm, Guarded):
                stack.pop_all()  # the caller ends all ranks, and nothing must delay that
            raise


def _train(
    trainer: Trainer,
    request: RunRequest,
    run: RunWriter,
    progress: LoggedProgress,
    phases: Phases,
    log_file: LogFile,
) -> Ending:
    """Train until a stop rule holds, and write down how the run ended."""
    trainer.evaluator.on_play = phases.begin_play
    errors: list[BaseException] = []

    def on_generation(snapshot: Snapshot) -> bool:
        progress.show(snapshot.row)
        try:
            return request.callback is not None and request.callback(run, snapshot)
        except BaseException as error:  # it comes out when the run is on disk
            errors.append(error)
            return True

    trainer.on_generation = on_generation
    try:
        reason = trainer.train()
    except SolverProblem:  # the user's code: the terminal gets one line, the file all of it
        record = {"levelname": "DEBUG", "msg": traceback.format_exc(), "rank": trainer.comm.rank}
        log_file.emit(logging.makeLogRecord(record))
        raise
    if not trainer.learner:
        return Ending(reason)
    progress.close()
    problem = finish_run(trainer, reason, progress, phases, bool(errors))
    phases.begin(Phase("closing the run", PLOTS))  # trackers may take their time
    run.close()
    if request.has_plots and reason != "signal":  # after a signal the next start goes on
        draw_in_background(run.path)
    return Ending(reason, problem, errors[0] if errors else None)


def finish_run(trainer: Trainer, reason: str, progress: LoggedProgress, phases: Phases, has_raised: bool) -> str:
    """On rank 0, report how the run ended, and mark it as finished when it is.

    has_raised: whether a callback has raised an exception.
    Returns the problem where the run is neither finished nor stopped, else ''.
    """
    run, learner = trainer.run, trainer.learner
    assert run and learner
    clock = learner.clock
    # The newest generation was not evaluated as it should be; it is played again after a resume.
    is_unrecorded = trainer.unrecorded is not None
    snapshot = None if is_unrecorded else learner.snapshot()
    is_interrupted = reason in ("signal", "failures", "callback")
    is_finished = not is_interrupted or (reason == "callback" and not has_raised)
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
        kept = clock.generation - is_unrecorded
        log.info("stopped by a signal after generation %d; the same command continues from there", kept)
    elif is_finished:
        outcome = {"callback": "stopped by a callback"}.get(reason, f"all {reason} done")
        if reason == "solved":
            mean = format_mean(learner.solved, learner.solved_interval)
            outcome = f"solved: {mean}, target {learner.config.stop.target:g}"
        progress.show_outcome(
            f"{run.name}: {outcome}; generation {clock.generation}, {clock.steps:,} steps, {clock.seconds:.1f} s of "
            f"training ({run.seconds / max(clock.seconds, 1e-9):.1%} more for writing files; a checkpoint takes "
            f"{1000 * run.checkpoint_seconds:.0f} ms); {phases.describe()}",
            {"reason": reason, "run": run.name},
        )
    return problem


def _close_environment(trainer: Trainer) -> None:
    """Free what the environment holds; the process may go on to train other runs."""
    trainer.task.player.drop()
    trainer.task.close()


@contextlib.contextmanager
def _short_switch_interval() -> Iterator[None]:
    """In the `with` block Python's threads take turns more often; several threads may be in it."""
    global _switch_users, _switch_before
    with _switch_lock:
        if not _switch_users:
            _switch_before = sys.getswitchinterval()
            sys.setswitchinterval(SWITCH_INTERVAL)
        _switch_users += 1
    try:
        yield
    finally:
        with _switch_lock:
            _switch_users -= 1
            if not _switch_users:
                sys.setswitchinterval(_switch_before)
