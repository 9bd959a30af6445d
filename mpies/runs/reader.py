"""Read a run directory while another process writes it: metrics as columns, config, state, log.

Nothing here writes, waits for the writer, or follows a symbolic link out of the folder it was given.
"""

import csv
import errno
import functools
import io
import math
import os
import stat
import time
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import yaml

from mpies.config.loading import parse_settings, signature_of, validate_saved
from mpies.config.schema import Config
from mpies.config.trust import find_code, trusting
from mpies.core.arrays import Float64s
from mpies.core.errors import RunError
from mpies.core.paths import absolute
from mpies.core.text import describe_value, message_of
from mpies.runs.files import open_regular, parse_checked
from mpies.runs.formats.metrics import parse_number
from mpies.runs.lock import is_alive, is_owner

# stale: the process that wrote the run died without shutting down; stopped: it shut down before the end of the run.
STATES = ("running", "stale", "stopped", "finished")

# How successive halving ends the run of a trial: for good, or until the others of its rung have ended too.
HALVED = ("dropped", "waiting")

RUN_FILES = ("metrics.csv", "ledger.bin", "checkpoints", "finished.yaml")  # beside config.yaml
OWN_FILES = ("ledger.bin", "checkpoints/generation-00000000.h5")  # names that other programs do not use

_MARK = "# crc32 "  # before the checksum of what stands above it

Columns = dict[str, Float64s]

MAX_TABLE, MAX_HEADER = 2**24, 2**13  # bytes of a table, and of its first line, that are read
MAX_SETTINGS = 2**20  # characters of a file with settings


def with_checksum(text: str) -> str:
    """A text as YAML, and behind it a comment by which `RunView.finished` sees that it is whole."""
    return f"{text}{_MARK}{zlib.crc32(text.encode()):08x}\n"


def open_inside(folder: str | Path, name: str | Path) -> BinaryIO:
    """Open a file below `folder` for reading bytes; no part of `name` may be a symbolic link, or `..`.

    Raises OSError where there is no such regular file.
    """
    parts = Path(name).parts
    if not parts or ".." in parts or Path(name).is_absolute():
        raise FileNotFoundError(f"{name!r} is no file in {folder}")
    *folders, last = parts
    here = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for part in folders:
            inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=here)
            os.close(here)
            here = inner
        file = os.open(last, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=here)  # a pipe would wait
    finally:
        os.close(here)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise FileNotFoundError(f"{name}: is not a regular file")
    return os.fdopen(file, "rb")


