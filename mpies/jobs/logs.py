"""Where the log records of a rank go: standard error as text or JSON, and the run's log.txt."""

import contextlib
import logging
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mpies.comm import Communicator
from mpies.errors import escape
from mpies.runs.metrics import Row
from mpies.runs.snapshot import Evaluation
from mpies.views.progress import Progress, describe_generation, format_entry, is_json_wanted


class StandardErrorHandler(logging.Handler):
    """Log records on standard error, wherever that leads at the moment: above a live bar while there is one."""

    def emit(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(OSError):  # nobody may read it any more
            print(escape(self.format(record)), file=sys.stderr, flush=True)


class LogFile(logging.Handler):
    """A run's log.txt, which all ranks append to.  What cannot be written is left out: a rank may not see the disk."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s rank %(rank)d: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(OSError), open(self._path, "a") as file:
            file.write(escape(self.format(record)) + "\n")


class LoggedProgress(Progress):
    """Shows generations on a Progress and appends a line of each to a LogFile."""

    def __init__(self, progress: Progress, log_file: LogFile) -> None:
        self._progress, self._log_file = progress, log_file

    def show(self, row: Row, evaluation: Evaluation | None) -> None:
        self._progress.show(row, evaluation)
        self._append(describe_generation(row, evaluation))

    def show_outcome(self, message: str, values: Mapping[str, Any]) -> None:
        """Show the last line of a run.  values: what the message says, as names and values of a JSON object."""
        print_message(message, values)
        self._append(message)

    def close(self) -> None:
        self._progress.close()

    def _append(self, message: str) -> None:
        self._log_file.emit(logging.makeLogRecord({"levelname": "INFO", "msg": message, "rank": 0}))


class JsonFormatter(logging.Formatter):
    """Log records as JSON objects like those of JsonProgress, with the rank's number.  comm: of this rank."""

    def __init__(self, comm: Communicator) -> None:
        super().__init__()
        self._comm = comm

    def format(self, record: logging.LogRecord) -> str:
        return format_entry(record.levelname, super().format(record), {"rank": self._comm.rank})


def use_json_if_wanted(comm: Communicator) -> None:
    """Where JSON is wanted, make the root logger's handlers write it.  comm: of this rank."""
    if is_json_wanted():
        for handler in logging.getLogger().handlers:
            handler.setFormatter(JsonFormatter(comm))


def print_message(message: str, values: Mapping[str, Any]) -> None:
    """Print a line on standard output.  values: what it says, as names and values of a JSON object."""
    print(format_entry("INFO", message, values) if is_json_wanted() else escape(message), flush=True)


def print_error(message: str) -> None:
    """Print on standard error why this process ends."""
    message = escape(message)
    print(format_entry("ERROR", message, {}) if is_json_wanted() else f"mpies: {message}", file=sys.stderr, flush=True)
