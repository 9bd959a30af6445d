"""Try out an environment object: one reset and one step, so that a mistake in it is named before a run begins."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from mpies.envs.base import EnvironmentProblem, Interface
from mpies.envs.messages import describe_value
from mpies.envs.probe import SEED, ProbePolicy

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
    _check_signature(inner.reset, f"reset must take {' and '.join(arguments)}, {_RESET}", **arguments)
    result = inner.reset(**arguments)
    if not isinstance(result, (tuple, list)) or len(result) != 2:
        raise EnvironmentProblem(
            f"reset must return the two values observation, info, but returns {describe_value(result)}"
        )
    observation = _check_observation(result[0], inner.observation_space, interface, "reset")
    action = ProbePolicy(interface, seed).act(observation)[0]
    result = inner.step(_as_action(action, inner.action_space))
    if not isinstance(result, (tuple, list)) or len(result) != 5:
        raise EnvironmentProblem(f"step must return {_STEP}, but returns {describe_value(result)}")
    observation, reward, terminated, truncated, _ = result
    _check_observation(observation, inner.observation_space, interface, "step")
    _check_reward(reward)
    for name, flag in (("terminated", terminated), ("truncated", truncated)):
        if flag is None or isinstance(flag, str) or np.shape(flag) != ():
            raise EnvironmentProblem(
                f"{name} must be True or False, but is {describe_value(flag)}: step returns {_STEP}"
            )


def _check_signature(method: Callable[..., Any], requirement: str, **arguments: Any) -> None:
    try:
        signature = inspect.signature(method)
    except (TypeError, ValueError):  # compiled code has none
        return
    try:
        signature.bind(**arguments)
    except TypeError:
        raise EnvironmentProblem(f"{requirement}, but takes {signature}") from None


def _as_action(action: Any, space: gymnasium.Space[Any]) -> Any:
    """An action of the ProbePolicy as a batch gives it to the environment."""
    if np.ndim(action) == 0:
        return int(action) + int(getattr(space, "start", 0))
    return action.reshape(space.shape).astype(space.dtype, copy=False)


def _check_observation(value: Any, space: gymnasium.Space[Any], interface: Interface, method: str) -> Any:
    """The observation as a vector (o,) float32."""
    from gymnasium import spaces

    subject = f"the observation of {method}"
    try:
        flat = np.asarray(value).ravel()
    except ValueError:  # lists of different lengths
        flat = np.array([None])
    if flat.dtype.kind not in "biuf":
        raise EnvironmentProblem(f"{subject} must hold numbers, but is {describe_value(value)}")
    if isinstance(space, spaces.Discrete):
        if flat.shape != (1,) or flat.dtype.kind == "f" or not 0 <= int(flat[0]) - int(space.start) < space.n:
            raise EnvironmentProblem(f"{subject} must be a whole number of {space}, but is {describe_value(value)}")
        return np.eye(int(space.n), dtype=np.float32)[int(flat[0]) - int(space.start)]
    if flat.shape != (interface.observation_size,):
        raise EnvironmentProblem(
            f"{subject} must have {interface.observation_size} numbers, as observation_space says, but has {flat.size}"
        )
    wrong = np.flatnonzero(~np.isfinite(flat))
    if len(wrong):
        raise ValueError(f"number {wrong[0]} of {subject} is {flat[wrong[0]]}, and must be finite")
    return flat.astype(np.float32)


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
