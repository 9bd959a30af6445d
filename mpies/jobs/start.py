"""One start of the ranks, and what is watched while they run: hosts that come back, and ranks or mpirun that hang."""

import contextlib
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from pathlib import Path

from mpies.comm.processes import variable_of_children
from mpies.errors import UserError, counted
from mpies.jobs.answers import LOCAL_SIZE, find_incomplete
from mpies.jobs.hosts import Host
from mpies.jobs.placement import Placement, count_ranks
from mpies.jobs.progress import RunProgress

LOOK = 5.0  # seconds between two looks for hosts that have come back, and at runs that are finished
TEARDOWN = 10.0  # seconds that mpirun may take to end when no rank writes any more, or one has ended at the start


@dataclass
class Start:
    """One start of the ranks.

    hosts: None for this host alone.  began: time.time().  writer, finished: of the runs before it.
    measured: by Goal.measure before it.
    cause: why there is a start after the first one, '' for the first.  stopped_at: time.time() of the last generation
    before it.  length: of the runs when its rank 0 began to write; None before.  first_row: time.time() of its first
    generation; 0 before.  code: that the ranks ended with; None before.
    """

    hosts: list[Host] | None
    ranks: int
    began: float
    writer: str
    finished: dict[Path, tuple[int, int]]
    measured: int = 0
    cause: str = ""
    stopped_at: float = 0.0
    length: int | None = None
    first_row: float = 0.0
    code: int | None = None

    def start_up(self, generation: float) -> float:
        """Seconds before the first generation began.  generation: seconds of one."""
        return max(0.0, self.first_row - self.began - generation)

    def describe(self) -> str:
        """Its size in words."""
        nodes = f" on {counted(len(self.hosts), 'node')}" if self.hosts else ""
        return f"{counted(self.ranks, 'rank')}{nodes}"


class GrowthWatch:
    """Looks now and then, in a thread of the executor, for hosts that make a larger start worth its cost.

    growth_pays: tells whether a start on so many ranks is worth its cost; None where the job is never to grow.
    """

    def __init__(
        self,
        placement: Placement | None,
        growth_pays: Callable[[Start, int], bool] | None,
        executor: Executor,
        start: Start,
    ) -> None:
        self._placement, self._growth_pays, self._executor, self._start = placement, growth_pays, executor, start
        self._next = time.monotonic() + LOOK
        self._found: Future[list[Host]] | None = None

    def find_larger(self) -> list[Host]:
        """The hosts of a larger start that is worth its cost; [] while there is none."""
        if not (self._placement and self._growth_pays and self._start.hosts and self._start.first_row):
            return []
        if self._found is None:
            if time.monotonic() >= self._next:
                self._found = self._executor.submit(self._placement.find_larger, self._start.hosts)
            return []
        if not self._found.done():
            return []
        found, self._found = self._found, None
        self._next = time.monotonic() + LOOK
        with contextlib.suppress(UserError, OSError):
            larger = found.result()
            if larger and self._growth_pays(self._start, count_ranks(larger)):
                return larger
        return []


class StartUpWatch:
    """Tells when a rank has ended before all were connected.

    Under ULFM, mpirun leaves it to the other ranks to go on without one, but MPI_Init waits for it for ever.

    mpirun: its process number.  executor: asks the other hosts.  way, job: as for `find_incomplete`.
    """

    def __init__(self, mpirun: int, executor: Executor, start: Start, way: str, job: str) -> None:
        self._mpirun, self._executor, self._start, self._way, self._job = mpirun, executor, start, way, job
        self._next = 0.0
        self._lacking_since: float | None = None
        self._others_next = time.monotonic() + TEARDOWN
        self._answer: Future[set[str]] | None = None  # of the other hosts
        self._incomplete: set[str] = set()  # hosts on which ranks had ended at the look before

    def find_incomplete(self) -> str:
        """The host that lacked ranks for TEARDOWN seconds, so that mpirun is to be ended; '' while there is none.

        Also '' when a rank writes a run: then all were connected.
        """
        now = time.monotonic()
        if self._start.length is not None or now < self._next:
            return ""
        self._next = now + 1.0
        sizes = variable_of_children(self._mpirun, LOCAL_SIZE)
        is_lacking = len(sizes) < int(next(iter(sizes), 0))
        self._lacking_since = (self._lacking_since or now) if is_lacking else None
        if self._lacking_since is not None and now - self._lacking_since >= TEARDOWN:
            return "this host"
        return self._look_at_others(now)

    def _look_at_others(self, now: float) -> str:
        hosts = self._start.hosts or []
        if self._answer is None:
            if len(hosts) > 1 and now >= self._others_next:
                self._answer = self._executor.submit(find_incomplete, hosts, self._way, self._job)
        elif self._answer.done():
            answer, self._answer, self._others_next = self._answer.result(), None, now + TEARDOWN
            again, self._incomplete = answer & self._incomplete, answer
            return min(again, default="")
        return ""


class TeardownWatch:
    """Tells when mpirun hangs although its ranks have ended.

    Where a host is lost while the ranks end, mpirun waits for it for ever.

    is_reached_since: tells whether the ranks of a start have nothing left to do.
    """

    def __init__(self, progress: RunProgress, start: Start, is_reached_since: Callable[[Start], bool]) -> None:
        self._progress, self._start, self._is_reached_since = progress, start, is_reached_since
        self._next = 0.0
        self._idle_since: float | None = None

    def has_hung(self, is_asked: bool) -> bool:
        """Whether to end mpirun: no rank has written a run for TEARDOWN seconds, and none is to go on.

        is_asked: whether the ranks have been asked to stop.
        """
        now = time.monotonic()
        if self._start.hosts is None or self._start.length is None or now < self._next:
            return False
        self._next = now + (1.0 if is_asked else LOOK)  # a sweep may have a thousand runs, on a network's disk
        self._progress.refresh()
        is_over = not self._progress.writer() and (is_asked or self._is_reached_since(self._start))
        self._idle_since = (self._idle_since or now) if is_over else None
        return self._idle_since is not None and now - self._idle_since >= TEARDOWN
