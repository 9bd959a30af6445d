"""Does an episode depend on its seed and the actions alone, or on what was played before?

The same member, a fixed linear map from observations to actions with noise of its own, plays the same seed in
fresh and in used environments; its trace is a digest of every observation and reward.
"""

import hashlib
import resource

import numpy as np

from envs.base import Discrete

SEED = 20_240  # of the episode that is compared
HISTORY = (7, 8)  # seeds of what is played in between


class Member:
    """Acts by a linear map and noise, both functions of the episode's seed."""

    def __init__(self, interface, seed):
        self._random = np.random.default_rng(seed)
        self._action = interface.action
        outputs = self._action.count if isinstance(self._action, Discrete) else len(self._action.low)
        size = interface.observation_size
        self._weights = self._random.standard_normal((size, outputs)).astype(np.float32) / np.float32(np.sqrt(size))

    def act(self, observation):
        """An action for a batch of one: (1,) int32 or (1, a) float32."""
        scores = np.nan_to_num(observation) @ self._weights
        scores = scores + 2 * self._random.standard_normal(len(scores)).astype(np.float32)
        if isinstance(self._action, Discrete):
            return scores.argmax()[None].astype(np.int32)
        low, high = (np.clip(bound, -10, 10) for bound in (self._action.low, self._action.high))
        return np.clip((low + high) / 2 + scores * (high - low) / 2, low, high)[None].astype(np.float32)


def trace(world, seed, steps, company=()):
    """Play an episode of at most `steps`.  Returns the SHA-256 (hex) of all that was seen.

    company: seeds of episodes that are played beside it until it is over.
    """
    batch = world.open([seed, *company])
    members = [Member(world.interface, each) for each in (seed, *company)]
    sha, seen = hashlib.sha256(batch.observations[0].tobytes()), batch.observations
    places = np.arange(len(members), dtype=np.int32)
    for _ in range(steps):
        batch.send(places, np.concatenate([members[p].act(o) for p, o in zip(places, seen, strict=True)]))
        seen, rewards, over = batch.receive()
        seen = np.array(seen, np.float32)
        sha.update(seen[0].tobytes() + np.float64(rewards[0]).tobytes() + over[:1].tobytes())
        places, seen = places[~over], seen[~over]
        if over[0]:
            break
    batch.close()
    return sha.hexdigest()


def trace_used(world, seed, steps):
    """The trace of an episode after others, one of which was broken off; in company where the world allows it."""
    trace(world, HISTORY[0], steps)
    trace(world, HISTORY[1], steps // 3)
    return trace(world, seed, steps, HISTORY[: world.lanes - 1])


def remembers(world, steps=50):
    """Whether an episode of `world`, which has not been played in, is another one after others."""
    first = trace(world, SEED, steps)
    for seed in HISTORY:
        trace(world, seed, steps)
    return trace(world, SEED, steps) != first


def memory_growth(world, episodes, steps):
    """Bytes by which this process grows in so many episodes of at most so many steps, after a tenth as many first."""
    before = 0
    for number in range(-(episodes // 10), episodes):
        if number == 0:
            before = _resident()
        trace(world, number + episodes, steps)
    return _resident() - before


def _resident():
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize()
