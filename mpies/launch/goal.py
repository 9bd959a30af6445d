"""What the ranks of a job are to finish, and how far a start of them has come, told from its runs."""

import contextlib
import os
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from mpies.core.errors import FINISHED
from mpies.core.text import counted
from mpies.launch.hosts import Host
from mpies.runs.files import parse_checked
from mpies.runs.formats.metrics import read_metrics
from mpies.runs.lock import LOCK_FILE

PAYS = 3  # how many times as long as a start took to its first generation, its ranks train before a larger start


class Goal(ABC):
    """Runs that a job is to finish, seen from outside; what is not there yet is no progress.

    list_runs: tells their directories.  runs: these, as of the last `refresh`.
    job: the name that all ranks of all starts share; the locks of the runs that they write begin with it.
    """

    def __init__(self, list_runs: Callable[[], Iterable[Path]]) -> None:
        self.job = uuid.uuid4().hex
        self._list_runs = list_runs
        self.refresh()

    @abstractmethod
    def exit_code(self, start: "Start", hosts_answer: Callable[[], bool]) -> int | None:
        """The exit code of the job when the ranks of a start have ended, or None where something is left to do.

        hosts_answer: tells whether all hosts of the start are still there.
        """

    def is_reached_since(self, start: "Start") -> bool:
        """Whether all runs have come to their ends since a start began, so that its ranks have nothing left to do."""
        return self.is_finished_since(start.finished)

    def measure(self) -> int:
        """How far the job is.  Ranks that ended unexpectedly are started again where this has grown."""
        return sum(map(_newest_generation, self.runs))  # the runs may follow one another

    def newest_generation(self) -> int:
        """The newest generation on record; 0 without one."""
        return _newest_generation(self.newest()[1])

    def needs_more_ranks(self) -> bool:
        """Whether more ranks than there are would have something to do."""
        return True

    def refresh(self) -> None:
        """Take note of runs that are new: the sampler of a sweep may have proposed some."""
        self.runs = list(self._list_runs())

    def length(self) -> int:
        """Bytes of all metrics.csv; it grows with each generation."""
        return sum(_size_and_time(run / "metrics.csv")[0] for run in self.runs)

    def finished(self) -> dict[Path, tuple[int, int]]:
        """The runs with a finished.yaml, each with the inode and the time of that file, to tell it from a later one."""
        found = {}
        for run in self.runs:
            with contextlib.suppress(OSError):
                status = (run / "finished.yaml").stat()
                found[run] = (status.st_ino, status.st_mtime_ns)
        return found

    def is_finished_since(self, before: dict[Path, tuple[int, int]]) -> bool:
        """Whether all runs have finished since `finished` returned `before`."""
        now = self.finished()
        return all(run in now and now[run] != before.get(run) for run in self.runs)

    def writer(self) -> str:
        """The token of the newest lock of a run that a rank of the job holds, or held last; '' without one.

        Other jobs may train trials of the same sweep.
        """
        newest, token = 0.0, ""
        for run in self.runs:
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                file = run / LOCK_FILE
                if (moment := file.stat().st_mtime) > newest:
                    owner = parse_checked(file.read_text())
                    if str(owner["job"]).startswith(self.job):
                        newest, token = moment, str(owner["token"])
        return token

    def newest(self) -> tuple[float, Path | None]:
        """When the newest generation came on record, as time.time(), and of which run; 0 and None before the first."""
        found = ((run, *_size_and_time(run / "metrics.csv")) for run in self.runs)
        return max(((moment, run) for run, size, moment in found if size), key=lambda one: one[0], default=(0.0, None))


class RunsFinished(Goal):
    """Runs that follow one another, each until it has a finished.yaml."""

    def __init__(self, runs: Sequence[Path]) -> None:
        super().__init__(lambda: runs)

    def exit_code(self, start: "Start", hosts_answer: Callable[[], bool]) -> int | None:
        if self.is_reached_since(start):
            return FINISHED
        # A complete run that cannot be written stays as it was.  Of lost ranks mpirun may say FINISHED as well, so the
        # hosts are asked.  That is the last condition, because it takes seconds where a host does not answer.
        is_complete = start.code == FINISHED and self.is_finished_since({})
        return FINISHED if is_complete and hosts_answer() else None


class Start:
    """One start of the ranks of a job.

    hosts: None for this host alone.  ranks: their number.
    cause: why there is a start after the first one; '' for the first.
    stopped_at: time.time() of the last generation before it.
    finished, measured: what Goal.finished and Goal.measure returned before it.
    began: time.time() when mpirun was started, the last time where it had started no rank.
    first_row: that of its first generation on record; 0 before.
    code: the exit code that the ranks ended with; None before.
    """

    def __init__(
        self, goal: Goal, hosts: list[Host] | None, ranks: int, cause: str = "", stopped_at: float = 0.0
    ) -> None:
        self.hosts, self.ranks, self.cause, self.stopped_at = hosts, ranks, cause, stopped_at
        self._goal, self._writer = goal, goal.writer()
        self.finished, self.measured = goal.finished(), goal.measure()
        self.began, self.first_row = time.time(), 0.0
        self._length: int | None = None  # Goal.length when its rank 0 began to write; None before
        self.code: int | None = None

    @property
    def is_writing(self) -> bool:
        """Whether its rank 0 has begun to write a run; then all ranks were connected."""
        return self._length is not None

    def look(self) -> bool:
        """Take note of what its ranks have written.  Returns whether its first generation has just come on record.

        What ranks of the start before may still write does not count.
        """
        goal = self._goal
        if self._length is None:
            goal.refresh()
            if goal.writer() in ("", self._writer):
                return False
            self._length = goal.length()
        if self.first_row or goal.length() <= self._length:
            return False
        self.first_row, _ = goal.newest()
        return True

    @property
    def has_paid(self) -> bool:
        """Whether its ranks have trained so long that another start costs little beside it."""
        return bool(self.first_row) and time.time() - self.first_row >= PAYS * (self.first_row - self.began)

    def size(self) -> str:
        """Its ranks and nodes in words."""
        nodes = f" on {counted(len(self.hosts), 'node')}" if self.hosts else ""
        return f"{counted(self.ranks, 'rank')}{nodes}"


def _size_and_time(path: Path) -> tuple[int, float]:
    """Bytes of a file, and the time.time() at which it was written; 0 and 0 where there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return 0, 0.0
    return status.st_size, status.st_mtime


def _newest_generation(run: Path | None) -> int:
    rows: Sequence[dict[str, str]] = read_metrics(run) if run else []
    return int(rows[-1]["generation"]) if rows else 0
