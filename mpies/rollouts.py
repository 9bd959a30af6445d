"""From tickets to returns: one rank plays its share of a generation's episodes.

A rollout is one episode of one member, known by its number: member * episodes + episode.  Which rank
plays it, in what company and when changes no bit of what it returns.  Where generations overlap, a rank
that finds no more tickets goes on with those of the next generation.
"""

import math
import time
from dataclasses import dataclass, field

import numpy as np

from mpies import kernels
from mpies.communicator import Serial
from mpies.policies import aligned_stack

NEVER = 2**62  # steps: an episode without a limit
TOGETHER = 16  # steps that a compiled loop makes before the player looks around

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
    behaviours: the part of the notes that says how an episode ended; None or of width 0 where nobody asks.
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


@dataclass(eq=False)
class Session:
    """Work that ranks share out, and what this one has made of it so far.

    todo: (t,) rollout numbers, ticket k being todo[k].  normalization: (2, o) float32 mean and deviation, or None.
    rows: as ROLLOUT has them.  observed: as observation_record has them.  failures: {rollout: what went wrong}.
    """

    work: Work
    normalization: np.ndarray | None = None
    todo: np.ndarray | None = None
    tickets: object = None
    rows: list = field(default_factory=list)
    observed: list = field(default_factory=list)
    failures: dict = field(default_factory=dict)
    under_way: int = 0  # rollouts drawn and not over

    @property
    def is_over(self):
        """Whether there is nothing left of it for this rank."""
        return not self.under_way and not self.tickets.left

    def found(self):
        """ROLLOUT rows of what was played here."""
        return np.array(self.rows, ROLLOUT)

    def draw(self, portion):
        """The rollouts of the next tickets, at most `portion`; none when all are taken."""
        taken = self.tickets.take(portion)
        self.under_way += len(taken)
        return self.todo[taken.start : taken.stop]


def play_alone(player, work, normalization=None, rollouts=None):
    """A Work, or these rollouts of it, on this rank alone: ROLLOUT rows in order, and {rollout: what went wrong}."""
    todo = np.arange(len(work.seeds)) if rollouts is None else np.array(rollouts)
    session = Session(work, normalization, todo, Serial().tickets(len(todo)))
    player.play(session)
    return np.sort(session.found(), order="rollout"), session.failures


