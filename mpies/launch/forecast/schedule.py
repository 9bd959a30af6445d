"""Play the episodes of a run in virtual time: how long its generations take on any number of ranks."""

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, cycle, pairwise

import numpy as np

from mpies.comm.work_counter import divide
from mpies.launch.forecast.constants import Workload
from mpies.rollouts.node_speeds import NodeSpeeds


@dataclass
class _Rank:
    """speed: of computing, 1 being usual.

    in_flight: seconds of computing until each episode ends, and its generation; the next one to end first.
    """

    speed: float = 1.0
    now: float = 0.0  # up to which it has played
    in_flight: list[tuple[float, int]] = field(default_factory=list)
    newest: int = 0  # generation that it has taken episodes of

    def play(self, ends: list[float], count: int, until: float = math.inf) -> None:
        """Play until a time, or until no more than `count` episodes are in flight.

        ends: when the last episode of each generation has ended; those that end here are taken into account.
        """
        while len(self.in_flight) > count and self.now < until:
            sharing, (step, generation) = len(self.in_flight), self.in_flight[0]
            if self.now + sharing * step > until:
                step, self.now = (until - self.now) / sharing, until
            else:
                self.now += sharing * step
                ends[generation] = max(ends[generation], self.now)
                self.in_flight = self.in_flight[1:]
            self.in_flight = [(left - step, generation) for left, generation in self.in_flight]

    def take(self, durations: Sequence[float], generation: int) -> None:
        """Begin episodes of a generation."""
        self.in_flight = sorted([*self.in_flight, *((seconds / self.speed, generation) for seconds in durations)])


def completion_times(
    durations: Sequence[Sequence[float]],
    nodes: Sequence[int],
    workload: Workload,
    update: float,
    overlap: float = 0.0,
    share: float = 0.0,
    node_speeds: Sequence[float] = (1.0,),
) -> list[float]:
    """When the update of each generation is complete, in seconds from the first proposal.

    durations: of each generation, the seconds (k,) of its episodes in the order in which they are taken.
    workload: says how many episodes a rank takes at a time; those that it has taken share its time.
    nodes: the number of ranks of each node, which share a counter.  The episodes are divided among the nodes as in
    training: at first in proportion to their ranks, later by the speeds that they have shown.
    update: seconds from the last result of a generation to the next proposal.
    overlap: share of a generation's episodes, the first ones, that may begin before the one before it is complete.
    share: seconds of an update that a rank could have spent playing; counts only where overlap > 0.
    node_speeds: speeds of the nodes, 1 being usual; where there are more nodes, the same again.
    """
    ranks = [[_Rank(speed) for _ in range(count)] for count, speed in zip(nodes, cycle(node_speeds), strict=False)]
    known, second = NodeSpeeds(), np.full(len(nodes), 10**9)
    steps = np.array([int(node[0].speed * 10**9) for node in ranks])  # that a rank of each node makes in it
    ended = [0.0] * len(durations)  # when the last episode of each generation has ended
    complete: list[float] = []

    def play_part(part: Sequence[float], generation: int) -> None:
        """Have the ranks take the episodes of a part of a generation, which may begin after the newest update."""
        start = complete[-1] if complete else 0.0
        bounds = pairwise(divide(len(part), known.shares(len(part)) or nodes))
        for node, (first, stop) in zip(ranks, bounds, strict=True):
            taken, begun = first, set[int]()
            queue = [(rank.now, number) for number, rank in enumerate(node)]
            heapq.heapify(queue)
            while taken < stop:
                number = heapq.heappop(queue)[1]
                rank = node[number]
                rank.play(ended, 0, start)
                rank.now = max(rank.now, start)
                if overlap and rank.newest < generation:
                    rank.now, rank.newest = rank.now + share, generation
                while taken < stop and len(rank.in_flight) <= workload.low_water:
                    # Before it takes the first one, a rank knows of all: WorkCounter.left says so.
                    left = stop - (taken if number in begun else first)
                    following = min(taken + workload.count_to_take(left, len(node)), stop)
                    rank.take(part[taken:following], generation)
                    taken = following
                    begun.add(number)
                rank.play(ended, workload.low_water)
                heapq.heappush(queue, (rank.now, number))

    def early(generation: int) -> int:
        return int(overlap * len(durations[generation]))

    play_part(durations[0][: early(0)], 0)
    for generation, times in enumerate(durations):
        play_part(times[early(generation) :], generation)
        if generation + 1 < len(durations):
            play_part(durations[generation + 1][: early(generation + 1)], generation + 1)
        at_end = list(ended)
        for rank in chain.from_iterable(ranks):  # which plays on like this, unless it takes more
            replace(rank).play(at_end, 0)
        complete.append(max([at_end[generation], *complete[-1:]]) + update)
        known.measure(range(len(nodes)), nodes, second, steps)
    return complete
