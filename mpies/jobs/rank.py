"""One rank of a job: from the command line into the training loop, and out again with the right exit code."""

import contextlib
import functools
import logging
import os
import socket
import threading
import time
import traceback
import uuid
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np

from mpies.comm import Communicator, connect
from mpies.comm.together import CollectiveError, do_together
from mpies.config.loading import load_config
from mpies.errors import FAILED, FINISHED, REQUEUE, USER_ERROR, ConfigError, RunError, RunLocked, printable
from mpies.jobs.finished_run import find_finished_run
from mpies.jobs.logs import (
    LogFile,
    LoggedProgress,
    StandardErrorHandler,
    print_error,
    print_message,
    use_json_if_wanted,
)
from mpies.runs.files import default_out
from mpies.runs.metrics import format_return
from mpies.runs.opening import open_run
from mpies.runs.writer import RunWriter
from mpies.solvers.problem import SolverProblem
from mpies.training.control import Signals
from mpies.training.trainer import Trainer
from mpies.views.live_plots import LivePlots
from mpies.views.phases import Phases, process_age
from mpies.views.progress import PLOTS, Phase, make_progress

log = logging.getLogger(__name__)

ROOT_FIRST = 3.0  # seconds that a rank with a user's mistake waits: rank 0 mostly has the same one, and ends all ranks


def end_with_parent() -> None:
    """End this process soon after its parent ends: a rank without mpirun must not write on."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(FAILED)

    threading.Thread(target=watch, daemon=True).start()


def train_on_this_rank(
    path: str, out: str | None, resume: str, overrides: Sequence[str], seeds: Iterable[int] | None = None
) -> int:
    """Train the config at `path`; with `seeds`, one run after the other.  Returns the exit code.

    All ranks call this.  out: the run directory, None for the default.  resume: as for open_run.
    """

    def train(comm: Communicator) -> int:
        began, signals = time.monotonic() - process_age(), Signals()
        use_json_if_wanted(comm)
        base = Path(out) if out else default_out(path, overrides)
        if seeds is None:
            code = _train(comm, signals, began, path, base, base, resume, overrides)
            signals.close()
            return comm.finalize(code)
        for seed in seeds:
            folder = Path(f"{base}-seed-{seed}")
            code = _train(comm, signals, began, path, folder, base, resume, [*overrides, f"seed={seed}"])
            began = time.monotonic()
            if comm.first_error("this seed's run was not finished" if code else ""):
                break
            comm.free()
        signals.close()
        return comm.finalize(code)

    return run_on_this_rank(train)


def run_on_this_rank(work: Callable[[Communicator], int]) -> int:
    """Do work(comm), this rank's part of a job.  Returns its exit code, or the one of how it failed."""
    comm = connect()
    if comm.size > 1:
        end_with_parent()
    set_up_logging(comm)
    code = FAILED
    try:
        return work(comm)
    except CollectiveError as error:
        if comm.is_root:
            print_error(printable(str(error)))
        return comm.finalize(USER_ERROR)
    except RunLocked as error:
        print_error(printable(f"{error}; this job ends"))
    except (ConfigError, RunError, SolverProblem) as error:
        if not comm.is_root:
            time.sleep(ROOT_FIRST)
        print_error(printable(str(error)))
        code = USER_ERROR
    except MemoryError as error:
        print_error(f"rank {comm.rank} on {socket.gethostname()}: there is not enough memory ({printable(str(error))})")
    except BaseException:
        print_error(f"rank {comm.rank} on {socket.gethostname()} failed:\n{traceback.format_exc()}")
    comm.abort(code)  # the other ranks would wait for ever
    return code


def set_up_logging(comm: Communicator) -> None:
    """Log to standard error: INFO from rank 0, WARNING from all.  A rank's number may change when another is lost."""
    wording = "%(levelname)s rank %(rank)d: %(message)s"
    logging.basicConfig(level=logging.INFO, format=wording, handlers=[StandardErrorHandler()])
    for handler in logging.getLogger().handlers:
        handler.addFilter(functools.partial(_is_wanted, comm))


def _is_wanted(comm: Communicator, record: logging.LogRecord) -> bool:
    record.rank = comm.rank
    return record.levelno >= (logging.INFO if comm.is_root else logging.WARNING)


