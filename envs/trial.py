"""Try out an environment object: one reset and one step, so that a mistake in it is named before a run begins."""

from __future__ import annotations

import contextlib
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from mpies.core.errors import EnvironmentProblem
from mpies.core.text import describe_value
from mpies.envs.base import Interface
from mpies.envs.messages import check_signature
from mpies.envs.probe import SEED, ProbePolicy
from mpies.envs.spaces import flatten_observation, make_action, named_parts

if TYPE_CHECKING:
    import gymnasium

SEEDS = range(SEED, SEED + 5)  # an environment is refused when all of these episodes fail

_RESET = "as in def reset(self, *, seed=None, options=None)"
_STEP = "the five values observation, reward, terminated, truncated, info"


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
