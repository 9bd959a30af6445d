"""A communicator by which all ranks learn of an exception that one of them alone has raised.

It needs nothing but the collective operations of any MPI.  Before each of them the ranks exchange whether one of them
has failed.  A rank that has raised an exception takes part in that exchange, too, wherever the others are, and so they
leave their work at the next operation instead of waiting for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from mpies.comm.communicator import Array, Communicator, RankLost
from mpies.comm.work_counter import WorkCounter


class PeerFailed(Exception):
    """Another rank has raised an exception; `Guarded.fail` tells what it was."""


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

    def is_any(self, flag: bool) -> bool:
        return self._check().is_any(flag)

    def broadcast(self, arrays: Sequence[Array] | None) -> list[Array]:
        return self._check().broadcast(arrays)

    def broadcast_rows(self, rows: Array | None, window: Array) -> None:
        self._check().broadcast_rows(rows, window)

    def allgather(self, rows: Array, numbers: Sequence[int] = ()) -> tuple[Array, npt.NDArray[np.int64]]:
        return self._check().allgather(rows, numbers)

    def gather(self, rows: Array) -> Array | None:
        return self._check().gather(rows)

    def gather_blocks(self, block: Array, bounds: npt.NDArray[np.int64]) -> Array | None:
        return self._check().gather_blocks(block, bounds)

    def allocate_shared(self, count: int, dtype: npt.DTypeLike, key: str = "noise.size") -> Array:
        return self._check().allocate_shared(count, dtype, key)

    def open_node_file(self) -> int:
        return self._check().open_node_file()

    def node_barrier(self) -> None:
        self._check().node_barrier()

    def work_counter(self, total: int, shares: Sequence[float] | None = None) -> WorkCounter:
        return self._inner.work_counter(total, shares)

    def nonblocking_barrier(self) -> Callable[[], bool]:
        """A barrier; until it is over, this rank must call no other collective operation."""
        self._barrier = self._check().nonblocking_barrier()
        return self._barrier

    def first_error(self, message: str) -> str:
        return self._check().first_error(message)

    @property
    def abandon_requested(self) -> bool:
        return self._inner.abandon_requested

    def request_abandon(self) -> None:
        self._inner.request_abandon()

    def split(self, group: int) -> Communicator:
        return self._check().split(group)

    def repair(self) -> str:
        self._barrier = None
        lost = self._inner.repair()
        self._take_numbers()
        return lost

    def abort(self, code: int) -> None:
        self._inner.abort(code)

    def close(self) -> None:
        """Nothing: the other communicator holds everything."""

    def finalize(self, code: int) -> int:
        return self._inner.finalize(code)
