"""A communicator by which all ranks learn of an exception that one of them alone has raised.

It needs nothing but the collective operations of any MPI.  Before each of them the ranks exchange whether one of them
has failed.  A rank that has raised an exception takes part in that exchange, too, wherever the others are, and so they
leave their work at the next operation instead of waiting for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

from mpies.comm.communicator import Communicator, RankLost

P = ParamSpec("P")
T = TypeVar("T")


class PeerFailed(Exception):
    """Another rank has raised an exception; `Guarded.fail` tells what it was."""


def _passed_on(
    method: Callable[Concatenate[Communicator, P], T], is_checked: bool = True
) -> Callable[Concatenate[Guarded, P], T]:
    """The method of the other communicator.  is_checked: where a rank has failed it raises PeerFailed."""

    def call(self: Guarded, *args: P.args, **kwargs: P.kwargs) -> T:
        found: T = getattr(self._check() if is_checked else self._inner, method.__name__)(*args, **kwargs)
        return found

    return call


class Guarded(Communicator):
    """The ranks of another communicator, in whose place it is used until one of them fails.

    When a rank has called `fail`, the next operation of each other rank raises PeerFailed, and they call it, too.  From
    then on neither this object nor the other communicator can be used, as its ranks may have made different numbers of
    work counters.  The other one can be split and closed.
    """

    def __init__(self, inner: Communicator) -> None:
        self._inner = inner
        self._barrier: Callable[[], bool] | None = None  # the newest, which this rank may not have waited for yet
        self._failure: str | None = None  # what all ranks have agreed on
        self._take_numbers()

    def fail(self, message: str) -> str:
        """Leave what all ranks are doing, because this one has raised an exception.  Every rank calls it in the end.

        message: what has happened, '' where nothing is to be told.  Returns the message of the lowest rank that has one
        at this moment.  Ranks that are lost meanwhile are not waited for.
        """
        if self._failure is None:
            self._inner.request_abandon()  # other ranks of this node need not play to the end
        while self._failure is None:
            try:
                while self._barrier and not self._barrier():  # the others are in it, or come to it next
                    time.sleep(0)
                self._inner.is_any(True)
                self._failure = self._inner.first_error(message)
            except RankLost:
                self.repair()
        return self._failure

    @property
    def has_failed(self) -> bool:
        """Whether a rank has called `fail`, as far as this one knows."""
        return self._failure is not None

    def _check(self) -> Communicator:
        """The other communicator, when no rank has failed.  Raises PeerFailed."""
        if self._failure is None and self._inner.is_any(False):
            self._failure = self._inner.first_error("")
        if self._failure is not None:
            raise PeerFailed(self._failure)
        return self._inner

    def _take_numbers(self) -> None:
        inner = self._inner
        self.rank, self.size, self.node, self.nodes = inner.rank, inner.size, inner.node, inner.nodes
        self.node_rank, self.node_size, self.node_of = inner.node_rank, inner.node_size, inner.node_of

    is_any = _passed_on(Communicator.is_any)
    first_error = _passed_on(Communicator.first_error)
    broadcast = _passed_on(Communicator.broadcast)
    broadcast_rows = _passed_on(Communicator.broadcast_rows)
    allgather = _passed_on(Communicator.allgather)
    gather = _passed_on(Communicator.gather)
    gather_blocks = _passed_on(Communicator.gather_blocks)
    allocate_shared = _passed_on(Communicator.allocate_shared)
    open_node_file = _passed_on(Communicator.open_node_file)
    node_barrier = _passed_on(Communicator.node_barrier)
    split = _passed_on(Communicator.split)
    work_counter = _passed_on(Communicator.work_counter, is_checked=False)
    request_abandon = _passed_on(Communicator.request_abandon, is_checked=False)
    abort = _passed_on(Communicator.abort, is_checked=False)
    finalize = _passed_on(Communicator.finalize, is_checked=False)

    def nonblocking_barrier(self) -> Callable[[], bool]:
        """A barrier; until it is over, this rank must call no other collective operation."""
        self._barrier = self._check().nonblocking_barrier()
        return self._barrier

    @property
    def abandon_requested(self) -> bool:
        return self._inner.abandon_requested

    def repair(self) -> str:
        self._barrier = None
        lost = self._inner.repair()
        self._take_numbers()
        return lost

    def close(self) -> None:
        """Nothing: the other communicator holds everything."""
