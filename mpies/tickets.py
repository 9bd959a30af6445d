"""A run's tickets played through in virtual time: how long generations take on any number of ranks.

Nothing here knows MPI or a clock; it is the schedule of `rollouts` and `Communicator.tickets`, event by event.
"""

import heapq
import math
from dataclasses import dataclass, field
from itertools import accumulate, pairwise


@dataclass(frozen=True)
class Schedule:
    """How a rank draws tickets, as the players do it.

    lanes: episodes side by side, which share the rank's time.  smallest, largest: tickets drawn at a time, in between
    a `divisor`-th of the rank's fair share of what is left.  low_water: lanes under way at which more are drawn.
    static: each rank has its own share from the beginning.
    """

    lanes: int = 1
    smallest: int = 1
    largest: int = 1
    low_water: int = 0
    divisor: int = 1
    static: bool = False

    def portion(self, left, ranks):
        """Tickets that one of `ranks` ranks asks for when `left` are left, or at first, when all are."""
        return min(max(-(-left // (self.divisor * ranks)), self.smallest), self.largest)


@dataclass
class _Rank:
    pool: int  # whose tickets it draws
    lanes: list = field(default_factory=list)  # [seconds left, generation] of each episode under way
    waiting: list = field(default_factory=list)  # likewise, drawn but not begun
    since: float = 0.0  # when `lanes` was true
    generation: int = 0  # that it draws from
    drawn: int = -1  # the newest generation that it has tickets of
    helped: int = 0  # the newest generation whose update it has had its part in


def told_times(durations, nodes, schedule, update, overlap=0, share=0.0):
    """When the solver has been told of each generation, in seconds from the first proposal.

    durations: a list of (k,) seconds of the episodes of each generation, by ticket.  nodes: ranks of each node; a node
    deals out its part of the tickets to its own ranks.  update: seconds from a generation's last result to the next
    proposal.  overlap: generations that may be begun before the results of an older one are in.  share: seconds
    of an update that a rank spends on it when it could be playing, which matters only where overlap > 0.
    """
    ranks = [_Rank(node) for node, count in enumerate(nodes) for _ in range(count)]
    if schedule.static:
        nodes = [1] * len(ranks)
        for number, rank in enumerate(ranks):
            rank.pool = number
    before = list(accumulate(nodes, initial=0))
    bounds = [list(pairwise(len(times) * count // before[-1] for count in before)) for times in durations]
    pools = [[list(pair) for pair in pairs] for pairs in bounds]  # of each generation and pool: [next ticket, end]
    left = [len(times) for times in durations]
    begin = [0.0] * (1 + overlap) + [math.inf] * len(durations)  # of each generation
    told = 0
    events = [(0.0, number) for number in range(len(ranks))]
    idle: dict[int, list] = {}  # generation -> ranks that wait for it

    def draw(rank, now):
        """Give a rank tickets of the oldest generation that has some for it; returns whether there were any."""
        while rank.generation < len(durations) and begin[rank.generation] <= now:
            pool = pools[rank.generation][rank.pool]
            if pool[0] < pool[1]:
                first, (start, stop) = pool[0], bounds[rank.generation][rank.pool]
                known = stop - (first if rank.drawn == rank.generation else start)
                pool[0] = min(first + schedule.portion(known, nodes[rank.pool]), stop)
                times, rank.drawn = durations[rank.generation][first : pool[0]], rank.generation
                rank.waiting = [[seconds, rank.generation] for seconds in times[::-1]]
                return True
            rank.generation += 1
        return False

    while events:
        now, number = heapq.heappop(events)
        rank = ranks[number]
        if rank.lanes:
            passed = (now - rank.since) / len(rank.lanes)
            for lane in rank.lanes:
                lane[0] -= passed
                if lane[0] <= 1e-9:
                    left[lane[1]] -= 1
            rank.lanes = [lane for lane in rank.lanes if lane[0] > 1e-9]
            while told < len(durations) and not left[told]:
                following = told + 1 + overlap
                begin[following] = max(now, begin[following - 1]) + update
                for waiting in idle.pop(following, ()):
                    heapq.heappush(events, (begin[following], waiting))
                told += 1
        rank.since = now
        while True:
            while rank.waiting and len(rank.lanes) < schedule.lanes:
                rank.lanes.append(rank.waiting.pop())
            if rank.waiting or len(rank.lanes) > schedule.low_water or not draw(rank, now):
                break
        if rank.lanes:
            if overlap and rank.generation > rank.helped:
                rank.since += share
                rank.helped = rank.generation
            soonest = min(seconds for seconds, _ in rank.lanes)
            heapq.heappush(events, (rank.since + soonest * len(rank.lanes), number))
        elif rank.generation < len(durations):
            if begin[rank.generation] < math.inf:
                heapq.heappush(events, (begin[rank.generation], number))
            else:
                idle.setdefault(rank.generation, []).append(number)
    return begin[1 + overlap :]
