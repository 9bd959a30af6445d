"""From tickets to returns: one rank plays its share of a generation's episodes.

A rollout is one episode of one member, known by its number: member * episodes + episode.  Which rank
plays it, in what company and when changes no bit of what it returns.
"""

import time
from dataclasses import dataclass

import numpy as np

from mpies.policies import aligned_stack

# What a rank sends per rollout.
ROLLOUT = np.dtype([("rollout", "i8"), ("total", "f8"), ("signs", "f8"), ("steps", "i8")])


def observation_record(size):
    """What a rank sends per rollout that feeds the statistics: the sums over its observations."""
    return np.dtype([("rollout", "i8"), ("count", "f8"), ("total", "f8", (size,)), ("squares", "f8", (size,))])


@dataclass(frozen=True)
class Work:
    """What there is to play.

    seeds: (r,) environment seed of each rollout.  sampled: (r,) bool, whose observations count.
    write: function of (rollout, out) that writes that member's parameters (d,) into `out`.
    notes: (r, w) float64, filled in for the rollouts played here: what the solver wants to know of them; or None.
    behaviours: the part of the notes that is the last observation; None or of width 0 where nobody asks.
    noise: (r,) int, seeds of what the policy leaves to chance; None where nothing is, as in evaluations.
    training: whether the task's changes for training hold.  limit: steps after which an episode ends, None for none.
    """

    seeds: np.ndarray
    sampled: np.ndarray
    write: object
    notes: np.ndarray | None = None
    behaviours: np.ndarray | None = None
    noise: np.ndarray | None = None
    training: bool = False
    limit: int | None = None

    def note_behaviour(self, rollout, behaviour):
        if self.behaviours is not None and self.behaviours.shape[1]:
            self.behaviours[rollout] = behaviour


