"""After the loss of a rank: the others go on, and nothing that they have finished is played again.

Everything that knows of lost ranks is here, but for the one place where the loop catches RankLost.
"""

import logging
import time

import numpy as np

from mpies.comm import Communicator
from mpies.core.text import counted
from mpies.rollouts.batch import RolloutBatch
from mpies.rollouts.node_speeds import NodeSpeeds
from mpies.rollouts.queue import RolloutQueue
from mpies.training.evaluation.generation import QueueKey

log = logging.getLogger(__name__)


def go_on_without_the_lost(comm: Communicator) -> None:
    """Make a communicator of the ranks that are left, and log on rank 0 who was lost."""
    began = time.perf_counter()
    lost = comm.repair()
    if comm.is_root:
        what = f"lost {lost}" if lost else "MPI reported a failure, but no rank was lost"
        seconds = time.perf_counter() - began
        log.warning("%s; training continues on %s after %.3f s", what, counted(comm.size, "rank"), seconds)


class OpenQueues(dict[QueueKey, RolloutQueue]):
    """The queues of the generations in flight on this rank, and what they held when another rank was lost.

    speeds: of the nodes that are left.
    """

    def __init__(self, comm: Communicator) -> None:
        super().__init__()
        self._comm, self.speeds = comm, NodeSpeeds()
        self._kept: dict[QueueKey, RolloutQueue] = {}  # from before the loss; their results are not played again
        self._is_recovering = False  # whether a rank was lost since the last generation was recorded

    def open(self, key: QueueKey, batch: RolloutBatch) -> RolloutQueue:
        """Open a queue of this batch.  Collective.  After a loss, only what no rank has finished is handed out."""
        queue = self._kept.get(key) or RolloutQueue(batch)
        pending = np.arange(len(batch))
        if self._is_recovering:
            finished, _ = self._comm.allgather(np.flatnonzero(queue.is_finished))
            pending = np.setdiff1d(pending, finished)
        queue.reopen(pending, self._comm.work_counter(len(pending), self.speeds.shares(len(pending))))
        self[key] = queue
        self._kept.pop(key, None)  # not before: another rank may be lost in the allgather
        return queue

    def close_before(self, generation: int) -> None:
        """Forget the queues of earlier generations."""
        for key in [key for key in self if key.generation < generation]:
            del self[key]

    def keep_finished(self) -> None:
        """Keep what this rank has played, because another rank was lost."""
        self._is_recovering, self.speeds = True, NodeSpeeds()
        self._kept |= self
        self.clear()

    def forget_kept(self) -> None:
        """The generation is recorded, which ends a recovery.  What was kept of later generations is dropped."""
        self._is_recovering, self._kept = False, {}
