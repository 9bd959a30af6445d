"""Stand-ins for what a benchmark leaves out: returns that are made up, and work that is divided beforehand."""

import time
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from mpies.comm import Communicator
from mpies.comm.work_counter import WorkCounter, count_alone
from mpies.rollouts.batch import RolloutBatch
from mpies.rollouts.queue import RolloutQueue

NAP = 0.05  # seconds that a MadeUpPlayer sleeps; in this time rank 0 writes the generation before


class MadeUpPlayer:
    """A Player that plays nothing: each rank writes the parameters of an equal share of the rollouts.

    The return of a rollout is a function of its number.
    """

    def __init__(self, comm: Communicator, dimension: int) -> None:
        self.comm = comm
        self.parameters = np.empty(dimension, np.float32)

    def play(
        self,
        queues: Sequence[RolloutQueue],
        ranks: int = 1,
        prefetch: RolloutQueue | None = None,
        others_are_done: Callable[[], bool] = lambda: True,
        must_abandon: Callable[[], bool] = lambda: False,
    ) -> None:
        time.sleep(NAP)
        self.comm.node_barrier()  # a rank that slept longer must not make the others wait in what is measured
        for queue in queues:
            rollouts = queue.pending[self.comm.rank :: self.comm.size]
            # Multiplication by an odd number is a permutation modulo 2**32, so no two returns are equal.
            queue.results["total"][rollouts] = -(rollouts * 2654435761 % 2**32).astype(np.float64)
            queue.results["steps"][rollouts] = 1
            queue.is_finished[rollouts] = True
            self.write_members(queue.batch, rollouts)

    def write_members(self, batch: RolloutBatch, rollouts: npt.NDArray[np.int64]) -> None:
        """Write the parameters of each rollout's member, as it must be done before it can be played."""
        for rollout in rollouts.tolist():
            batch.parameters.write(rollout, self.parameters)

    def drop(self) -> None:
        """Nothing is ever unfinished."""


def equal_shares(comm: Communicator) -> Callable[[int], WorkCounter]:
    """In place of comm.work_counter: each rank has an equal share of the work, which no other may take."""

    def work_counter(total: int) -> WorkCounter:
        start, stop = (total * (comm.rank + i) // comm.size for i in (0, 1))
        return WorkCounter(start, stop, count_alone())

    return work_counter
