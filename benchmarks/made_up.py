"""Stand-ins for what a benchmark leaves out: made-up returns, work divided beforehand, nodes on one machine."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from mpies.comm import Communicator
from mpies.comm.mpi import MPICommunicator
from mpies.comm.work_counter import WorkCounter, count_alone
from mpies.launch.forecast.bench import IdlePlayer
from mpies.rollouts.batch import RolloutBatch
from mpies.rollouts.queue import ALONE, PlayingRanks, RolloutQueue


class MadeUpPlayer(IdlePlayer):
    """An IdlePlayer that writes the parameters of the rollouts whose returns it makes up."""

    def __init__(self, comm: Communicator, dimension: int) -> None:
        super().__init__(comm)
        self.parameters = np.empty(dimension, np.float32)

    def play(
        self, queues: Sequence[RolloutQueue], prefetch: RolloutQueue | None = None, ranks: PlayingRanks = ALONE
    ) -> None:
        super().play(queues, prefetch, ranks)
        for queue in queues:
            self.write_members(queue.batch, queue.pending[self.comm.rank :: self.comm.size])

    def write_members(self, batch: RolloutBatch, rollouts: npt.NDArray[np.int64]) -> None:
        """Write the parameters of each rollout's member, as it must be done before it can be played."""
        for rollout in rollouts.tolist():
            batch.write(rollout, self.parameters)


def make_nodes(count: int) -> Communicator:
    """All ranks as those of `count` nodes; each node has neighbouring ones."""
    from mpi4py import MPI

    class Nodes(MPI.Intracomm):
        def Split_type(self, *_: Any, **__: Any) -> MPI.Intracomm:  # noqa: N802
            return self.Split(self.rank * count // self.size, key=self.rank)

    return MPICommunicator(Nodes(MPI.COMM_WORLD))


def equal_shares(comm: Communicator) -> Callable[[int], WorkCounter]:
    """In place of comm.work_counter: each rank has an equal share of the work, which no other may take."""

    def work_counter(total: int, shares: Sequence[float] | None = None) -> WorkCounter:
        start, stop = (total * (comm.rank + i) // comm.size for i in (0, 1))
        return WorkCounter(start, stop, count_alone())

    return work_counter
