"""The operations by which ranks exchange data.  `Serial` and `MPICommunicator` implement them all.

The supervisor imports this module, and does without NumPy.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from mpies.comm.work_counter import WorkCounter

# Variables that a process manager sets for its ranks: Open MPI, PMIx, PMI (MPICH, srun).
LAUNCHED = ("OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_SIZE")
ROOT = 0

Array: TypeAlias = "npt.NDArray[Any]"


def is_launched() -> bool:
    """Whether a process manager has started this process as one of its ranks."""
    return any(name in os.environ for name in LAUNCHED)


class RankLost(Exception):
    """A rank has died; all others must call `repair` and go on without it."""


class Communicator(ABC):
    """The ranks of a job.  Every method is collective unless it says otherwise: all ranks must call it.

    rank, size: this rank and how many there are.  node, nodes: this rank's node and how many there are.
    node_rank, node_size: likewise among the ranks of this node.  node_of: the node of each rank.
    Methods raise RankLost where a rank has died and the MPI can survive that.
    """

    rank: int
    size: int
    node: int
    nodes: int
    node_rank: int
    node_size: int
    node_of: Sequence[int]

    @property
    def is_root(self) -> bool:
        """Whether this is rank 0, which runs the solver and writes the run."""
        return self.rank == ROOT

    @abstractmethod
    def broadcast(self, arrays: Sequence[Array] | None) -> list[Array]:
        """Rank 0's vectors (1 to 15) on every rank; the argument of other ranks is ignored."""

    def broadcast_int(self, number: int | None) -> int:
        """Rank 0's whole number on every rank; None counts as 0."""
        import numpy as np

        return int(self.broadcast([np.array([number or 0], np.int64)])[0][0])

    @abstractmethod
    def broadcast_rows(self, rows: Array | None, window: Array) -> None:
        """Copy rank 0's (r, d) rows into the first r of the (>= r, d) `window`, once on every node.

        None leaves the window as it is.  A collective operation must separate this call from the last read of the
        window.
        """

    @abstractmethod
    def allgather(self, rows: Array, numbers: Sequence[int] = ()) -> tuple[Array, npt.NDArray[np.int64]]:
        """The `rows` (any count) of all ranks in rank order, and their `numbers` as (ranks, k) int64."""

    @abstractmethod
    def gather(self, rows: Array) -> Array | None:
        """The `rows` (any count) of all ranks, in rank order, on rank 0; None elsewhere."""

    @abstractmethod
    def gather_blocks(self, block: Array, bounds: npt.NDArray[np.int64]) -> Array | None:
        """The (orders, d) array on rank 0 from each rank's (orders, bounds[rank + 1] - bounds[rank]); None elsewhere.

        bounds: (ranks + 1,) coordinates.
        """

    @abstractmethod
    def allocate_shared(self, count: int, dtype: npt.DTypeLike, key: str = "noise.size") -> Array:
        """A vector (count,) in memory that all ranks of a node share as long as one of them has it.

        It begins with zeros.  key: of the config, to be lowered where the memory does not suffice.
        Raises NotEnoughSharedMemory.
        """

    @abstractmethod
    def open_node_file(self) -> int:
        """The descriptor of an empty file in memory, which has no name, and that all ranks of this node have opened.

        Its memory is free again when all have closed it, or have died.
        """

    @abstractmethod
    def node_barrier(self) -> None:
        """Wait for the ranks of this node."""

    @abstractmethod
    def work_counter(self, total: int, shares: Sequence[float] | None = None) -> WorkCounter:
        """A counter that hands out 0 .. total-1 among the ranks.

        shares: what each node gets of them, in any unit, the same on all ranks; None goes by their numbers of ranks.
        Counters are recycled.  No rank may still use a counter that was made SLOTS / 2 calls ago (of
        mpies.comm.work_counter), so a collective operation must separate the two.
        """

    @abstractmethod
    def nonblocking_barrier(self) -> Callable[[], bool]:
        """A barrier that this rank may enter and go on working: tells whether all ranks have entered it.

        The first call enters this rank, and each rank must call it until it is over.
        """

    @abstractmethod
    def is_any(self, flag: bool) -> bool:
        """Whether the flag is set on any rank."""

    @abstractmethod
    def first_error(self, message: str) -> str:
        """The message of the lowest rank that has one; '' when none has."""

    @property
    @abstractmethod
    def abandon_requested(self) -> bool:
        """Whether a rank of this node has called `request_abandon`.  Not collective."""

    @abstractmethod
    def request_abandon(self) -> None:
        """Ask all ranks of this node to stop playing at once.  Not collective."""

    @abstractmethod
    def split(self, group: int) -> Communicator:
        """A communicator of those ranks that give the same number, in their order.

        When it loses a rank, the other communicators of the split do not notice.
        """

    @abstractmethod
    def repair(self) -> str:
        """After RankLost: go on with the ranks that are left, renumbered.

        Returns who was lost, in words; '' where all ranks are alive.  Raises RuntimeError the third time in a row that
        nobody was lost.
        """

    @abstractmethod
    def abort(self, code: int) -> None:
        """End all ranks at once with this exit code.  Not collective."""

    @abstractmethod
    def close(self) -> None:
        """Free all that this object holds, in a process that goes on."""

    @abstractmethod
    def finalize(self, code: int) -> int:
        """End this rank's part of the job.  Returns its exit code."""
