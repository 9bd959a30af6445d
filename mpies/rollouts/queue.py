"""Rollouts that ranks share out, and the results of those that were played on this rank."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from mpies.comm import Communicator
from mpies.comm.work_counter import WorkCounter, count_alone
from mpies.core.arrays import Array, Int64s
from mpies.rollouts.batch import RolloutBatch, observation_record, rollout_record


class RolloutQueue:
    """A RolloutBatch on its way from the shared counter to the results.

    pending: (t,) rollouts that the counter hands out; its number k stands for rollout pending[k].
    results: (r,) records as of `rollout_record`; those of `is_finished` hold.
    is_finished: (r,) bool, the rollouts that were played on this rank.
    failures: rollout to the message of what went wrong in it.
    in_flight: how many rollouts this rank has taken and not finished.
    """

    def __init__(self, batch: RolloutBatch, pending: Int64s | None = None, counter: WorkCounter | None = None) -> None:
        self.batch = batch
        self.results = np.zeros(len(batch), rollout_record(batch.payload_size, batch.behaviour_size))
        self.results["rollout"] = batch.first + np.arange(len(batch))
        self.is_finished = np.zeros(len(batch), bool)
        self.failures: dict[int, str] = {}
        self.observed: list[tuple[Any, ...]] = []  # as of `observation_record`
        self.in_flight = 0
        self.reopen(np.arange(len(batch)) if pending is None else pending, counter)

    def reopen(self, pending: Int64s, counter: WorkCounter | None = None) -> None:
        """Hand out these rollouts from now on.  counter: of 0 .. t-1; None for one that this rank has for itself."""
        self.pending = pending
        self.counter = counter or WorkCounter(0, len(pending), count_alone())

    @property
    def is_exhausted(self) -> bool:
        """Whether this rank has nothing left to do for it."""
        return not self.in_flight and not self.counter.left

    def take(self, count: int) -> Int64s:
        """The next rollouts for this rank, at most `count`; none when all are taken."""
        taken = self.counter.take(count)
        self.in_flight += len(taken)
        return self.pending[taken.start : taken.stop]

    def finish(self, rollout: int, total: float, signs: float, steps: int) -> None:
        """Store the result of a rollout.  total: NaN where it failed."""
        result = self.results[rollout]
        result["total"], result["signs"], result["steps"] = total, signs, steps
        self.is_finished[rollout] = True
        self.in_flight -= 1

    def finished(self) -> Array:
        """The records of all rollouts that were played on this rank, in their order."""
        return self.results[self.is_finished]

    def observations(self, size: int) -> Array:
        """The observation sums of the sampled rollouts that were played on this rank.  size: o."""
        sums = np.array(self.observed, observation_record(size))
        sums["rollout"] += self.batch.first
        return sums


@dataclass(frozen=True)
class PlayingRanks:
    """What a Player knows of the ranks that play the same queues.

    count: how many draw from the same counters, this one included.  are_done: whether all have played the queues.
    must_abandon: whether to stop at once.
    """

    count: int = 1
    are_done: Callable[[], bool] = lambda: True
    must_abandon: Callable[[], bool] = lambda: False


ALONE = PlayingRanks()


Queues = Sequence[RolloutQueue]


class Player(Protocol):
    """Plays rollouts on one rank: EpisodePlayer those of an environment, FunctionPlayer those of a function."""

    @property
    def played(self) -> int:
        """Steps that it has made, of all rollouts."""

    def play(self, queues: Queues, prefetch: RolloutQueue | None = None, ranks: PlayingRanks = ALONE) -> None:
        """Play rollouts of the queues, in turn, until they have none left for this rank.

        prefetch: the queue to go on with until all ranks are done; its unfinished episodes wait for the next call.
        """

    def drop(self) -> None:
        """Forget all unfinished episodes."""


def play_alone(
    player: Player, batch: RolloutBatch, rollouts: Sequence[int] | None = None
) -> tuple[Array, dict[int, str]]:
    """Play a batch, or these rollouts of it, on this rank alone.

    Returns their records in order, and the messages of those that failed.
    """
    queue = RolloutQueue(batch, None if rollouts is None else np.array(rollouts, np.int64))
    player.play([queue])
    return queue.finished(), queue.failures


@dataclass
class FailureGroup:
    """Rollouts that failed with the same message.

    count: how many.  first: the lowest rollout among them.  ranks: those that played them.
    """

    message: str
    count: int
    first: int
    ranks: list[int]


def gather_failures(comm: Communicator, failures: Mapping[int, str]) -> list[FailureGroup]:
    """On rank 0 the groups of all ranks, the largest first; [] elsewhere.  Collective.

    failures: rollout to message, of this rank.
    """
    own: dict[str, list[int]] = {}
    for rollout, message in failures.items():
        own.setdefault(message, []).append(rollout)
    line = json.dumps([[message, len(rollouts), min(rollouts)] for message, rollouts in own.items()]) + "\n"
    gathered = comm.gather(np.frombuffer(line.encode(), np.uint8))
    groups: dict[str, FailureGroup] = {}
    lines = [] if gathered is None else gathered.tobytes().decode().splitlines()
    for rank, part in enumerate(lines):
        for message, count, first in json.loads(part):
            group = groups.setdefault(message, FailureGroup(message, 0, first, []))
            group.count += count
            group.first = min(group.first, first)
            group.ranks.append(rank)
    return sorted(groups.values(), key=lambda group: (-group.count, group.first))
