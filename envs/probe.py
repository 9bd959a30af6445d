"""Find out whether an episode depends on its seed and its actions alone, or on earlier episodes too.

The same policy plays the same seed in fresh and in used environments.  The trace of an episode is a digest of all its
observations and rewards, so equal traces mean equal episodes.
"""

import hashlib
import resource
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from mpies.envs.base import Binary, Composite, Continuous, Discrete, Interface, VectorEnv

SEED = 20_240  # of the episode that is compared
EARLIER_SEEDS = (7, 8)  # of the episodes played before it


class ProbePolicy:
    """A random linear map from observations to actions, with random noise; both depend on the seed alone."""

    def __init__(self, interface: Interface, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        action = interface.action
        self._is_discrete = isinstance(action, Discrete)
        self._parts = action.parts if isinstance(action, Composite) else (action,)
        outputs = sum(len(part.low) if isinstance(part, Continuous) else part.count for part in self._parts)
        size = interface.observation_size
        self._weights = self._random.standard_normal((size, outputs)).astype(np.float32) / np.float32(np.sqrt(size))

    def act(self, observation: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """An action for an observation (o,), as a batch of one: (1,) int32, or (1, a) float32 if it is not Discrete."""
        scores = np.nan_to_num(observation) @ self._weights
        scores = scores + 2 * self._random.standard_normal(len(scores)).astype(np.float32)
        if self._is_discrete:
            return scores.argmax()[None].astype(np.int32)
        numbers, start = [], 0
        for part in self._parts:
            stop = start + (len(part.low) if isinstance(part, Continuous) else part.count)
            numbers.append(_choose(part, scores[start:stop]))
            start = stop
        return np.concatenate(numbers)[None].astype(np.float32)


def _choose(part: Discrete | Continuous | Binary, scores: npt.NDArray[np.float32]) -> npt.NDArray[Any]:
    """The numbers of a part of an action, for the scores of its outputs."""
    if isinstance(part, Discrete):
        return np.array([scores.argmax()])
    if isinstance(part, Binary):
        return scores > 0
    nearest = np.clip(0, part.low, part.high)  # the action that is closest to zero
    low, high = np.maximum(part.low, nearest - 10), np.minimum(part.high, nearest + 10)
    return np.clip((low + high) / 2 + scores * (high - low) / 2, low, high)


def trace(
    env: VectorEnv, seed: int, steps: int, failures: list[str] | None = None, neighbours: Sequence[int] = ()
) -> str:
    """Play an episode of at most `steps` steps.  Returns its trace: the SHA-256 (hex) of observations and rewards.

    failures: a list that gets the message of the episode if it fails.
    neighbours: seeds of episodes that are played beside it in the same batch, until it is over.
    """
    seeds = [seed, *neighbours]
    batch = env.open(seeds)
    policies = [ProbePolicy(env.interface, each) for each in seeds]
    observations = batch.observations
    sha = hashlib.sha256(observations[0].tobytes())
    places = np.arange(len(seeds), dtype=np.int32)
    for _ in range(steps):
        actions = [policies[place].act(row) for place, row in zip(places, observations, strict=True)]
        batch.send(places, np.concatenate(actions))
        observations, rewards, over = batch.receive()
        observations = np.array(observations, np.float32)
        sha.update(observations[0].tobytes() + np.float64(rewards[0]).tobytes() + over[:1].tobytes())
        places, observations = places[~over], observations[~over]
        if over[0]:
            break
    batch.close()
    if failures is not None and 0 in batch.failures:
        failures.append(batch.failures[0])
    return sha.hexdigest()


def trace_used(env: VectorEnv, seed: int, steps: int, failures: list[str] | None = None) -> str:
    """The trace of an episode after two others, the second of which was left unfinished.

    It has neighbours as far as `env` has slots for them.  failures: as of `trace`.
    """
    trace(env, EARLIER_SEEDS[0], steps)
    trace(env, EARLIER_SEEDS[1], steps // 3)
    return trace(env, seed, steps, failures, EARLIER_SEEDS[: env.slots - 1])


def carries_history(env: VectorEnv, steps: int = 50) -> bool:
    """Whether an episode of `env`, in which nothing has been played yet, changes after others."""
    first = trace(env, SEED, steps)
    for seed in EARLIER_SEEDS:
        trace(env, seed, steps)
    return trace(env, SEED, steps) != first


def ignores_seed(env: VectorEnv, steps: int = 50) -> bool:
    """Whether an episode of `env`, which plays each in a new object, differs from another one with the same seed."""
    return trace(env, SEED, steps) != trace(env, SEED, steps)


def memory_growth(env: VectorEnv, episodes: int, steps: int) -> int:
    """Bytes by which this process grows while it plays `episodes` episodes of at most `steps` steps.

    A tenth as many are played first, to fill caches.
    """
    before = 0
    for number in range(-(episodes // 10), episodes):
        if number == 0:
            before = _resident_bytes()
        trace(env, number + episodes, steps)
    return _resident_bytes() - before


def _resident_bytes() -> int:
    """The memory of this process, in bytes."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize()
