"""Play the episodes of a run in virtual time: how long its generations take on any number of ranks.

Nothing here uses MPI or a clock.  Ranks take episodes from a shared counter by the rules of WorkCounter and
EpisodePlayer, one event at a time.
"""

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

DONE = 1e-9  # seconds: an episode with no more than this left is over; late in a long run, what rounding leaves


@dataclass(frozen=True)
class Schedule:
    """How a rank takes episodes.

    slots: episodes in flight at a time; they share the rank's time.
    smallest, largest: bounds on the number of episodes taken at a time.
    low_water: more episodes are taken once no more than this number is in flight.
    divisor: the number taken is the rank's fair share of what is left divided by this.
    """

    slots: int = 1
    smallest: int = 1
    largest: int = 1
    low_water: int = 0
    divisor: int = 1

    def count_to_take(self, left: int, ranks: int) -> int:
        """How many episodes a rank takes when `ranks` ranks share the `left` ones."""
        return min(max(-(-left // (self.divisor * ranks)), self.smallest), self.largest)


# The parts of generation g are number 2 g, which may begin before generation g - 1 is complete, and number 2 g + 1.
EARLY, LATE = range(2)


@dataclass(slots=True)
class _Episode:
    left: float  # seconds of computing until it ends
    part: int


@dataclass
class _Rank:
    node: int  # with whose other ranks it shares a counter
    in_flight: list[_Episode] = field(default_factory=list)
    waiting: list[_Episode] = field(default_factory=list)  # taken and not begun, the next one last
    since: float = 0.0  # the time at which `in_flight` was up to date
    part: int = 0  # that it takes episodes of
    newest_taken: int = -1  # the newest part that it has taken episodes of
    newest_update: int = 0  # the newest generation to whose start it has contributed its share of an update


def completion_times(
    durations: Sequence[Sequence[float]],
    nodes: Sequence[int],
    schedule: Schedule,
    update: float,
    overlap: float = 0.0,
    share: float = 0.0,
) -> list[float]:
    """When the update of each generation is complete, in seconds from the first proposal.

    durations: of each generation, the seconds (k,) of its episodes in the order in which they are taken.
    nodes: the number of ranks of each node.  The episodes are divided among the nodes in proportion to their ranks;
    the ranks of a node share a counter.
    update: seconds from the last result of a generation to the next proposal.
    overlap: share of a generation's episodes, the first ones, that may begin before the one before it is complete.
    share: seconds of an update that a rank could have spent playing; counts only where overlap > 0.
    """
    return _Simulation(durations, nodes, schedule, update, overlap, share).run()


def _divide(durations: Sequence[float], share: float) -> tuple[Sequence[float], Sequence[float]]:
    """The first share of the durations, and the rest."""
    early = int(share * len(durations))
    return durations[:early], durations[early:]


class _Simulation:
    """The state of `completion_times`.

    starts: when each part may begin, infinite where that is not known yet.
    ends: when the update of each generation is complete, as far as it is known.
    events: (time, number of a rank): the next end of an episode on it, or the start of the generation it waits for.
    """

    def __init__(
        self,
        durations: Sequence[Sequence[float]],
        nodes: Sequence[int],
        schedule: Schedule,
        update: float,
        overlap: float,
        share: float,
    ) -> None:
        self.schedule, self.generations = schedule, len(durations)
        self.durations = [part for times in durations for part in _divide(times, overlap)]
        self.update, self.overlap, self.share = update, overlap, share
        self.ranks = [_Rank(node) for node, count in enumerate(nodes) for _ in range(count)]
        self.ranks_of_node = list(nodes)
        before = list(accumulate(nodes, initial=0))
        # bounds, free: of each part and node, the first episode and the end; and the first that is not taken.
        self.bounds = [list(pairwise(len(part) * count // before[-1] for count in before)) for part in self.durations]
        self.free = [[start for start, _ in shares] for shares in self.bounds]
        self.unfinished = [len(times) for times in durations]
        self.starts = [0.0] * 3 + [math.inf] * 2 * len(durations)
        self.ends: list[float] = []
        self.events = [(0.0, number) for number in range(len(self.ranks))]
        self.idle: dict[int, list[int]] = {}  # part to the ranks that wait until its start is known

    def run(self) -> list[float]:
        while self.events:
            now, number = heapq.heappop(self.events)
            rank = self.ranks[number]
            if rank.in_flight:
                self._advance(rank, now)
            rank.since = now
            self._fill_slots(rank, now)
            self._add_event(rank, number)
        return self.ends

    def _advance(self, rank: _Rank, now: float) -> None:
        """Let the episodes in flight on a rank go on until now, and start a generation where that completes one."""
        passed = (now - rank.since) / len(rank.in_flight)
        done = max(DONE, 2 * math.ulp(now))  # less would never pass
        for episode in rank.in_flight:
            episode.left -= passed
            if episode.left <= done:
                self.unfinished[episode.part // 2] -= 1
        rank.in_flight = [episode for episode in rank.in_flight if episode.left > done]
        while len(self.ends) < self.generations and not self.unfinished[len(self.ends)]:
            end = max(now, self.ends[-1] if self.ends else 0.0) + self.update
            self.ends.append(end)
            following = len(self.ends)
            for part in (2 * following + LATE, 2 * (following + 1) + EARLY):
                self.starts[part] = end
                for number in self.idle.pop(part, ()):
                    heapq.heappush(self.events, (end, number))

    def _fill_slots(self, rank: _Rank, now: float) -> None:
        """Begin episodes that wait for a slot of the rank, and take more of them when few are in flight."""
        while True:
            while rank.waiting and len(rank.in_flight) < self.schedule.slots:
                rank.in_flight.append(rank.waiting.pop())
            if rank.waiting or len(rank.in_flight) > self.schedule.low_water or not self._take(rank, now):
                return

    def _take(self, rank: _Rank, now: float) -> bool:
        """Take episodes of the oldest part that has some for this rank.  Returns whether there were any."""
        while rank.part < len(self.durations) and self.starts[rank.part] <= now:
            free = self.free[rank.part]
            first, (start, stop) = free[rank.node], self.bounds[rank.part][rank.node]
            if first < stop:
                # Before it takes the first one, a rank knows of all: WorkCounter.left says so.
                left = stop - (first if rank.newest_taken == rank.part else start)
                end = min(first + self.schedule.count_to_take(left, self.ranks_of_node[rank.node]), stop)
                free[rank.node], rank.newest_taken = end, rank.part
                times = self.durations[rank.part][first:end]
                rank.waiting = [_Episode(seconds, rank.part) for seconds in times[::-1]]
                return True
            rank.part += 1
        return False

    def _add_event(self, rank: _Rank, number: int) -> None:
        """Plan when the rank with this number is looked at next."""
        if rank.in_flight:
            if self.overlap and rank.part // 2 > rank.newest_update:
                rank.since += self.share
                rank.newest_update = rank.part // 2
            soonest = min(episode.left for episode in rank.in_flight)
            heapq.heappush(self.events, (rank.since + soonest * len(rank.in_flight), number))
        elif rank.part < len(self.durations):
            if self.starts[rank.part] < math.inf:
                heapq.heappush(self.events, (self.starts[rank.part], number))
            else:
                self.idle.setdefault(rank.part, []).append(number)