def require_absent(file: str, error: OSError) -> None:
    """Raise RunError where a file is there and cannot be read; a symbolic link, which is not followed, is absent."""
    if error.errno not in (None, errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
        raise RunError(f"{file}: cannot be read ({error.strerror}); try again") from None


def read_trials(sweep: "RunView") -> list[dict[str, str]]:
    """The rows of a sweep's trials.csv as text; [] where it is absent or damaged."""
    try:
        return list(csv.DictReader(sweep.text("trials.csv").splitlines(), restval=""))
    except csv.Error:
        return []


def is_run(folder: str | Path) -> bool:
    """Whether this folder has a config.yaml that is a run's, rather than one that a user wrote.

    The config of a run lists versions.  If it is damaged, the files beside it tell.
    """
    if not os.path.exists(os.path.join(folder, "config.yaml")):
        return False
    view = RunView(folder)
    if "\nversions:" in view.text("config.yaml"):
        return True
    names = OWN_FILES if view.config() else RUN_FILES
    return any(os.path.exists(os.path.join(folder, name)) for name in names)


def find_runs(folder: str | Path, depth: int = 4, until: float = math.inf) -> list[str]:
    """The run directories below `folder` (those with a config.yaml), as sorted paths relative to it.

    A folder whose config.yaml is not that of a run is one only if there are no runs below it.
    until: of time.monotonic; further folders are not looked into after it.
    """

    def look(path: str | Path, level: int) -> list[str]:
        try:
            entries = list(os.scandir(path))
        except OSError:
            return []
        has_config = any(entry.name == "config.yaml" and entry.is_file(follow_symlinks=False) for entry in entries)
        itself = [os.path.relpath(path, folder)] if has_config else []
        if level == depth or time.monotonic() > until or (has_config and is_run(path)):
            return itself
        folders = [one for one in entries if not one.name.startswith(".") and one.is_dir(follow_symlinks=False)]
        return [name for one in folders for name in look(one.path, level + 1)] or itself

    return sorted(look(folder, 0))


@functools.lru_cache(maxsize=8)
def _read_halved(folder: Path, stamp: tuple[int, int, int] | None) -> dict[tuple[str, str], str]:
    """Name and generations of each trial of a sweep that halving ended, to one of HALVED.

    stamp: of trials.csv, which is read again only where it has changed.
    """
    rows = read_trials(RunView(folder))
    return {
        (row.get("name", ""), row.get("generations", "")): row["state"] for row in rows if row.get("state") in HALVED
    }


class RunView:
    """A run directory, read only.

    folder: nothing outside it is read, but the trials.csv beside a trial.  name: path of the run relative to the
    folder; "." for the folder itself.  is_strict: a file that is there and cannot be read raises RunError, and does not
    count as absent.
    """

    def __init__(self, folder: str | Path, name: str | Path = ".", is_strict: bool = False) -> None:
        self.folder, self.name, self.is_strict = Path(folder), str(name), is_strict
        self.metrics = Metrics(self)

    def open(self, file: str) -> BinaryIO:
        """One of the run's files for reading bytes.  Raises OSError."""
        return open_inside(absolute(self.folder), Path(self.name) / file)

    def stamp(self, file: str) -> tuple[int, int, int] | None:
        """(inode, size, time of the last change) of a file, to tell whether it has changed; None where it is absent."""
        try:
            status = os.lstat(absolute(self.folder) / self.name / file)
        except OSError:
            return None
        return status.st_ino, status.st_size, status.st_mtime_ns

    def text(self, file: str) -> str:
        """The text of a small file, of a large one the first MAX_TABLE bytes; '' where it is absent."""
        try:
            with self.open(file) as opened:
                return opened.read(MAX_TABLE).decode(errors="replace")
        except OSError as error:
            if self.is_strict:
                require_absent(file, error)
            return ""

    def _mapping(self, file: str, parse: Callable[[str], Any], is_strict: bool = False) -> dict[str, Any]:
        text = self.text(file)
        try:
            values = parse(text) if len(text) <= MAX_SETTINGS else text[:40]
            if not isinstance(values, dict):
                raise ValueError(f"is {describe_value(values)} and no mapping")
            return values
        except Exception as error:  # PyYAML raises many kinds for malformed numbers and dates
            if is_strict:
                raise RunError(f"{file}: is damaged ({message_of(error)})") from None
            return {}

    def config(self, is_strict: bool = False) -> dict[str, Any]:
        """The resolved config as plain values, with `versions`; {}, or RunError, where it is absent or damaged."""
        return self._mapping("config.yaml", parse_settings, is_strict)

    def finished(self) -> dict[str, Any]:
        """reason, generation and steps of a run that has ended; {} while it has not, and where that is damaged."""

        def parse(text: str) -> Any:
            body, mark, _ = text.partition(_MARK)  # older ones have none
            return None if mark and text != with_checksum(body) else parse_settings(text)

        return self._mapping("finished.yaml", parse)

    def writer(self) -> dict[str, Any]:
        """Host, process and last heartbeat of the process that writes the run; {} where none does."""
        return self._mapping("writer.json", parse_checked)

    def ranks(self) -> dict[str, Any]:
        """`idle`: share of the time that each rank was idle; `first`, `last`: the generations it is averaged over."""
        return self._mapping("ranks.json", parse_checked)

    def state(self) -> str:
        """One of STATES."""
        owner = self.writer()
        if owner and is_owner(owner):
            return "running" if is_alive(owner) else "finished" if self.finished() else "stale"
        return "finished" if self.finished() else "stopped"

    def reason(self) -> str:
        """Why the run has ended: a stop rule, or one of HALVED; '' while it has not."""
        ending = self.finished()
        reason = str(ending.get("reason", ""))[:100]
        if reason not in ("generations", "steps"):
            return reason
        run = (absolute(self.folder) / self.name).resolve()
        halved = _read_halved(run.parent, RunView(run.parent).stamp("trials.csv"))
        return halved.get((run.name, str(ending.get("generation"))), reason)

    def status(self) -> str:
        """For people: the state, but of a run that has finished "solved" if it reached its target, or one of HALVED."""
        state = self.state()
        reason = self.reason() if state == "finished" else ""
        return reason if reason in ("solved", *HALVED) else state

    def silence(self) -> float | None:
        """Seconds since the writer's last heartbeat; None where no process writes the run."""
        owner = self.writer()
        return max(0.0, time.time() - owner["beat"]) if is_owner(owner) else None


class Metrics:
    """metrics.csv as columns of numbers, read as it grows.

    columns: names to (rows,) float64, NaN where a cell is empty.
    """

    def __init__(self, view: RunView) -> None:
        self._view = view
        self._restart()

    def _restart(self) -> None:
        self.columns: Columns = {}
        self._end, self._last = 0, b""
        self._stamp: tuple[int, int, int] | None = None

    def __len__(self) -> int:
        return len(self.columns.get("generation", ()))  # a file of another program has no such column

    def refresh(self) -> "Metrics":
        """Read the lines that were added, or all where the file was replaced.  Returns self.

        Raises RunError where the file is there and cannot be read.
        """
        stamp = self._view.stamp("metrics.csv")
        if stamp == self._stamp:
            return self
        try:
            with self._view.open("metrics.csv") as file:
                self._read_added(file)
        except OSError as error:
            require_absent("metrics.csv", error)
            self._read_added(io.BytesIO())  # it counts as empty
            stamp = None
        self._stamp = stamp
        return self

    def _read_added(self, file: BinaryIO) -> None:
        """Read the lines behind those that are known.  Raises OSError."""
        if self._end:
            file.seek(self._end - len(self._last))
            if file.read(len(self._last)) != self._last:
                self._restart()
        file.seek(self._end)
        while new := file.read(MAX_TABLE):  # their cells take far more memory
            new = new[: new.rfind(b"\n") + 1]  # what follows is half-written
            if not new:
                break
            self._add(new)
            self._end = file.seek(self._end + len(new))
            self._last = new[new.rfind(b"\n", 0, -1) + 1 :]

    def _add(self, lines: bytes) -> None:
        text = lines.decode(errors="replace")
        if not self.columns:
            head, _, text = text.partition("\n")
            head = head[:MAX_HEADER]
            self.columns = {name: np.empty(0) for name in next(csv.reader([head]), []) if name != "digest"}
            self._header = next(csv.reader([head]), [])
        cells_of = (line.split(",") for line in text.splitlines())  # no cell is quoted; twice as fast as csv.reader
        rows = [row for row in cells_of if len(row) == len(self._header)]
        for name, cells in zip(self._header, zip(*rows, strict=True), strict=False):
            if name in self.columns:
                self.columns[name] = np.concatenate([self.columns[name], _as_numbers(cells)])


def _as_numbers(cells: Sequence[str]) -> Float64s:
    """The numbers of a column, NaN for a cell that is empty or damaged."""
    try:
        return np.fromiter(map(float, cells), float, len(cells))
    except ValueError:
        return np.array([parse_number(cell) for cell in cells])


def read_run_config(run: str | Path, trained: Config | None = None) -> Config:
    """The config of a run, with keys that are newer than it at their defaults.

    trained: the config that the user trains now, whose code is trusted; None for none.
    Raises RunError where config.yaml cannot be read, or names a solver whose code is not trusted; ConfigError where it
    has keys that a config has no more.
    """
    file = Path(run) / "config.yaml"
    try:
        with open_regular(absolute(file)) as opened:
            values: dict[str, Any] = parse_settings(opened.read().decode())
        signature = signature_of(values)
        values.pop("versions", None)
    except (OSError, yaml.YAMLError, AttributeError, TypeError, ValueError) as error:
        why = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise RunError(f"{file}: cannot be read ({why}); is {run} a run?") from None
    with trusting(trained is not None and find_code(values) == find_code(trained.model_dump())):
        return validate_saved(values, signature, str(file))
