"""One start of the ranks, and what is watched while they run: hosts that come back, and ranks or mpirun that hang."""

import contextlib
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from pathlib import Path

from mpies.comm.processes import variable_of_children
from mpies.core.errors import UserError
from mpies.core.text import counted
from mpies.launch.answers import LOCAL_SIZE, look_for_ranks
from mpies.launch.hosts import Host, count_ranks
from mpies.launch.placement import Placement
from mpies.launch.run_progress import RunProgress

LOOK = 5.0  # seconds between two looks for hosts that have come back, and at runs that are finished
TEARDOWN = 10.0  # seconds that mpirun may take to end when no rank writes any more, or one has ended at the start


@dataclass
class Start:
    """One start of the ranks.

    hosts: None for this host alone.  ranks: their number.  began: time.time() when it began.
    writer, finished, measured: what RunProgress.writer, RunProgress.finished and Goal.measure returned before it.
    cause: why there is a start after the first one; '' for the first.
    stopped_at: time.time() of the last generation before it.
    length: RunProgress.length when its rank 0 began to write; None before.
    first_row: time.time() of its first generation; 0 before.
    code: the exit code that the ranks ended with; None before.
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


class RanksLook:
    """Looks at the ranks on the other hosts of a start now and then, in a thread of the executor.

    way: how the hosts are asked, ssh or srun.  job: the name that all ranks of the job share.
    sought: False finds hosts on which ranks have ended, None hosts that do not answer.  every: seconds.
    """

    def __init__(self, executor: Executor, start: Start, way: str, job: str, sought: bool | None, every: float) -> None:
        self._executor, self._start, self._way, self._job = executor, start, way, job
        self._sought, self._every = sought, every
        self._next = time.monotonic() + every
        self._answers: Future[dict[str, bool | None]] | None = None
        self._before: set[str] = set()  # hosts that gave the answer at the look before

    def find(self) -> str:
        """A host that gave the answer in two looks in a row; '' while there is none."""
        now, hosts = time.monotonic(), self._start.hosts or []
        if self._answers is None:
            if hosts and now >= self._next:
                self._answers = self._executor.submit(look_for_ranks, hosts, self._way, self._job)
        elif self._answers.done():
            answers, self._answers, self._next = self._answers.result(), None, now + self._every
            found = {name for name, answer in answers.items() if answer is self._sought}
            again, self._before = found & self._before, found
            return min(again, default="")
        return ""


class StartUpWatch:
    """Tells when a rank has ended before all were connected.

    Under ULFM, mpirun leaves it to the other ranks to go on without one, but MPI_Init waits for it for ever.

    mpirun: its process number.  look: finds hosts on which ranks have ended.
    """

    def __init__(self, mpirun: int, start: Start, look: RanksLook) -> None:
        self._mpirun, self._start, self._look = mpirun, start, look
        self._next = 0.0
        self._lacking_since: float | None = None

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
        return self._look.find()


class TeardownWatch:
    """Tells when mpirun hangs although its ranks have ended, or can no longer end.

    Where a host is lost while the ranks end, mpirun waits for it for ever.  It also notices no loss while the host has
    not acknowledged what mpirun has sent, such as the signal to stop: then TCP does not ask whether it is there.

    is_reached_since: tells whether the ranks of a start have nothing left to do.
    look: finds hosts that do not answer; None asks none.
    """

    def __init__(
        self,
        progress: RunProgress,
        start: Start,
        is_reached_since: Callable[[Start], bool],
        look: RanksLook | None = None,
    ) -> None:
        self._progress, self._start, self._is_reached_since, self._look = progress, start, is_reached_since, look
        self._next = 0.0
        self._idle_since: float | None = None

    def has_hung(self, is_asked: bool) -> bool:
        """Whether to end mpirun: no rank has written a run for TEARDOWN seconds, and none is to go on.

        is_asked: whether the ranks have been asked to stop; then a host that does not answer is a reason, too.
        """
        if is_asked and self._look and self._look.find():
            return True
        now = time.monotonic()
        if self._start.hosts is None or self._start.length is None or now < self._next:
            return False
        self._next = now + (1.0 if is_asked else LOOK)  # a sweep may have a thousand runs, on a network's disk
        self._progress.refresh()
        is_over = not self._progress.writer() and (is_asked or self._is_reached_since(self._start))
        self._idle_since = (self._idle_since or now) if is_over else None
        return self._idle_since is not None and now - self._idle_since >= TEARDOWN
