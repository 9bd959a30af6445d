"""What follows a run beside metrics.csv: each generation once, whatever was cut off, lost or trained again."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from mpies.core.text import one_line
from mpies.runs.files import AppendOnlyFile, Warn
from mpies.runs.formats.metrics import Row


class Tracker(ABC):
    """Gets the rows of a run's metrics.csv, those of a resumed run as well."""

    @abstractmethod
    def resume(self, rows: Sequence[Row]) -> None:
        """Go on behind `rows`, those of metrics.csv; write what is missing of them.  Called again after an OSError."""

    @abstractmethod
    def append(self, row: Row) -> None:
        """Add a row of metrics.csv."""

    def close(self, reason: str) -> None:  # noqa: B027 (most have nothing to close)
        """Leave the run.  reason: why it has ended; '' where it goes on later."""


class RowFile(Tracker):
    """A file in the run directory that has a record for each row.  What it lacks is written when a run is resumed."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @abstractmethod
    def encode(self, row: Row, previous: Row) -> bytes:
        """The record of a row, the same whenever it is asked for.

        previous: the row before it; {} for the first one.
        """

    def begin(self, present: bytes) -> bytes:
        """What stands before the first record.  present: content of the file."""
        return b""

    def resume(self, rows: Sequence[Row]) -> None:
        present = self._path.read_bytes() if self._path.exists() else b""
        content = self.begin(present) + b"".join(map(self.encode, rows, [{}, *rows]))
        pairs = enumerate(zip(content, present, strict=False))  # who follows the file need not read it again
        kept = next((place for place, (new, old) in pairs if new != old), min(len(content), len(present)))
        self._file = AppendOnlyFile(self._path, kept)
        self._file.append(content[kept:])
        self._previous: Row = rows[-1] if rows else {}

    def append(self, row: Row) -> None:
        self._file.append(self.encode(row, self._previous), key=str(row["generation"]))
        self._previous = row


class Trackers(Tracker):
    """All trackers of a run.  One that fails is left out from then on, with a warning; training goes on.

    An OSError comes out, since the trackers called here write to the run directory: the caller tries again.
    """

    def __init__(self, trackers: Iterable[Tracker], warn: Warn) -> None:
        self._trackers, self._warn = list(trackers), warn

    def resume(self, rows: Sequence[Row]) -> None:
        self._each(lambda tracker: tracker.resume(rows))

    def append(self, row: Row) -> None:
        self._each(lambda tracker: tracker.append(row))

    def close(self, reason: str) -> None:
        """Leave the run.  Called again, it does nothing."""
        self._each(lambda tracker: tracker.close(reason))
        self._trackers = []

    def _each(self, call: Callable[[Tracker], None]) -> None:
        for tracker in list(self._trackers):
            try:
                call(tracker)
            except OSError:
                raise
            except Exception as error:
                self._trackers.remove(tracker)
                name = type(tracker).__name__
                self._warn(f"{name} failed ({type(error).__name__}: {one_line(error)}); training continues without it")
