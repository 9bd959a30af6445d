"""Play the episodes of a run in virtual time: how long its generations take on any number of ranks.

Nothing here uses MPI or a clock.  Ranks take episodes from a shared counter by the rules of WorkCounter and
EpisodePlayer, one event at a time.
"""

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

DONE = 1e-9  # seconds: an episode with no more than this left is over


@dataclass(frozen=True)
class Schedule:
    """How a rank takes episodes.

    slots: episodes in flight at a time; they share the rank's time.
    smallest, largest: bounds on the number of episodes taken at a time.
    low_water: more episodes are taken once no more than this number is in flight.
    divisor: the number taken is the rank's fair share of what is left divided by this.
    static: each rank has an equal share of its own from the beginning.
    """

    slots: int = 1
    smallest: int = 1
    largest: int = 1
    low_water: int = 0
    divisor: int = 1
    static: bool = False

    def count_to_take(self, left: int, ranks: int) -> int:
        """How many episodes a rank takes when `ranks` ranks share the `left` ones."""
        return min(max(-(-left // (self.divisor * ranks)), self.smallest), self.largest)


@dataclass(slots=True)
class _Episode:
    left: float  # seconds of computing until it ends
    generation: int


@dataclass
class _Rank:
    pool: int  # the pool that it takes episodes from: its node's, or its own where the schedule is static
    in_flight: list[_Episode] = field(default_factory=list)
    waiting: list[_Episode] = field(default_factory=list)  # taken and not begun, the next one last
    since: float = 0.0  # the time at which `in_flight` was up to date
    generation: int = 0  # that it takes episodes of
    newest_taken: int = -1  # the newest generation that it has taken episodes of
    newest_update: int = 0  # the newest generation to whose start it has contributed its share of an update


def completion_times(
    durations: Sequence[Sequence[float]],
    nodes: Sequence[int],
    schedule: Schedule,
    update: float,
    overlap: int = 0,
    share: float = 0.0,
) -> list[float]:
    """When the update of each generation is complete, in seconds from the first proposal.

    durations: of each generation, the seconds (k,) of its episodes in the order in which they are taken.
    nodes: the number of ranks of each node.  The episodes are divided among the nodes in proportion to their ranks;
    the ranks of a node share a counter.
    update: seconds from the last result of a generation to the next proposal.
    overlap: how many generations may begin before the results of an older one are complete.
    share: seconds of an update that a rank could have spent playing; counts only where overlap > 0.
    """
    return _Simulation(durations, nodes, schedule, update, overlap, share).run()


class _Simulation:
    """The state of `completion_times`.

    starts: when each generation may begin, infinite where that is not known yet.
    events: (time, number of a rank): the next end of an episode on it, or the start of the generation it waits for.
    """

    def __init__(
        self,
        durations: Sequence[Sequence[float]],
        nodes: Sequence[int],
        schedule: Schedule,
        update: float,
        overlap: int,
        share: float,
    ) -> None:
        self.durations, self.schedule = durations, schedule
        self.update, self.overlap, self.share = update, overlap, share
        self.ranks = [_Rank(node) for node, count in enumerate(nodes) for _ in range(count)]
        self.ranks_of_pool = list(nodes)
        if schedule.static:
            self.ranks_of_pool = [1] * len(self.ranks)
            for number, rank in enumerate(self.ranks):
                rank.pool = number
        before = list(accumulate(self.ranks_of_pool, initial=0))
        # bounds, free: of each generation and pool, the first episode and the end; and the first that is not taken.
        self.bounds = [list(pairwise(len(times) * count // before[-1] for count in before)) for times in durations]
        self.free = [[start for start, _ in pools] for pools in self.bounds]
        self.unfinished = [len(times) for times in durations]
        self.starts = [0.0] * (1 + overlap) + [math.inf] * len(durations)
        self.complete = 0  # generations whose episodes are all over
        self.events = [(0.0, number) for number in range(len(self.ranks))]
        self.idle: dict[int, list[int]] = {}  # generation to the ranks that wait until its start is known

    def run(self) -> list[float]:
        while self.events:
            now, number = heapq.heappop(self.events)
            rank = self.ranks[number]
            if rank.in_flight:
                self._advance(rank, now)
            rank.since = now
            self._fill_slots(rank, now)
            self._add_event(rank, number)
        return self.starts[1 + self.overlap :]

    def _advance(self, rank: _Rank, now: float) -> None:
        """Let the episodes in flight on a rank go on until now, and start a generation where that completes one."""
        passed = (now - rank.since) / len(rank.in_flight)
        for episode in rank.in_flight:
            episode.left -= passed
            if episode.left <= DONE:
                self.unfinished[episode.generation] -= 1
        rank.in_flight = [episode for episode in rank.in_flight if episode.left > DONE]
        while self.complete < len(self.durations) and not self.unfinished[self.complete]:
            following = self.complete + 1 + self.overlap
            self.starts[following] = max(now, self.starts[following - 1]) + self.update
            for number in self.idle.pop(following, ()):
                heapq.heappush(self.events, (self.starts[following], number))
            self.complete += 1

    def _fill_slots(self, rank: _Rank, now: float) -> None:
        """Begin episodes that wait for a slot of the rank, and take more of them when few are in flight."""
        while True:
            while rank.waiting and len(rank.in_flight) < self.schedule.slots:
                rank.in_flight.append(rank.waiting.pop())
            if rank.waiting or len(rank.in_flight) > self.schedule.low_water or not self._take(rank, now):
                return

    def _take(self, rank: _Rank, now: float) -> bool:
        """Take episodes of the oldest generation that has some for this rank.  Returns whether there were any."""
        while rank.generation < len(self.durations) and self.starts[rank.generation] <= now:
            free = self.free[rank.generation]
            first, (start, stop) = free[rank.pool], self.bounds[rank.generation][rank.pool]
            if first < stop:
                # Before it takes the first one, a rank knows of all: WorkCounter.left says so.
                left = stop - (first if rank.newest_taken == rank.generation else start)
                end = min(first + self.schedule.count_to_take(left, self.ranks_of_pool[rank.pool]), stop)
                free[rank.pool], rank.newest_taken = end, rank.generation
                times = self.durations[rank.generation][first:end]
                rank.waiting = [_Episode(seconds, rank.generation) for seconds in times[::-1]]
                return True
            rank.generation += 1
        return False

    def _add_event(self, rank: _Rank, number: int) -> None:
        """Plan when the rank with this number is looked at next."""
        if rank.in_flight:
            if self.overlap and rank.generation > rank.newest_update:
                rank.since += self.share
                rank.newest_update = rank.generation
            soonest = min(episode.left for episode in rank.in_flight)
            heapq.heappush(self.events, (rank.since + soonest * len(rank.in_flight), number))
        elif rank.generation < len(self.durations):
            if self.starts[rank.generation] < math.inf:
                heapq.heappush(self.events, (self.starts[rank.generation], number))
            else:
                self.idle.setdefault(rank.generation, []).append(number)
