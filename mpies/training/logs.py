"""Where the log records of a rank go: standard error as text or JSON, and the run's log.txt."""

import contextlib
import functools
import json
import logging
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mpies.comm import Communicator
from mpies.core.text import escape
from mpies.core.threads import TRACKING
from mpies.runs.files import no_link


def is_json_wanted() -> bool:
    """Whether MPIES_LOG asks for JSON.  It is no config key: the log's format depends on where a run is executed."""
    return os.environ.get("MPIES_LOG") == "json"


def format_entry(severity: str, message: str, values: Mapping[str, Any]) -> str:
    """A line of JSON.  Google Cloud Logging reads its keys `severity` and `message`."""
    return json.dumps({"severity": severity, "message": message, **values}, default=float)


class StandardErrorHandler(logging.Handler):
    """Log records on standard error, wherever that leads at the moment: above a live bar while there is one."""

    def emit(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(OSError):  # nobody may read it any more
            print(escape(self.format(record)), file=sys.stderr, flush=True)


def is_wanted(comm: Communicator, record: logging.LogRecord) -> bool:
    """Whether to log the record: INFO from rank 0, WARNING from all.  Notes in it which rank this is.

    What the package of a tracker logs in the tracker's thread is left out: where it fails, mpies warns once.

    comm: of this rank, whose number may change when another is lost.
    """
    record.who = f"rank {comm.rank}"
    if record.threadName == TRACKING and not record.name.startswith("mpies."):
        return False
    return record.levelno >= (logging.INFO if comm.is_root else logging.WARNING)


class LogFile(logging.Handler):
    """A run's log.txt, which all ranks append to.  What cannot be written is left out: a rank may not see the disk."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(who)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(OSError), open(self.path, "a", encoding="utf-8", opener=no_link) as file:
            file.write(escape(self.format(record)) + "\n")

    def append(self, message: str, severity: str = "INFO", who: str = "rank 0") -> None:
        """Append what is shown elsewhere than in the log.  who: has said it."""
        self.emit(logging.makeLogRecord({"levelname": severity, "msg": message, "who": who}))


@contextlib.contextmanager
def log_to(comm: Communicator, handler: logging.Handler) -> Iterator[None]:
    """In the `with` block the root logger has this handler, too.  comm: of this rank."""
    handler.addFilter(functools.partial(is_wanted, comm))
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)


@contextlib.contextmanager
def output_may_fail() -> Iterator[None]:
    """In the `with` block it is no error that standard output cannot be written; from then on it leads nowhere.

    Nobody may read it any more, its disk may be full, or a user's code has closed or replaced it.
    """
    try:
        yield
    except (OSError, ValueError, AttributeError):
        nowhere = open(os.devnull, "w")  # noqa: SIM115
        try:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
        except (OSError, ValueError, AttributeError):
            sys.stdout = nowhere


class JsonFormatter(logging.Formatter):
    """Log records as JSON objects like those of LineProgress, with the rank's number.  comm: of this rank."""

    def __init__(self, comm: Communicator) -> None:
        super().__init__()
        self._comm = comm

    def format(self, record: logging.LogRecord) -> str:
        return format_entry(record.levelname, super().format(record), {"rank": self._comm.rank})


def print_error(message: str, error: Exception | None = None) -> None:
    """Print on standard error why this process ends.  error: a user's mistake; a line of JSON names its class."""
    message, values = escape(message), {"error": type(error).__name__} if error else {}
    line = format_entry("ERROR", message, values) if is_json_wanted() else f"mpies: {message}"
    with contextlib.suppress(OSError):  # its disk may be full, and the caller still has all ranks to end
        print(line + "\n", end="", file=sys.stderr, flush=True)  # in one piece: what mpirun prints must not follow it


def report_of_supervisor(severity: str, message: str, run: Path | None) -> None:
    """Print what a supervisor has to say on standard error, and append it to the log.txt of a run that is there."""
    message = escape(message)
    line = format_entry(severity, message, {}) if is_json_wanted() else f"{severity} supervisor: {message}"
    with contextlib.suppress(OSError):
        print(line, file=sys.stderr, flush=True)
    if run and run.is_dir():
        LogFile(run / "log.txt").append(message, severity, "supervisor")
