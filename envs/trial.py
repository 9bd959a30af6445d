"""Try out an environment before a run begins: one reset and one step of it, and whether its episodes can be repeated.

The same policy plays the same seed in fresh and in used environments.  The trace of an episode is a digest of all its
observations and rewards, so equal traces mean equal episodes.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import resource
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from mpies.core.errors import EnvironmentProblem
from mpies.core.text import describe_value
from mpies.envs.base import Binary, Composite, Continuous, Discrete, Interface, VectorEnv
from mpies.envs.build_errors import check_signature
from mpies.envs.spaces import flatten_observation, make_action, named_parts

if TYPE_CHECKING:
    import gymnasium

SEED = 20_240  # of the episode that is compared
EARLIER_SEEDS = (7, 8)  # of the episodes played before it
SEEDS = range(SEED, SEED + 5)  # an environment is refused when all of these episodes fail

_RESET = "as in def reset(self, *, seed=None, options=None)"
_STEP = "the five values observation, reward, terminated, truncated, info"


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


def play_one_step(environment: gymnasium.Env[Any, Any], interface: Interface, seed: int) -> None:
    """Reset the environment and take one step.

    Raises EnvironmentProblem, in words that name the reset, the observation, the reward or the return value, for what
    is wrong in every episode.  Raises ValueError for numbers that are not finite, and whatever the environment raises.
    """
    from gymnasium.wrappers import OrderEnforcing, TimeLimit

    inner: Any = environment
    arguments: dict[str, Any] = {"seed": seed}
    while isinstance(inner, (OrderEnforcing, TimeLimit)):  # they would hide what the environment itself returns
        inner, arguments = inner.env, {"seed": seed, "options": None}
    check_signature(inner.reset, f"reset must take {' and '.join(arguments)}, {_RESET}", **arguments)
    result = inner.reset(**arguments)
    if not isinstance(result, (tuple, list)) or len(result) != 2:
        raise EnvironmentProblem(
            f"reset must return the two values observation, info, but returns {describe_value(result)}"
        )
    observation = _check_observation(result[0], inner.observation_space, "reset")
    action = ProbePolicy(interface, seed).act(observation)[0]
    result = inner.step(make_action(inner.action_space, action))
    if not isinstance(result, (tuple, list)) or len(result) != 5:
        raise EnvironmentProblem(f"step must return {_STEP}, but returns {describe_value(result)}")
    observation, reward, terminated, truncated, _ = result
    _check_observation(observation, inner.observation_space, "step")
    _check_reward(reward)
    for name, flag in (("terminated", terminated), ("truncated", truncated)):
        if flag is None or isinstance(flag, str) or np.shape(flag) != ():
            raise EnvironmentProblem(
                f"{name} must be True or False, but is {describe_value(flag)}: step returns {_STEP}"
            )


def _check_observation(value: Any, space: Any, method: str) -> npt.NDArray[np.float32]:
    """The observation as a vector (o,) float32."""
    subject = f"the observation of {method}"
    _check_numbers(value, space, subject)
    try:
        return flatten_observation(space, value)
    except ValueError as error:  # a Dict or Tuple lacks a part
        raise EnvironmentProblem(f"{error}, in {subject}") from None


def _check_numbers(value: Any, space: Any, subject: str) -> None:
    """Check the numbers of an observation, of each part of a Dict or Tuple that it has."""
    from gymnasium import spaces

    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        for key, part in named_parts(space):
            with contextlib.suppress(KeyError, IndexError, TypeError):
                _check_numbers(value[key], part, f"part {key!r} of {subject}")
        return
    try:
        flat = np.asarray(value).ravel()
    except ValueError:  # lists of different lengths
        flat = np.array([None])
    if flat.dtype.kind not in "biuf":
        raise EnvironmentProblem(f"{subject} must hold numbers, but is {describe_value(value)}")
    if isinstance(space, spaces.Discrete):
        if flat.shape != (1,) or flat.dtype.kind == "f" or not 0 <= int(flat[0]) - int(space.start) < space.n:
            raise EnvironmentProblem(f"{subject} must be a whole number of {space}, but is {describe_value(value)}")
        return
    size = int(np.prod(space.shape))
    if flat.shape != (size,):
        raise EnvironmentProblem(f"{subject} must have {size} numbers, as observation_space says, but has {flat.size}")
    wrong = np.flatnonzero(~np.isfinite(flat))
    if len(wrong):
        raise ValueError(f"number {wrong[0]} of {subject} is {flat[wrong[0]]}, and must be finite")


def _check_reward(reward: Any) -> None:
    requirement = f"the reward of step must be a number, but is {describe_value(reward)}"
    if reward is None or isinstance(reward, str) or np.shape(reward) != ():
        raise EnvironmentProblem(requirement)
    try:
        number = float(reward)
    except (TypeError, ValueError):
        raise EnvironmentProblem(requirement) from None
    if not math.isfinite(number):
        raise ValueError(f"the reward of step is {number}, and must be finite")


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
