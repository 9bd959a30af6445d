"""What is watched while ranks run: hosts that make a larger start possible, and ranks or mpirun that hang."""

import contextlib
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Generic, TypeVar

from mpies.core.errors import UserError
from mpies.launch.goal import Goal, Start
from mpies.launch.hosts import Host
from mpies.launch.placement import Placement, has_all_ranks

LOOK = 5.0  # seconds between two looks for hosts that have come back, and at runs that are finished
TEARDOWN = 10.0  # seconds that mpirun may take to end when no rank writes any more, or one has ended at the start

T = TypeVar("T")


class Question(Generic[T]):
    """Is asked again and again, in a thread of the executor."""

    def __init__(self, executor: Executor, ask: Callable[[], T]) -> None:
        self._executor, self._ask = executor, ask
        self._answered_at = time.monotonic()
        self._answer: Future[T] | None = None

    def find_answer(self, every: float) -> T | None:
        """The newest answer, once; None where there is no new one.  Raises what asking has raised.

        every: seconds from an answer to the next question.
        """
        if self._answer is None:
            if time.monotonic() >= self._answered_at + every:
                self._answer = self._executor.submit(self._ask)
        elif self._answer.done():
            answer, self._answer, self._answered_at = self._answer, None, time.monotonic()
            return answer.result()
        return None


class StartWatch:
    """Looks at the hosts, the ranks and the mpirun of a start while they run.

    placement: None where this host has all ranks.  executor: where hosts are asked.
    """

    def __init__(self, placement: Placement | None, goal: Goal, start: Start, executor: Executor) -> None:
        self._goal, self._start = goal, start
        self._larger: Question[list[Host]] | None = None
        self._ranks: Question[dict[str, bool | None]] | None = None
        if placement:
            hosts = start.hosts or []
            self._larger = Question(executor, lambda: placement.find_larger(hosts))
            self._ranks = Question(executor, lambda: placement.look_for_ranks(hosts))
        self._before: dict[bool | None, set[str]] = {}  # answer to the hosts that gave it at the look before
        self._next = 0.0  # when to look at this host and at the runs again
        self._since: dict[str, float] = {}  # what is wrong, and from when on

    def find_larger(self) -> list[Host]:
        """The hosts of a larger start that is worth its cost; [] while there is none."""
        if self._larger and self._start.has_paid:
            with contextlib.suppress(UserError, OSError):
                larger = self._larger.find_answer(LOOK)
                if larger and self._goal.needs_more_ranks():
                    return larger
        return []

    def find_incomplete(self) -> str:
        """A host on which a rank has ended before all were connected, so that mpirun is to be ended; '' without one.

        Under ULFM, mpirun leaves it to the other ranks to go on without one, but MPI_Init waits for it for ever.
        """
        if self._start.is_writing or not self._is_due(1.0):
            return ""
        if self._lasts("lacking", not has_all_ranks(self._goal.job)):
            return "this host"
        return self._find_twice(False, TEARDOWN)

    def has_hung(self, is_asked: bool) -> bool:
        """Whether to end mpirun: no rank has written a run for TEARDOWN seconds, and none is to go on.

        Open MPI 5.0.11 does so now and then when all ranks have ended, and where one is killed in MPI_Finalize, the
        others wait for it there.  Where a host is lost while the ranks end, mpirun waits for it for ever.  It also
        notices no loss while the host has not acknowledged what mpirun has sent, such as the signal to stop: then TCP
        does not ask whether it is there.

        is_asked: whether the ranks have been asked to stop; then a host that does not answer is a reason, too.
        """
        if is_asked and self._find_twice(None, 0.0):
            return True
        # A sweep may have a thousand runs, on a network's disk.
        if not self._start.is_writing or not self._is_due(1.0 if is_asked else LOOK):
            return False
        self._goal.refresh()
        return self._lasts("idle", not self._goal.writer() and (is_asked or self._goal.is_reached_since(self._start)))

    def _find_twice(self, sought: bool | None, every: float) -> str:
        """A host that gave this answer of `look_for_ranks` in two looks in a row; '' while there is none."""
        if not self._ranks or (answers := self._ranks.find_answer(every)) is None:
            return ""
        found = {name for name, answer in answers.items() if answer is sought}
        again, self._before[sought] = found & self._before.get(sought, set()), found
        return min(again, default="")

    def _is_due(self, every: float) -> bool:
        """Whether it is time for a look; the next one is due after so many seconds."""
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + every
        return True

    def _lasts(self, name: str, is_wrong: bool) -> bool:
        """Whether something has been wrong at all looks of TEARDOWN seconds."""
        if not is_wrong:
            self._since.pop(name, None)
            return False
        now = time.monotonic()
        return now - self._since.setdefault(name, now) >= TEARDOWN
