"""One rank without an MPI library: every operation is the identity."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from mpies.comm.communicator import Array, Communicator
from mpies.comm.work_counter import WorkCounter, count_alone
from mpies.core.errors import NotEnoughSharedMemory


class Serial(Communicator):
    """The only rank of a job."""

    rank, size, node, nodes, node_rank, node_size, node_of = 0, 1, 0, 1, 0, 1, (0,)
    abandon_requested = False

    def broadcast(self, arrays: Sequence[Array] | None) -> list[Array]:
        assert arrays is not None
        return list(arrays)

    def broadcast_rows(self, rows: Array | None, window: Array) -> None:
        if rows is not None:
            window[: len(rows)] = rows

    def allgather(self, rows: Array, numbers: Sequence[int] = ()) -> tuple[Array, npt.NDArray[np.int64]]:
        return rows, np.array([numbers], np.int64)

    def gather(self, rows: Array) -> Array:
        return rows

    def gather_blocks(self, block: Array, bounds: npt.NDArray[np.int64]) -> Array:
        return block

    def allocate_shared(self, count: int, dtype: npt.DTypeLike, key: str = "noise.size") -> Array:
        try:
            return np.zeros(count, dtype)
        except MemoryError:
            raise NotEnoughSharedMemory(f"{count:,} numbers do not fit into memory: lower {key}") from None

    def open_node_file(self) -> int:
        return os.memfd_create("mpies")

    def node_barrier(self) -> None:
        return None

    def work_counter(self, total: int, shares: Sequence[float] | None = None) -> WorkCounter:
        return WorkCounter(0, total, count_alone())

    def nonblocking_barrier(self) -> Callable[[], bool]:
        return lambda: True

    def is_any(self, flag: bool) -> bool:
        return flag

    def first_error(self, message: str) -> str:
        return message

    def request_abandon(self) -> None:
        self.abandon_requested = True

    def split(self, group: int) -> Serial:
        return Serial()

    def repair(self) -> str:
        raise AssertionError("a single rank has no other to lose")

    def abort(self, code: int) -> None:
        sys.exit(code)

    def close(self) -> None:
        return None

    def finalize(self, code: int) -> int:
        return code
