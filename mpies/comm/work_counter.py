"""Dynamic load balancing inside a node: ranks take the next pieces of work from a shared counter.

A counter lives in the node's memory and a lock of the kernel guards it.  So taking work needs no progress of any
other process; a counter on another node would (over TCP it stalls for seconds).
"""

import fcntl
import mmap
import os
import tempfile
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

SLOTS = 1024  # counters of a node: the newest half may be in use; the older half is recycled


class WorkCounter:
    """Hands out the numbers start .. stop-1 in ranges, each number once.

    add: adds to the shared count and returns what it was before.
    """

    def __init__(self, start: int, stop: int, add: Callable[[int], int]) -> None:
        self._start, self._stop, self._add = start, stop, add
        self._left, self._has_taken = stop - start, False

    @property
    def left(self) -> int:
        """How many numbers are free now.

        Before this rank's first `take` all count as free, so that a rank that comes late begins with as many rollouts
        as the others did.
        """
        if self._left and self._has_taken:
            self.take(0)
        return self._left

    def take(self, count: int) -> range:
        """The next free range of at most `count` numbers; empty when all are taken."""
        low = min(self._start + self._add(count), self._stop)
        high = min(low + count, self._stop)
        self._left, self._has_taken = self._stop - high, True
        return range(low, high)


def divide(total: int, shares: Sequence[float]) -> list[int]:
    """Where each node's part of 0 .. total-1 begins, and where the last one ends.

    shares: of each node, in any unit.  Additions in this order give the same on processors of all kinds.
    """
    before = list(accumulate(shares, initial=0))
    return [*(int(total * part / before[-1]) for part in before[:-1]), total]


def count_alone() -> Callable[[int], int]:
    """An `add` for a WorkCounter that one process has for itself."""
    total = 0

    def add(count: int) -> int:
        nonlocal total
        total += count
        return total - count

    return add


def open_node_file(node: Any, size: int) -> int:
    """The descriptor of a file of `size` zeros in memory, which has no name, and that all ranks of the node open.

    node: the mpi4py communicator of the node's ranks; all of them call this.
    """
    path = _make_file(size) if node.rank == 0 else ""
    try:
        path = node.bcast(path)
        file = os.open(path, os.O_RDWR)
        node.Barrier()
    finally:
        if node.rank == 0:
            os.unlink(path)
    return file


def _make_file(size: int) -> str:
    """The path of a new file of `size` zeros: in memory, or where that is full, in the folder of temporary files."""
    try:
        return _make_file_in("/dev/shm", size)
    except OSError:
        return _make_file_in(tempfile.gettempdir(), size)


def _make_file_in(folder: str, size: int) -> str:
    descriptor, path = tempfile.mkstemp(prefix="mpies-node-", dir=folder)
    try:
        with open(descriptor, "wb") as file:
            file.write(bytes(size))
    except OSError:
        os.unlink(path)
        raise
    return path


class NodeCounters:
    """SLOTS counters and a flag in memory that all ranks of a node map; every rank of the node constructs one.

    The kernel frees a lock whose holder dies.  node: the mpi4py communicator of the node's ranks.
    """

    def __init__(self, node: Any) -> None:
        self._file = open_node_file(node, 8 * (SLOTS + 1))
        self._memory = mmap.mmap(self._file, 8 * (SLOTS + 1))
        self._numbers = np.frombuffer(self._memory, np.int64)

    def add(self, slot: int, count: int) -> int:
        """Add to the counter in `slot`; returns what it was before."""
        fcntl.lockf(self._file, fcntl.LOCK_EX, 8, 8 * slot)
        before = int(self._numbers[slot])
        self._numbers[slot] = before + count
        fcntl.lockf(self._file, fcntl.LOCK_UN, 8, 8 * slot)
        return before

    def reset(self, slot: int) -> None:
        """Set a counter to zero; no rank may be using it."""
        self._numbers[slot] = 0

    @property
    def flag(self) -> bool:
        """Whether a rank of this node has called `raise_flag`."""
        return self._memory[8 * SLOTS] != 0

    def raise_flag(self) -> None:
        self._memory[8 * SLOTS] = 1

    def close(self) -> None:
        os.close(self._file)
