"""What follows a run beside metrics.csv: each generation once, whatever was cut off, lost or trained again."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence

from mpies.core.text import one_line
from mpies.runs.metrics import Cell

TextRow = Mapping[str, Cell]


class Tracker(ABC):
    """Gets the rows of a run's metrics.csv, those of a resumed run as well."""

    @abstractmethod
    def resume(self, rows: Sequence[TextRow]) -> None:
        """Go on behind `rows`, those of metrics.csv; write what is missing of them.  May be called again."""

    @abstractmethod
    def append(self, row: TextRow) -> None:
        """Add a row of metrics.csv."""

    def is_intact(self) -> bool:
        """Whether nobody else has removed, shortened or replaced what was written."""
        return True

    def close(self, reason: str) -> None:  # noqa: B027 (most have nothing to close)
        """Leave the run.  reason: why it has ended; '' where it goes on later."""


class Trackers(Tracker):
    """All trackers of a run.  One that fails is left out from then on, with a warning; training goes on.

    An OSError comes out, since the trackers called here write to the run directory: the caller tries again.
    """

    def __init__(self, trackers: Iterable[Tracker], warn: Callable[[str], object]) -> None:
        self._trackers, self._warn = list(trackers), warn

    def resume(self, rows: Sequence[TextRow]) -> None:
        self._each(lambda tracker: tracker.resume(rows))

    def append(self, row: TextRow) -> None:
        self._each(lambda tracker: tracker.append(row))

    def is_intact(self) -> bool:
        return all(tracker.is_intact() for tracker in self._trackers)

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
