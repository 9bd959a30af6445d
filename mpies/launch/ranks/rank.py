"""One rank of a job: from the command line into the training loop, and out again with the right exit code."""

import contextlib
import functools
import gc
import logging
import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from mpies.comm import RANKS, Communicator, connect
from mpies.comm.mpiexec import JOB
from mpies.comm.together import CollectiveError
from mpies.config.loading import load_config
from mpies.core.errors import (
    FAILED,
    FAILED_FOR_GOOD,
    FINISHED,
    REQUEUE,
    USER_ERROR,
    ConfigError,
    RunLocked,
    TrainingFailed,
    UserError,
)
from mpies.core.interrupt import is_interrupt
from mpies.core.text import one_line
from mpies.report.display import make_progress
from mpies.report.figures import draw_in_background
from mpies.runs.files import default_out
from mpies.training.control import Signals
from mpies.training.logs import JsonFormatter, StandardErrorHandler, is_json_wanted, is_wanted, print_error
from mpies.training.progress import process_age
from mpies.training.session import Ending, RunRequest, train_run

ROOT_FIRST = 3.0  # seconds that a rank with a user's mistake waits: rank 0 mostly has the same one, and ends all ranks


def end_with_parent() -> None:
    """End this process soon after its parent ends: a rank without mpirun must not write on."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.25)
        os._exit(FAILED)

    threading.Thread(target=watch, daemon=True).start()


def train_on_this_rank(
    path: str, out: str | None, resume: str, overrides: Sequence[str], seeds: Iterable[int] | None = None
) -> int:
    """Train the config at `path`; with `seeds`, one run after the other.  Returns the exit code.

    All ranks call this.  out: the run directory, None for the default.  resume: as for open_run.
    """
    base, code = Path(out) if out else default_out(path, overrides), FINISHED
    with this_rank() as comm:
        began, signals = time.monotonic() - process_age(), Signals()
        for seed in [None] if seeds is None else seeds:
            folder, added = (base, []) if seed is None else (Path(f"{base}-seed-{seed}"), [f"seed={seed}"])
            load = functools.partial(load_config, path, [*overrides, *added])
            request = RunRequest(load, folder, base, resume, when_over=draw_in_background)
            code = exit_code(train_run(comm, request, signals, make_progress(), began))
            began = time.monotonic()
            if seed is not None:
                if comm.first_error("this seed's run was not finished" if code else ""):
                    break
                gc.collect()  # the memory that the ranks of this run shared
        signals.close()
        return comm.finalize(code)


def exit_code(ending: Ending) -> int:
    """The exit code of a rank whose training ended so."""
    if ending.reason == "failures" and JOB in os.environ:
        return FAILED_FOR_GOOD
    if ending.problem:
        return FAILED
    return {"signal": REQUEUE, "failures": FAILED}.get(ending.reason, FINISHED)


@contextlib.contextmanager
def this_rank() -> Iterator[Communicator]:
    """This process as one rank of its job, with its log set up.  It ends with the right exit code where it fails.

    What the code in the `with` block raises ends all ranks, in one line where it is a user's mistake.
    Raises KeyboardInterrupt where Ctrl-C ends the work of a single rank.
    """
    try:
        comm = connect()
    except ConfigError as error:  # no rank knows of the others; the first one speaks
        if all(os.environ.get(name, "0") == "0" for name in RANKS):
            print_error(one_line(error), error)
        else:
            time.sleep(ROOT_FIRST)  # mpirun ends all ranks as soon as one ends, the first one too
        sys.exit(USER_ERROR)
    if comm.size > 1:
        end_with_parent()
    set_up_logging(comm)
    code = FAILED
    try:
        yield comm
        return
    except CollectiveError as error:
        if comm.is_root:
            print_error(one_line(error), error.mistake)
        sys.exit(comm.finalize(USER_ERROR))
    except RunLocked as error:
        print_error(one_line(f"{error}; this job ends"), error)
    except TrainingFailed as error:  # another start would go on with what is left, which nobody has asked for
        print_error(one_line(error), error)
        code = FAILED_FOR_GOOD if JOB in os.environ else FAILED
    except UserError as error:
        if not comm.is_root:
            time.sleep(ROOT_FIRST)
        print_error(one_line(error), error)
        code = USER_ERROR
    except MemoryError as error:
        print_error(f"rank {comm.rank} on {socket.gethostname()}: there is not enough memory ({one_line(error)})")
    except BaseException as error:
        if comm.size == 1 and is_interrupt(error):
            raise
        print_error(f"rank {comm.rank} on {socket.gethostname()} failed:\n{traceback.format_exc()}")
    comm.abort(code)  # the other ranks would wait for ever
    sys.exit(code)


def set_up_logging(comm: Communicator) -> None:
    """Log to standard error: INFO from rank 0, WARNING from all.  A rank's number may change when another is lost."""
    wording = "%(levelname)s %(who)s: %(message)s"
    logging.basicConfig(level=logging.INFO, format=wording, handlers=[StandardErrorHandler()])
    for handler in logging.getLogger().handlers:
        handler.addFilter(functools.partial(is_wanted, comm))
        if is_json_wanted():
            handler.setFormatter(JsonFormatter(comm))