class FunctionPlayer:
    """Evaluates a test function: one step an episode, no policy."""

    def __init__(self, world):
        self.world = world
        self._parameters = np.empty(world.dimension, np.float32)

    def play(self, work, todo, tickets, share, normalization=None, leave=lambda: False):
        """As EpisodePlayer.play."""
        rows, failures = [], {}
        nothing = np.zeros(0, observation_record(0))
        while True:
            taken = tickets.take(max(1, tickets.left // (4 * share)))
            if not taken or leave():
                return np.array(rows, ROLLOUT), nothing, failures
            for rollout in todo[taken.start : taken.stop].tolist():
                work.write(rollout, self._parameters)
                try:
                    value = self.world.value(self._parameters)
                except Exception as error:  # a user's function may raise anything
                    value, failures[rollout] = np.nan, f"{type(error).__name__}: {' '.join(str(error).split())}"
                work.note_behaviour(rollout, self.world.behaviour(self._parameters))
                rows.append((rollout, value, np.sign(value), 1))
                if not np.isfinite(value):
                    failures.setdefault(rollout, f"value {value}")


@dataclass(eq=False)
class _Open:
    """A batch of episodes under way: those not yet begun, and the lanes of those that run."""

    batch: object
    rollouts: np.ndarray  # (k,) the number of each
    waiting: list  # places
    lanes: object = None  # index of its lanes: (m,) or a slice
    places: np.ndarray | None = None  # (m,) int32


class EpisodePlayer:
    """Plays episodes of a World with a policy, many side by side.

    Lanes 0 .. active-1 are episodes under way, each with its member's parameters in the stack.  A lane
    that is over takes the next waiting episode; where there is none, the last lane moves into its place.
    signs: whether the signs of rewards are summed; else they count as 0.
    """

    def __init__(self, world, policy, clip, timeout=None, signs=True):
        self.world, self.timeout, self.counts_signs = world, timeout, signs
        lanes, size = world.lanes, world.interface.observation_size
        self.stack = aligned_stack(lanes, policy.size)
        self.actor = policy.bind(self.stack)
        self.clip = np.float32(clip)
        self.observations = np.zeros((lanes, size), np.float32)
        self.inputs = np.zeros((lanes, size), np.float32)  # normalised
        self.sums = np.zeros((lanes, 2, size))
        self.totals, self.signs = np.zeros(lanes), np.zeros(lanes)
        self.begun, self.rollouts = np.zeros(lanes, np.int64), np.zeros(lanes, np.int64)
        self.since = np.zeros(lanes)  # wall time
        self.opens = np.empty(lanes, object)
        self.places = np.zeros(lanes, np.int32)
        self.per_lane = (self.stack, self.observations, self.sums, self.totals, self.signs)
        self.per_lane += (self.begun, self.since, self.rollouts, self.opens, self.places, *self.actor.states)

    def play(self, work, todo, tickets, share, normalization=None, leave=lambda: False):
        """Play rollouts until there are no more tickets.

        todo: (t,) rollout numbers, ticket k being todo[k].  share: ranks that draw from these tickets.
        normalization: (2, o) float32 mean and deviation.  leave: function that tells whether to give up now.
        Returns ROLLOUT rows, observation_record rows and {rollout: what went wrong}.
        """
        world, self.work, self.active, self.step = self.world, work, 0, 0
        self.rows, self.observed, self.failures = [], [], {}
        opened: list = []
        with np.errstate(all="ignore"):  # a wild member may overflow; its return tells
            while True:
                waiting = opened[-1].waiting if opened else []
                while not waiting and self.active <= world.low_water and tickets.left:
                    # A fair share of what is left: wide batches first, and a short wait at the end.
                    portion = min(max(-(-tickets.left // share), world.smallest), world.largest)
                    taken = tickets.take(portion)
                    if taken:
                        rollouts = todo[taken.start : taken.stop]
                        waiting = list(range(len(rollouts)))[::-1]
                        batch = world.open(work.seeds[rollouts].tolist(), work.training)
                        opened.append(_Open(batch, rollouts, waiting))
                if waiting and self.active < world.lanes:
                    while waiting and self.active < world.lanes:
                        self._begin(self.active, opened[-1])
                        self.active += 1
                    self._arrange(opened)
                if not self.active or leave():
                    break
                over = self._step(opened, normalization)
                if over.any():
                    for lane in np.flatnonzero(over)[::-1]:  # from the end: the last lane fills the gap
                        self._finish(lane)
                        if waiting:
                            self._begin(lane, opened[-1])
                        else:
                            self.active -= 1
                            if lane != self.active:
                                for values in self.per_lane:
                                    values[lane] = values[self.active]
                    self._arrange(opened)
        for item in opened:
            item.batch.close()
        size = self.observations.shape[1]
        return np.array(self.rows, ROLLOUT), np.array(self.observed, observation_record(size)), self.failures

    def _begin(self, lane, opened):
        place = opened.waiting.pop()
        rollout = int(opened.rollouts[place])
        self.work.write(rollout, self.stack[lane])
        self.actor.begin(lane, None if self.work.noise is None else self.work.noise[rollout])
        self.observations[lane] = opened.batch.observations[place]
        self.sums[lane] = self.totals[lane] = self.signs[lane] = 0
        self.begun[lane], self.since[lane], self.rollouts[lane] = self.step, time.monotonic(), rollout
        self.opens[lane], self.places[lane] = opened, place

    def _arrange(self, opened):
        """Note which lanes belong to which batch, and close batches that are through."""
        opens = self.opens[: self.active]
        for item in list(opened):
            lanes = np.flatnonzero(opens == item)
            item.places = self.places[lanes]
            item.lanes = slice(0, self.active) if len(lanes) == self.active else lanes
            if not len(lanes) and not item.waiting:
                item.batch.close()
                opened.remove(item)
        self.sampled = np.flatnonzero(self.work.sampled[self.rollouts[: self.active]])

    def _step(self, opened, normalization):
        """One step of all lanes.  Returns (active,) bool: which are over."""
        active, sampled = self.active, self.sampled
        inputs = self.observations[:active]
        if len(sampled):
            seen = inputs[sampled].astype(np.float64)
            self.sums[sampled, 0] += seen
            self.sums[sampled, 1] += seen * seen
        if normalization is not None:
            inputs = np.subtract(inputs, normalization[0], out=self.inputs[:active])
            np.divide(inputs, normalization[1], out=inputs)
            np.minimum(inputs, self.clip, out=inputs)
            np.maximum(inputs, -self.clip, out=inputs)
        actions = self.actor(inputs, self.step - self.begun[:active] if self.actor.wants_steps else None)
        for item in opened:
            item.batch.send(item.places, actions[item.lanes])
        over = np.zeros(active, bool)
        self.step += 1
        for item in opened:
            lanes = item.lanes
            self.observations[lanes], rewards, over[lanes] = item.batch.receive()
            self.totals[lanes] += rewards
            if self.counts_signs:
                self.signs[lanes] += np.sign(rewards)
        if self.work.limit is not None:
            over |= self.step - self.begun[:active] >= self.work.limit
        if self.timeout is not None:
            late = time.monotonic() - self.since[:active] > self.timeout
            for lane in np.flatnonzero(late & ~over):
                self.opens[lane].batch.failures[int(self.places[lane])] = f"it took more than {self.timeout:g} s"
            self.totals[:active][late] = np.nan
            over |= late
        return over

    def _finish(self, lane):
        rollout, total, steps = int(self.rollouts[lane]), float(self.totals[lane]), self.step - int(self.begun[lane])
        self.work.note_behaviour(rollout, self.observations[lane])
        if not np.isfinite(total):
            message = self.opens[lane].batch.failures.get(int(self.places[lane]))
            self.failures[rollout] = message or f"return {total}"
            total = np.nan
        self.rows.append((rollout, total, self.signs[lane], steps))
        if self.work.sampled[rollout] and np.isfinite(total) and np.isfinite(self.sums[lane]).all():
            self.observed.append((rollout, steps, *self.sums[lane].copy()))
