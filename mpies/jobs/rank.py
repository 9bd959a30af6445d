"""One rank of a job: from the command line into the training loop, and out again with the right exit code."""

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
from mpies.config.schema import Config
from mpies.errors import FAILED, FINISHED, REQUEUE, USER_ERROR, ConfigError, RunError, RunLocked
from mpies.jobs.logs import LogFile, LoggedProgress, print_error, use_json_if_wanted
from mpies.runs.files import default_out
from mpies.runs.writer import RunWriter, open_run
from mpies.training.control import Signals
from mpies.training.learner import Learner
from mpies.training.trainer import Trainer
from mpies.views.live_plots import LivePlots
from mpies.views.progress import make_progress

log = logging.getLogger(__name__)


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
        signals = Signals()
        use_json_if_wanted(comm)
        if seeds is None:
            code = _train(comm, signals, path, out, resume, overrides)
            signals.close()
            return comm.finalize(code)
        base = out or default_out(path, overrides)
        for seed in seeds:
            code = _train(comm, signals, path, f"{base}-seed-{seed}", resume, [*overrides, f"seed={seed}"])
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
            print_error(str(error))
        return comm.finalize(USER_ERROR)
    except RunLocked as error:
        print_error(f"{error}; this job ends")
    except (ConfigError, RunError) as error:
        print_error(str(error))
        code = USER_ERROR
    except BaseException:
        print_error(f"rank {comm.rank} on {socket.gethostname()} failed:\n{traceback.format_exc()}")
    comm.abort(code)  # the other ranks would wait for ever
    return code


def set_up_logging(comm: Communicator) -> None:
    """Log to standard error: INFO from rank 0, WARNING from all.  A rank's number may change when another is lost."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s rank %(rank)d: %(message)s")
    for handler in logging.getLogger().handlers:
        handler.addFilter(functools.partial(_is_wanted, comm))


def _is_wanted(comm: Communicator, record: logging.LogRecord) -> bool:
    record.rank = comm.rank
    return record.levelno >= (logging.INFO if comm.is_root else logging.WARNING)


def _train(
    comm: Communicator, signals: Signals, path: str, out: str | Path | None, resume: str, overrides: Sequence[str]
) -> int:
    """One run, on all ranks.  Returns the exit code."""
    config = do_together(comm, lambda: load_config(path, overrides))
    folder = Path(out) if out else default_out(path, overrides)
    trainer = do_together(comm, lambda: Trainer(config, comm, signals=signals))
    do_together(comm, trainer.build_table)
    job = comm.broadcast([np.frombuffer(uuid.uuid4().bytes, np.uint8)])[0].tobytes().hex()
    trainer.run = run = do_together(
        comm, lambda: open_run(folder, config, resume, job) if comm.is_root else RunWriter(folder, config, job)
    )
    log_file = LogFile(folder / "log.txt")
    log_file.addFilter(functools.partial(_is_wanted, comm))
    logging.getLogger().addHandler(log_file)
    progress, plots = LoggedProgress(make_progress(config), log_file), LivePlots(run, comm.node_size)
    run.on_evaluation, trainer.on_generation = plots.refresh, progress.show
    reason = trainer.train()
    code = {"signal": REQUEUE, "failures": FAILED}.get(reason, FINISHED)
    if trainer.learner:
        progress.close()
        if not finish_run(reason, run, trainer.learner, trainer.unrecorded is not None, config, progress):
            code = FAILED
        plots.close()
        run.close()
    logging.getLogger().removeHandler(log_file)
    return code


def finish_run(
    reason: str, run: RunWriter, learner: Learner, is_unrecorded: bool, config: Config, progress: LoggedProgress
) -> bool:
    """Report how the run ended, and mark it as finished when it is complete.  Returns whether all is on disk.

    is_unrecorded: whether the newest generation's evaluation was abandoned; it is then played again after a resume.
    """
    clock = learner.clock
    snapshot = None if is_unrecorded else learner.snapshot()
    if reason in ("signal", "failures") and not run.checkpoint(snapshot):
        log.error("%s: the state of generation %d could not be written", run.path, clock.generation)
        return False
    if reason == "signal":
        kept = clock.generation - is_unrecorded
        log.info("stopped by a signal after generation %d; the same command goes on from there", kept)
        return True
    if reason == "failures":
        log.error("more than stop.max_failures of generation %d failed; see the warnings", clock.generation)
        return True
    if not run.finish(reason, learner.snapshot(), clock.steps):
        log.error("%s: the end of the run could not be written", run.path)
        return False
    outcome = f"all {reason} done"
    if reason == "solved":
        outcome = f"solved: {learner.solved:.2f}, target {config.stop.target:g}"
    progress.show_outcome(
        f"{run.path}: {outcome}; generation {clock.generation}, {clock.steps:,} steps, {clock.seconds:.1f} s of "
        f"training ({run.seconds / max(clock.seconds, 1e-9):.1%} more for writing it down; a checkpoint takes "
        f"{1000 * run.checkpoint_seconds:.0f} ms)",
        {"reason": reason, "run": str(run.path)},
    )
    return True
