"""How fast each node plays, and which part of the rollouts it gets so that all nodes end together.

What this starts from is gathered in each generation anyway.  No bit depends on the shares: a rollout is the same
wherever it is played, and its result is sorted by its number.  But all ranks must find the same shares, or a rollout
would be played twice, or never.  So everything here is computed from what all ranks have, and sums of fractions are
Python's own: those of NumPy may differ in the last bit between processors that are not alike.
"""

import math
import statistics
from collections import deque
from collections.abc import Sequence

import numpy as np

from mpies.core.arrays import Int64s

RECENT = 5  # generations whose median counts, so that a single disturbance changes nothing
ALIKE = 0.05  # nodes whose ranks are within this part of the median speed count as equally fast
MOST = 16.0  # how many times faster or slower than the median a node counts at most
WAIT = 0.5  # rollouts for which a rank waits at the end, as the last one of its node is under way somewhere


class NodeSpeeds:
    """What is known of the nodes; nothing at first, when shares go by numbers of ranks."""

    def __init__(self) -> None:
        self._sizes: Sequence[int] = ()  # of each node, how many of its ranks play
        self._speeds: deque[list[float]] = deque(maxlen=RECENT)  # of a rank of each node over the median; 0: unknown

    def measure(self, node_of: Sequence[int], sizes: Sequence[int], busy: Int64s, steps: Int64s) -> None:
        """Take a generation into account.

        node_of: the node of each rank.  sizes: of each node, how many of its ranks play.
        busy, steps: (ranks,) nanoseconds that each rank played, and steps of episodes that it made.
        """
        made, played = (np.bincount(node_of, column).tolist() for column in (steps, busy))  # whole numbers: exact
        speeds = [some / seconds if some else 0.0 for some, seconds in zip(made, played, strict=True)]
        if any(speeds):
            usual = statistics.median(filter(None, speeds))
            self._sizes = sizes
            self._speeds.append([speed / usual for speed in speeds])

    def shares(self, total: int) -> list[float] | None:
        """How many of `total` rollouts each node should get; None where nothing is known.

        A rank of speed v plays n rollouts in n / v, and then waits for WAIT / v.  All nodes end at the same time t if
        each of their ranks gets n = v t - WAIT.  A node that is too slow to end one by then gets none.
        """
        if not self._speeds or not total:
            return None
        ranks = [(size, self._speed(recent)) for size, *recent in zip(self._sizes, *self._speeds, strict=True)]
        end = (total + WAIT * sum(self._sizes)) / math.fsum(size * speed for size, speed in ranks)
        return [max(0.0, size * (speed * end - WAIT)) for size, speed in ranks]

    @staticmethod
    def _speed(recent: Sequence[float]) -> float:
        """A node's speed; that of the median where it has not played lately, so that it is measured again."""
        speed = statistics.median([known for known in recent if known] or [1.0])
        return 1.0 if abs(speed - 1) < ALIKE else min(max(speed, 1 / MOST), MOST)
