"""Play episodes of an environment on one rank, many side by side.

Which rollouts are played together changes no bit of their results, so a rank takes whatever the queue hands out.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from mpies import kernels
from mpies.comm.stopwatch import stopwatch
from mpies.core.arrays import Array, Float32s, Int64s
from mpies.envs.base import EpisodeBatch, VectorEnv
from mpies.policies.base import Architecture
from mpies.policies.exported import aligned_stack
from mpies.rollouts.batch import NEVER
from mpies.rollouts.queue import ALONE, PlayingRanks, Queues, RolloutQueue

if TYPE_CHECKING:
    from mpies.kernels.compiled import StepLoop

COMPILED_STEPS = 16  # steps that the compiled loop makes at most before Python looks for signals


def normalize(observations: Float32s, mean: Float32s, deviation: Float32s, clip: np.float32, out: Float32s) -> None:
    """Write normalised and clipped observations (n, o) to `out` (n, o).  mean, deviation: (n, o) or (o,)."""
    np.subtract(observations, mean, out=out)
    np.divide(out, deviation, out=out)
    np.minimum(out, clip, out=out)
    np.maximum(out, -clip, out=out)


@dataclass(eq=False)
class _OpenBatch:
    """Episodes that the environment has begun together.

    rollouts: (k,) the rollout of each place.  waiting: places whose episode has no slot yet, the next one last.
    slots: which slots hold its episodes, as an index.  places: (m,) int32, the place of each of these slots.
    """

    queue: RolloutQueue
    batch: EpisodeBatch
    rollouts: Int64s
    waiting: list[int]
    slots: slice | npt.NDArray[np.intp]
    places: npt.NDArray[np.int32]


class EpisodePlayer:
    """A Player for a VectorEnv and a policy.

    Slots 0 .. active-1 hold the episodes in flight, each with the parameters of its member in the stack.  When an
    episode ends, its slot takes the next waiting one; where none is waiting, the last slot moves into its place.

    clip: bound on normalised observations.  timeout: seconds after which an episode fails; None for none.
    counts_signs: whether the signs of rewards are summed; else the sums are 0.
    """

    def __init__(
        self, env: VectorEnv, policy: Architecture, clip: float, timeout: float | None = None, counts_signs: bool = True
    ) -> None:
        self.env, self.timeout, self.counts_signs = env, timeout, counts_signs
        slots, size = env.slots, env.interface.observation_size
        self.stack = aligned_stack(slots, policy.size)
        self.actor = policy.bind(self.stack)
        self.clip = np.float32(clip)
        self.observations = np.zeros((slots, size), np.float32)
        self.inputs = np.zeros((slots, size), np.float32)  # normalised observations
        # Mean and standard deviation of observations.
        self.centres, self.scales = np.zeros((slots, size), np.float32), np.ones((slots, size), np.float32)
        self.sums = np.zeros((slots, 2, size))  # of observations and of their squares
        self.rewards, self.over = np.zeros(slots), np.zeros(slots, bool)  # of the newest step
        self.totals, self.signs = np.zeros(slots), np.zeros(slots)  # sums of rewards, and of their signs
        self.begun = np.zeros(slots, np.int64)  # what `step` was when each episode began
        self.since = np.zeros(slots)  # time at which each episode began
        self.limits = np.zeros(slots, np.int64)  # steps after which each episode ends
        self.rollouts = np.zeros(slots, np.int64)  # the number of each episode in its RolloutBatch
        self.sampled = np.zeros(slots, bool)  # whether its observations are summed
        self.open_batches = np.empty(slots, object)  # the _OpenBatch of each episode
        self.places = np.zeros(slots, np.int32)  # the place of each episode in that
        self.per_slot: tuple[Array, ...] = (
            *(self.stack, self.observations, self.centres, self.scales, self.sums, self.totals, self.signs),
            *(self.begun, self.rollouts, self.limits, self.since, self.sampled, self.open_batches, self.places),
            *self.actor.states,
        )
        self.active, self.step = 0, 0  # step: how many steps this player has made, of all slots together
        self.played = 0  # steps of all episodes
        self.left_at = 0.0  # time at which the last call of `play` ended
        self.opened: list[_OpenBatch] = []
        self._own: Queues = []  # the queues that are played, without the one that is prefetched
        self.stepped: list[_OpenBatch] = []  # those of `opened` that have episodes in slots
        self._observe: Callable[[int, bool], None] = self._observe_by_numpy
        self._score: Callable[[int, int], int] = self._score_by_numpy
        self._loop: StepLoop | None = None
        if kernels.compiled:
            observed = self.observations, self.centres, self.scales, self.inputs, self.sums, self.sampled
            observation_pass = kernels.compiled.ObservationPass(*observed, clip)
            signs = self.signs if counts_signs else None
            reward_pass = kernels.compiled.RewardPass(
                self.rewards, self.totals, signs, self.begun, self.limits, self.over
            )
            self._observe, self._score = observation_pass, reward_pass
            if self.actor.compiled:
                self._loop = kernels.compiled.StepLoop(observation_pass, self.actor.compiled, reward_pass)

    def play(self, queues: Queues, prefetch: RolloutQueue | None = None, ranks: PlayingRanks = ALONE) -> None:
        self._own = own = queues
        queues = [*queues, prefetch] if prefetch else queues
        normalizes = own[0].batch.normalization is not None
        self.since[: self.active] += stopwatch.now() - self.left_at
        with np.errstate(all="ignore"):  # a member may overflow; its return shows it
            while True:
                before = self.active
                while self.active < self.env.slots and (source := self._waiting_batch(queues, ranks.count)):
                    self._begin(self.active, source)
                    self.active += 1
                if self.active > before:
                    self._assign_slots()
                if ranks.must_abandon():
                    self.drop()
                    break
                if (is_done := all(queue.is_exhausted for queue in own)) and (
                    not prefetch or not self.active or ranks.are_done()
                ):
                    break
                if over := self._step(normalizes, 1 if is_done else COMPILED_STEPS):
                    for slot in over[::-1]:  # from the end, so that the last slot can move into a gap
                        self._finish(slot)
                        if source := self._waiting_batch(queues):
                            self._begin(slot, source)
                        else:
                            self.active -= 1
                            if slot != self.active:
                                for values in self.per_slot:
                                    values[slot] = values[self.active]
                    self._assign_slots()
        self.left_at = stopwatch.now()

    def drop(self) -> None:
        """Forget the episodes in flight."""
        for opened in self.opened:
            opened.batch.close()
            opened.queue.in_flight = 0
        self.opened, self.active = [], 0
        self._assign_slots()

    def _waiting_batch(self, queues: Iterable[RolloutQueue], ranks: int = 0) -> _OpenBatch | None:
        """An open batch of the first queue that has an episode to begin; None without one.

        ranks: how many draw from the counter; 0 takes no new rollouts from it.
        """
        env, in_flight = self.env, 0
        for queue in queues:
            for opened in self.opened:
                if opened.waiting and opened.queue is queue:
                    return opened
            in_flight += queue.in_flight
            # Every open batch holds environment objects, of its finished episodes too.
            may_open = ranks and in_flight <= env.low_water and not (env.instances and self.opened)
            if may_open and queue.counter.left:
                left = sum(other.counter.left for other in (self._own if queue in self._own else [queue]))
                # A part of this rank's fair share of what is left: large batches first, a short wait at the end.
                share = -(-left // (env.divisor * ranks))
                rollouts = queue.take(min(max(share, env.smallest), env.largest))
                if len(rollouts):
                    seeds = queue.batch.seeds[rollouts].tolist()
                    batch = env.open(seeds, queue.batch.is_training)
                    waiting = list(range(len(rollouts)))[::-1]
                    opened = _OpenBatch(queue, batch, rollouts, waiting, slice(0, 0), np.zeros(0, np.int32))
                    self.opened.append(opened)
                    return opened
        return None

    def _begin(self, slot: int, opened: _OpenBatch) -> None:
        """Begin a waiting episode of the batch in a slot."""
        queue, place = opened.queue, opened.waiting.pop()
        batch, rollout = queue.batch, int(opened.rollouts[place])
        payload = batch.write(rollout, self.stack[slot])
        if batch.payload_size:
            queue.results["payload"][rollout] = payload
        self.actor.begin(slot, None if batch.action_seeds is None else int(batch.action_seeds[rollout]))
        self.observations[slot] = opened.batch.observations[place]
        if batch.normalization is not None:
            self.centres[slot], self.scales[slot] = batch.normalization
        self.sums[slot] = self.totals[slot] = self.signs[slot] = 0
        self.begun[slot], self.since[slot], self.rollouts[slot] = self.step, stopwatch.now(), rollout
        self.limits[slot] = min(limit for limit in (batch.limit, self.env.max_steps, NEVER) if limit is not None)
        self.sampled[slot] = batch.sampled[rollout]
        self.open_batches[slot], self.places[slot] = opened, place

    def _assign_slots(self) -> None:
        """Update which slots belong to which open batch, and close batches whose episodes are all over."""
        owners = self.open_batches[: self.active].tolist() if len(self.opened) > 1 else self.opened * self.active
        self.stepped = []
        for opened in list(self.opened):
            count = owners.count(opened)
            opened.slots = slice(0, count)
            if count < self.active:
                opened.slots = np.array([slot for slot, owner in enumerate(owners) if owner is opened], np.intp)
            opened.places = self.places[opened.slots].copy()
            if count:
                self.stepped.append(opened)
            elif not opened.waiting:
                opened.batch.close()
                self.opened.remove(opened)
        self._samples = True in self.sampled[: self.active].tolist()
        self._is_compiled = self._loop is not None and self._loop.prepare(self.stepped)

    def _observe_by_numpy(self, slots: int, normalizes: bool) -> None:
        """Sum the observations of the first `slots` slots where they are sampled; normalise and clip them all."""
        sampled = np.flatnonzero(self.sampled[:slots])
        values = self.observations[sampled].astype(np.float64)
        self.sums[sampled, 0] += values
        self.sums[sampled, 1] += values * values
        if normalizes:
            statistics = self.centres[:slots], self.scales[:slots]
            normalize(self.observations[:slots], *statistics, self.clip, self.inputs[:slots])

    def _score_by_numpy(self, slots: int, step: int) -> bool:
        """Add the rewards of the first `slots` slots and end episodes at their limit.  Returns whether any is over."""
        self.totals[:slots] += self.rewards[:slots]
        if self.counts_signs:
            self.signs[:slots] += np.sign(self.rewards[:slots])
        self.over[:slots] |= step - self.begun[:slots] >= self.limits[:slots]
        return bool(self.over[:slots].any())

    def _step(self, normalizes: bool, most: int) -> list[int]:
        """Step all slots until an episode is over, at most `most` times.  Returns the slots that are over, in order."""
        active, before = self.active, self.step
        if self._is_compiled and self._loop:
            self.step += self._loop(active, self.step, most, self._samples, normalizes)
            any_over = True
        else:
            if normalizes or self._samples:
                self._observe(active, normalizes)
            inputs = (self.inputs if normalizes else self.observations)[:active]
            actions = self.actor(inputs, self.step - self.begun[:active] if self.actor.wants_steps else None)
            for opened in self.stepped:
                opened.batch.send(opened.places, actions[opened.slots])
            self.step += 1
            for opened in self.stepped:
                slots = opened.slots
                self.observations[slots], self.rewards[slots], self.over[slots] = opened.batch.receive()
            any_over = bool(self._score(active, self.step))
        self.played += active * (self.step - before)
        if self.timeout is not None:
            late = stopwatch.now() - self.since[:active] > self.timeout
            for slot in np.flatnonzero(late):
                failures = self.open_batches[slot].batch.failures
                failures.setdefault(int(self.places[slot]), f"it took more than {self.timeout:g} s")
            self.totals[:active][late] = np.nan
            self.over[:active] |= late
            any_over = True
        return [slot for slot, over in enumerate(self.over[:active].tolist()) if over] if any_over else []

    def _finish(self, slot: int) -> None:
        """Store the result of the episode in a slot."""
        opened, rollout, place = self.open_batches[slot], int(self.rollouts[slot]), int(self.places[slot])
        queue, total, steps = opened.queue, float(self.totals[slot]), self.step - int(self.begun[slot])
        if queue.batch.behaviour_size:
            behaviours = opened.batch.behaviours
            if place in behaviours:
                queue.results["behaviour"][rollout] = behaviours[place]
            elif not self.env.behaviour:  # else the first step failed, and there are no numbers but the zeros
                queue.results["behaviour"][rollout] = self.observations[slot]
        if not math.isfinite(total):
            queue.failures[rollout] = opened.batch.failures.get(place) or f"return {total}"
            total = math.nan
        queue.finish(rollout, total, self.signs[slot], steps)
        if self.sampled[slot] and math.isfinite(total) and np.isfinite(self.sums[slot]).all():
            queue.observed.append((rollout, steps, *self.sums[slot].copy()))