def _train(
    comm: Communicator,
    signals: Signals,
    began: float,
    path: str,
    folder: Path,
    out: Path,
    resume: str,
    overrides: Sequence[str],
) -> int:
    """One run, on all ranks.  Returns the exit code.

    began: time.monotonic() from which its time counts.  folder: the run directory.  out: the argument of --out that
    leads there.
    """
    with Phases(make_progress(), comm, began) as phases:
        phases.begin_start_up("reading the config")
        config = do_together(comm, lambda: load_config(path, overrides))
        may_be_finished = comm.is_root and resume != "never"
        finished = do_together(comm, lambda: find_finished_run(folder, config) if may_be_finished else None)
        if comm.broadcast_int(finished is not None):
            if finished:
                phases.close()
                with contextlib.suppress(OSError):  # launchers tell by its time that this job found the run complete
                    (folder / "finished.yaml").touch()
                print_message(finished.describe(config, out), finished.values())
            return FINISHED
        phases.set_stop(config.stop)
        phases.begin_start_up("building the environment")
        trainer = do_together(comm, lambda: Trainer(config, comm, signals=signals))
        phases.begin_start_up("building the noise table")
        do_together(comm, trainer.build_table)
        phases.begin_start_up("reading the run")
        job = comm.broadcast([np.frombuffer(uuid.uuid4().bytes, np.uint8)])[0].tobytes().hex()
        trainer.run = run = do_together(
            comm, lambda: open_run(folder, config, resume, job) if comm.is_root else RunWriter(folder, config, job)
        )
        log_file = LogFile(run.path / "log.txt")
        log_file.addFilter(functools.partial(_is_wanted, comm))
        logging.getLogger().addHandler(log_file)
        progress, plots = LoggedProgress(phases, log_file), LivePlots(run, comm.node_size)
        run.on_evaluation, trainer.on_generation = plots.refresh, progress.show
        trainer.evaluator.on_play = phases.begin_play
        try:
            reason = trainer.train()
        except SolverProblem:  # the user's code: the terminal gets one line, the file all of it
            record = {"levelname": "DEBUG", "msg": traceback.format_exc(), "rank": comm.rank}
            log_file.emit(logging.makeLogRecord(record))
            raise
        code = {"signal": REQUEUE, "failures": FAILED}.get(reason, FINISHED)
        if trainer.learner:
            progress.close()
            if not finish_run(trainer, reason, progress, phases):
                code = FAILED
            phases.begin(Phase("drawing the plots", PLOTS))
            plots.close()
            run.close()
        logging.getLogger().removeHandler(log_file)
        return code


def finish_run(trainer: Trainer, reason: str, progress: LoggedProgress, phases: Phases) -> bool:
    """On rank 0, report how the run ended, and mark it as finished when it is complete.

    Returns whether all is on disk.
    """
    run, learner = trainer.run, trainer.learner
    assert run and learner
    clock = learner.clock
    # The newest generation was not evaluated as it should be; it is played again after a resume.
    is_unrecorded = trainer.unrecorded is not None
    snapshot = None if is_unrecorded else learner.snapshot()
    if reason in ("signal", "failures") and not run.checkpoint(snapshot):
        log.error("%s: the state of generation %d could not be written", run.name, clock.generation)
        return False
    if reason == "signal":
        kept = clock.generation - is_unrecorded
        log.info("stopped by a signal after generation %d; the same command goes on from there", kept)
        return True
    if reason == "failures":
        log.error("%s", trainer.failure)
        return True
    if not run.finish(reason, learner.snapshot(), clock.steps):
        log.error("%s: the end of the run could not be written", run.name)
        return False
    outcome = f"all {reason} done"
    if reason == "solved":
        outcome = f"solved: {format_return(learner.solved)}, target {learner.config.stop.target:g}"
    progress.show_outcome(
        f"{run.name}: {outcome}; generation {clock.generation}, {clock.steps:,} steps, {clock.seconds:.1f} s of "
        f"training ({run.seconds / max(clock.seconds, 1e-9):.1%} more for writing it down; a checkpoint takes "
        f"{1000 * run.checkpoint_seconds:.0f} ms); {phases.describe()}",
        {"reason": reason, "run": run.name},
    )
    return True
