"""One rank's way from the command line into the generation loop and out again with the right exit code."""

import functools
import logging
import os
import signal
import socket
import threading
import time
import traceback
import uuid
from pathlib import Path

import numpy as np

from envs import EnvironmentProblem
from mpies import store
from mpies.cli import FAILED, FINISHED, REQUEUE, USER_ERROR
from mpies.communicator import NotEnoughSharedMemory, connect
from mpies.config import ConfigError, load
from mpies.lock import Taken
from mpies.painter import Painter
from mpies.progress import Kept, LogFile, complain, format_log, make_progress
from mpies.train import Trainer

_USER_MISTAKES = (ConfigError, EnvironmentProblem, store.StoreError, NotEnoughSharedMemory, Taken)

log = logging.getLogger(__name__)


class Signals:
    """SIGTERM, SIGINT and SIGUSR1 ask for a stop after this generation; a second one ends at once."""

    def __init__(self):
        self.raised = None  # time of the first, in monotonic seconds
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
            signal.signal(number, self._note)

    def _note(self, number, _frame):
        self.raised = time.monotonic()
        signal.signal(number, signal.SIG_DFL)

    def expired(self, grace):
        """Whether the first signal came more than `grace` seconds ago."""
        return self.raised is not None and time.monotonic() - self.raised > grace


def end_with_parent():
    """End this process soon after the one that started it: an orphan must not write on."""
    parent = os.getppid()

    def watch():
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(FAILED)

    threading.Thread(target=watch, daemon=True).start()


class _Leaving(Exception):
    """All ranks end together, with an exit code."""

    def __init__(self, code):
        self.code = code


def default_out(config, overrides):
    """runs/NAME, where overrides are part of the name, so that each variant is a run of its own."""
    name = "_".join([Path(config).stem, *overrides])
    return Path("runs") / "".join(letter if letter.isalnum() or letter in "-_.=," else "-" for letter in name)


def train_on_this_rank(path, out, resume, overrides, seeds=None):
    """Train the config at `path`, with `seeds` one run after the other.  Returns the exit code; all ranks call this."""

    def part(comm):
        signals = Signals()
        format_log(comm)
        if seeds is None:
            return comm.leave(_train(comm, signals, path, out, resume, overrides))
        base = out or default_out(path, overrides)
        for seed in seeds:
            code = _train(comm, signals, path, f"{base}-seed-{seed}", resume, [*overrides, f"seed={seed}"])
            if comm.first_error("one rank's code is not 0" if code else ""):
                break
            comm.free()
        return comm.leave(code)

    return run_on_this_rank(part)


def run_on_this_rank(part):
    """Do part(comm), this rank's part of a job.  Returns its exit code, or that of how it failed."""
    comm = connect()
    if comm.size > 1:
        end_with_parent()
    set_up_log(comm)
    code = FAILED
    try:
        return part(comm)
    except _Leaving as leaving:
        return leaving.code
    except Taken as error:
        complain(f"{error}; this job ends")
    except (ConfigError, store.StoreError) as error:
        complain(str(error))
        code = USER_ERROR
    except BaseException:
        complain(f"rank {comm.rank} on {socket.gethostname()} failed:\n{traceback.format_exc()}")
    comm.abort(code)  # the other ranks would wait for ever
    return code


def set_up_log(comm):
    """Lines on standard error: INFO from rank 0, WARNING from all; a rank's number changes where others are lost."""

    logging.basicConfig(level=logging.INFO, format="%(levelname)s rank %(rank)d: %(message)s")
    for handler in logging.getLogger().handlers:
        handler.addFilter(functools.partial(_is_wanted, comm))


def keep_log(comm, log_file):
    """Put what `set_up_log` shows into a LogFile as well."""
    log_file.addFilter(functools.partial(_is_wanted, comm))
    logging.getLogger().addHandler(log_file)


def _is_wanted(comm, record):
    record.rank = comm.rank
    return record.levelno >= (logging.INFO if comm.rank == 0 else logging.WARNING)


def do_together(comm, step):
    """Run `step` on all ranks; where any meets a user's mistake, all end with its one line."""
    message, result = "", None
    try:
        result = step()
    except _USER_MISTAKES as error:
        message = str(error)
    message = comm.first_error(message)
    if message:
        if comm.rank == 0:
            complain(message)
        raise _Leaving(comm.leave(USER_ERROR))
    return result


def _train(comm, signals, path, out, resume, overrides):
    """One run, on all ranks.  Returns the exit code."""
    together = functools.partial(do_together, comm)
    config = together(lambda: load(path, overrides))
    out = Path(out) if out else default_out(path, overrides)
    trainer = together(lambda: Trainer(config, comm, signals))
    together(trainer.build_table)
    job = comm.broadcast([np.frombuffer(uuid.uuid4().bytes, np.uint8)])[0].tobytes().hex()
    run = together(lambda: store.open_run(out, config, resume, job) if comm.rank == 0 else store.Run(out, config, job))
    log_file = LogFile(out / "log.txt")
    keep_log(comm, log_file)
    progress, painter = Kept(make_progress(config), log_file), Painter(run, comm.node_size)
    run.evaluated = painter.refresh
    reason = trainer.train(run, progress)
    code = {"signal": REQUEUE, "failures": FAILED}.get(reason, FINISHED)
    if comm.rank == 0:
        progress.close()
        if not _say_goodbye(reason, run, trainer.learner, config, progress):
            code = FAILED
        painter.close()
        run.close()
    logging.getLogger().removeHandler(log_file)
    return code


def _say_goodbye(reason, run, learner, config, progress):
    """Tell how the run ended, and leave the marker when it is complete.  Returns whether all is on disk."""
    clock = learner.clock
    if reason in ("signal", "failures") and not run.checkpoint(learner):
        log.error("%s: the state of generation %d could not be written", run.path, clock.generation)
        return False
    if reason == "signal":
        kept = clock.generation - (learner.results is not None)
        log.info("stopped by a signal after generation %d; the same command goes on from there", kept)
        return True
    if reason == "failures":
        log.error("more than stop.max_failures of generation %d failed; see the warnings", clock.generation)
        return True
    if not run.finish(reason, learner):
        log.error("%s: the end of the run could not be written", run.path)
        return False
    said = (
        f"solved: {learner.solved:.2f}, target {config.stop.target:g}" if reason == "solved" else f"all {reason} done"
    )
    progress.end(
        f"{run.path}: {said}; generation {clock.generation}, {clock.steps:,} steps, {clock.seconds:.1f} s of training "
        f"({run.seconds / max(clock.seconds, 1e-9):.1%} more for writing it down; a checkpoint takes "
        f"{1000 * run.checkpoint_seconds:.0f} ms)",
        {"reason": reason, "run": str(run.path)},
    )
    return True
