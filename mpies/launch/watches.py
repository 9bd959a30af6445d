"""What is watched while ranks run: hosts that make a larger start worth its cost, and ranks or mpirun that hang."""

import contextlib
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Generic, TypeVar

from mpies.comm.processes import variable_of_children
from mpies.core.errors import UserError
from mpies.launch.goal import Goal, Start
from mpies.launch.hosts import Host, count_ranks
from mpies.launch.placement import LOCAL_SIZE, Placement

LOOK = 5.0  # seconds between two looks for hosts that have come back, and at runs that are finished
TEARDOWN = 10.0  # seconds that mpirun may take to end when no rank writes any more, or one has ended at the start

T = TypeVar("T")


class Question(Generic[T]):
    """Is asked again and again, in a thread of the executor.  every: seconds from an answer to the next question."""

    def __init__(self, executor: Executor, ask: Callable[[], T], every: float) -> None:
        self._executor, self._ask, self._every = executor, ask, every
        self._next = time.monotonic() + every
        self._answer: Future[T] | None = None

    def find_answer(self) -> T | None:
        """The newest answer, once; None where there is no new one.  Raises what asking has raised."""
        if self._answer is None:
            if time.monotonic() >= self._next:
                self._answer = self._executor.submit(self._ask)
        elif self._answer.done():
            answer, self._answer, self._next = self._answer, None, time.monotonic() + self._every
            return answer.result()
        return None


class GrowthWatch:
    """Looks for hosts that make a larger start worth its cost, once the first generation is on record."""

    def __init__(self, placement: Placement | None, goal: Goal, start: Start, executor: Executor) -> None:
        self._goal, self._start = goal, start
        self._question = (
            Question(executor, lambda: placement.find_larger(start.hosts or []), LOOK) if placement else None
        )

    def find_larger(self) -> list[Host]:
        """The hosts of a larger start that is worth its cost; [] while there is none."""
        if self._question and self._start.first_row:
            with contextlib.suppress(UserError, OSError):
                larger = self._question.find_answer()
                if larger and self._goal.growth_pays(self._start, count_ranks(larger)):
                    return larger
        return []


class RanksWatch:
    """Looks whether the other hosts of a start have all ranks that were started on them.

    sought: False finds hosts on which ranks have ended, None hosts that do not answer.  every: seconds.
    """

    def __init__(
        self, placement: Placement | None, start: Start, executor: Executor, sought: bool | None, every: float
    ) -> None:
        self._sought = sought
        self._question = (
            Question(executor, lambda: placement.look_for_ranks(start.hosts or []), every) if placement else None
        )
        self._before: set[str] = set()  # hosts that gave the sought answer at the look before

    def find(self) -> str:
        """A host that gave the sought answer in two looks in a row; '' while there is none."""
        if not self._question or (answers := self._question.find_answer()) is None:
            return ""
        found = {name for name, answer in answers.items() if answer is self._sought}
        again, self._before = found & self._before, found
        return min(again, default="")


class StartUpWatch:
    """Tells when a rank has ended before all were connected.

    Under ULFM, mpirun leaves it to the other ranks to go on without one, but MPI_Init waits for it for ever.

    mpirun: its process number.  others: finds other hosts on which ranks have ended.
    """

    def __init__(self, mpirun: int, start: Start, others: RanksWatch) -> None:
        self._mpirun, self._start, self._others = mpirun, start, others
        self._next = 0.0
        self._lacking_since: float | None = None

    def find_incomplete(self) -> str:
        """The host that lacked ranks for TEARDOWN seconds, so that mpirun is to be ended; '' while there is none."""
        now = time.monotonic()
        if self._start.is_writing or now < self._next:
            return ""
        self._next = now + 1.0
        sizes = variable_of_children(self._mpirun, LOCAL_SIZE)
        is_lacking = len(sizes) < int(next(iter(sizes), 0))
        self._lacking_since = (self._lacking_since or now) if is_lacking else None
        if self._lacking_since is not None and now - self._lacking_since >= TEARDOWN:
            return "this host"
        return self._others.find()


class TeardownWatch:
    """Tells when mpirun hangs although its ranks have ended, or can no longer end.

    Open MPI 5.0.11 does so now and then when all ranks have ended, and where one is killed in MPI_Finalize, the others
    wait for it there.  Where a host is lost while the ranks end, mpirun waits for it for ever.  It also notices no loss
    while the host has not acknowledged what mpirun has sent, such as the signal to stop: then TCP does not ask whether
    it is there.

    silent: finds hosts that do not answer; None looks for none.
    """

    def __init__(self, goal: Goal, start: Start, silent: RanksWatch | None = None) -> None:
        self._goal, self._start, self._silent = goal, start, silent
        self._next = 0.0
        self._idle_since: float | None = None

    def has_hung(self, is_asked: bool) -> bool:
        """Whether to end mpirun: no rank has written a run for TEARDOWN seconds, and none is to go on.

        is_asked: whether the ranks have been asked to stop; then a host that does not answer is a reason, too.
        """
        if is_asked and self._silent and self._silent.find():
            return True
        now = time.monotonic()
        if not self._start.is_writing or now < self._next:
            return False
        self._next = now + (1.0 if is_asked else LOOK)  # a sweep may have a thousand runs, on a network's disk
        self._goal.refresh()
        is_over = not self._goal.writer() and (is_asked or self._goal.is_reached_since(self._start))
        self._idle_since = (self._idle_since or now) if is_over else None
        return self._idle_since is not None and now - self._idle_since >= TEARDOWN