class FunctionPlayer:
    """Evaluates a test function: one step an episode, no policy."""

    def __init__(self, world):
        self.world = world
        self._parameters = np.empty(world.dimension, np.float32)

    def play(self, session, share=1, ahead=None, all_through=lambda: True, leave=lambda: False):
        """As EpisodePlayer.play."""
        while not session.is_over and not leave():
            self._play_some(session, session.tickets.left // (4 * share))
        while ahead and not ahead.is_over and not leave() and not all_through():
            self._play_some(ahead, 1)

    def drop(self):
        """As EpisodePlayer.drop."""

    def _play_some(self, session, portion):
        work = session.work
        for rollout in session.draw(max(1, portion)).tolist():
            work.write(rollout, self._parameters)
            try:
                value = self.world.value(self._parameters)
            except Exception as error:  # a user's function may raise anything
                value, session.failures[rollout] = np.nan, f"{type(error).__name__}: {' '.join(str(error).split())}"
            work.note_behaviour(rollout, self.world.behaviour(self._parameters))
            session.rows.append((rollout, value, np.sign(value), 1))
            session.under_way -= 1
            if not np.isfinite(value):
                session.failures.setdefault(rollout, f"value {value}")


@dataclass(eq=False)
class _Open:
    """A batch of episodes under way: those not yet begun, and the lanes of those that run."""

    session: Session
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
        self.centres, self.scales = np.zeros((lanes, size), np.float32), np.ones((lanes, size), np.float32)
        self.sums = np.zeros((lanes, 2, size))
        self.rewards, self.over = np.zeros(lanes), np.zeros(lanes, bool)  # of the newest step
        self.totals, self.signs = np.zeros(lanes), np.zeros(lanes)
        self.begun, self.rollouts, self.limits = (np.zeros(lanes, np.int64) for _ in range(3))
        self.since = np.zeros(lanes)  # wall time
        self.sampled = np.zeros(lanes, bool)
        self.opens = np.empty(lanes, object)
        self.places = np.zeros(lanes, np.int32)
        self.per_lane = (self.stack, self.observations, self.centres, self.scales, self.sums, self.totals, self.signs)
        self.per_lane += (self.begun, self.rollouts, self.limits, self.since, self.sampled, self.opens, self.places)
        self.per_lane += tuple(self.actor.states)
        self.active, self.step, self.paused = 0, 0, 0.0
        self.opened: list[_Open] = []
        self._look, self._score, self._loop = self._look_by_numpy, self._score_by_numpy, None
        if kernels.LIBRARY:
            looked_at = self.observations, self.centres, self.scales, self.inputs, self.sums, self.sampled
            self._look = kernels.Sight(*looked_at, clip)
            counted = self.signs if signs else None
            self._score = kernels.Score(self.rewards, self.totals, counted, self.begun, self.limits, self.over)
            if self.actor.compiled and kernels.LIBRARY.play:
                self._loop = kernels.Loop(self._look, self.actor.compiled, self._score)

    def play(self, session, share=1, ahead=None, all_through=lambda: True, leave=lambda: False):
        """Play rollouts of a Session until there are no more tickets.

        share: ranks that draw from its tickets.  ahead: the Session to go on with until `all_through`, a function,
        says that the other ranks are through too; its episodes under way then wait for the next call.
        leave: function that tells whether to give up now.
        """
        self.share, sessions = share, [session, ahead] if ahead else [session]
        self.since[: self.active] += time.monotonic() - self.paused
        with np.errstate(all="ignore"):  # a wild member may overflow; its return tells
            while True:
                begun = self.active
                while self.active < self.world.lanes and (source := self._source(sessions, draws=True)):
                    self._begin(self.active, source)
                    self.active += 1
                if self.active > begun:
                    self._arrange()
                if leave():
                    self.drop()
                    break
                if (waits := session.is_over) and (not ahead or not self.active or all_through()):
                    break
                if over := self._step(session.normalization is not None, 1 if waits else TOGETHER):
                    for lane in over[::-1]:  # from the end: the last lane fills the gap
                        self._finish(lane)
                        if source := self._source(sessions):
                            self._begin(lane, source)
                        else:
                            self.active -= 1
                            if lane != self.active:
                                for values in self.per_lane:
                                    values[lane] = values[self.active]
                    self._arrange()
        self.paused = time.monotonic()

    def drop(self):
        """Forget the episodes under way."""
        for item in self.opened:
            item.batch.close()
            item.session.under_way = 0
        self.opened, self.active = [], 0
        self._arrange()

    def _source(self, sessions, draws=False):
        """The batch of the first session that has an episode to begin; None without.  draws: may take new tickets."""
        world, under_way = self.world, 0
        for session in sessions:
            for item in self.opened:
                if item.waiting and item.session is session:
                    return item
            under_way += session.under_way
            if draws and under_way <= world.low_water and (left := session.tickets.left):
                # A part of the fair share of what is left: wide batches first, and a short wait at the end.
                share = -(-left // (world.divisor * self.share))
                portion = min(max(share, world.smallest), world.largest)
                rollouts = session.draw(portion)
                if len(rollouts):
                    batch = world.open(session.work.seeds[rollouts].tolist(), session.work.training)
                    item = _Open(session, batch, rollouts, list(range(len(rollouts)))[::-1])
                    self.opened.append(item)
                    return item
        return None

    def _begin(self, lane, opened):
        session, place = opened.session, opened.waiting.pop()
        work, rollout = session.work, int(opened.rollouts[place])
        work.write(rollout, self.stack[lane])
        self.actor.begin(lane, None if work.noise is None else work.noise[rollout])
        self.observations[lane] = opened.batch.observations[place]
        if session.normalization is not None:
            self.centres[lane], self.scales[lane] = session.normalization
        self.sums[lane] = self.totals[lane] = self.signs[lane] = 0
        self.begun[lane], self.since[lane], self.rollouts[lane] = self.step, time.monotonic(), rollout
        self.limits[lane] = NEVER if work.limit is None else work.limit
        self.sampled[lane] = work.sampled[rollout]
        self.opens[lane], self.places[lane] = opened, place

    def _arrange(self):
        """Note which lanes belong to which batch, and close batches that are through."""
        opens = self.opens[: self.active].tolist() if len(self.opened) > 1 else self.opened * self.active
        self.stepped = []
        for item in list(self.opened):
            count = opens.count(item)
            item.lanes = slice(0, count)
            if count < self.active:
                item.lanes = np.array([lane for lane, other in enumerate(opens) if other is item], np.intp)
            item.places = self.places[item.lanes].copy()
            if count:
                self.stepped.append(item)
            elif not item.waiting:
                item.batch.close()
                self.opened.remove(item)
        self.samples = True in self.sampled[: self.active].tolist()
        self._loops = self._loop is not None and self._loop.serve(self.stepped)

    def _look_by_numpy(self, lanes, normalizes):
        """Add up what sampled ones of the first `lanes` see, and its squares; normalise and clip what all see."""
        seen = np.flatnonzero(self.sampled[:lanes])
        values = self.observations[seen].astype(np.float64)
        self.sums[seen, 0] += values
        self.sums[seen, 1] += values * values
        if normalizes:
            inputs = np.subtract(self.observations[:lanes], self.centres[:lanes], out=self.inputs[:lanes])
            np.divide(inputs, self.scales[:lanes], out=inputs)
            np.minimum(inputs, self.clip, out=inputs)
            np.maximum(inputs, -self.clip, out=inputs)

    def _score_by_numpy(self, lanes, step):
        """Add up the rewards of the first `lanes`, and end episodes at their limits.  Returns whether any is over."""
        self.totals[:lanes] += self.rewards[:lanes]
        if self.counts_signs:
            self.signs[:lanes] += np.sign(self.rewards[:lanes])
        self.over[:lanes] |= step - self.begun[:lanes] >= self.limits[:lanes]
        return self.over[:lanes].any()

    def _step(self, normalizes, most):
        """Steps of all lanes until one is over, `most` at most.  Returns those that are over, in order."""
        active = self.active
        if self._loops:
            self.step += self._loop(active, self.step, most, self.samples, normalizes)
            ended = True
        else:
            if normalizes or self.samples:
                self._look(active, normalizes)
            inputs = (self.inputs if normalizes else self.observations)[:active]
            actions = self.actor(inputs, self.step - self.begun[:active] if self.actor.wants_steps else None)
            for item in self.stepped:
                item.batch.send(item.places, actions[item.lanes])
            self.step += 1
            for item in self.stepped:
                lanes = item.lanes
                self.observations[lanes], self.rewards[lanes], self.over[lanes] = item.batch.receive()
            ended = self._score(active, self.step)
        if self.timeout is not None:
            late = time.monotonic() - self.since[:active] > self.timeout
            for lane in np.flatnonzero(late & ~self.over[:active]):
                self.opens[lane].batch.failures[int(self.places[lane])] = f"it took more than {self.timeout:g} s"
            self.totals[:active][late] = np.nan
            self.over[:active] |= late
            ended = True
        return [lane for lane, over in enumerate(self.over[:active].tolist()) if over] if ended else []

    def _finish(self, lane):
        opened, rollout = self.opens[lane], int(self.rollouts[lane])
        session, total, steps = opened.session, float(self.totals[lane]), self.step - int(self.begun[lane])
        place = int(self.places[lane])
        session.work.note_behaviour(rollout, opened.batch.behaviours.get(place, self.observations[lane]))
        if not math.isfinite(total):
            message = opened.batch.failures.get(place)
            session.failures[rollout] = message or f"return {total}"
            total = np.nan
        session.rows.append((rollout, total, self.signs[lane], steps))
        session.under_way -= 1
        if self.sampled[lane] and math.isfinite(total) and np.isfinite(self.sums[lane]).all():
            session.observed.append((rollout, steps, *self.sums[lane].copy()))
