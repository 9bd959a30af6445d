"""Try out an environment before a run begins: one reset and one step of it, and whether its episodes can be repeated.

The same random actions are taken with the same seed in fresh and in used environments.  The trace of an episode is a
digest of all its observations and rewards, so equal traces mean equal episodes.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import resource
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from mpies.core.errors import EnvironmentProblem
from mpies.core.text import describe_value
from mpies.envs.base import Action, Composite, Continuous, Interface, VectorEnv, draw_actions
from mpies.envs.build_errors import check_signature
from mpies.envs.spaces import flatten_observation, make_action, named_parts

if TYPE_CHECKING:
    import gymnasium

SEED = 20_240  # of the episode that is compared
EARLIER_SEEDS = (7, 8)  # of the episodes played before it
PATIENCE = 2.0  # seconds, as all ranks wait for what is tried out
SEEDS = range(SEED, SEED + 5)  # an environment is refused when all of these episodes fail

_RESET = "as in def reset(self, *, seed=None, options=None)"
_STEP = "the five values observation, reward, terminated, truncated, info"


def draw_action(action: Action, random: np.random.Generator) -> npt.NDArray[Any]:
    """A random action, (1,) int32 if discrete, else (1, a) float32, whose numbers are within 10 of those nearest 0."""
    return draw_actions(_narrow(action), 1, random)


def _narrow(action: Any) -> Any:
    """An action, or a part of one, with bounds that are within 10 of the number nearest 0."""
    if isinstance(action, Composite):
        return Composite(tuple(_narrow(part) for part in action.parts))
    if not isinstance(action, Continuous):
        return action
    nearest = np.clip(np.zeros_like(action.low), action.low, action.high)
    return Continuous(np.maximum(action.low, nearest - 10), np.minimum(action.high, nearest + 10))


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
    _check_observation(result[0], inner.observation_space, "reset")
    action = draw_action(interface.action, np.random.default_rng(seed))[0]
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


def _check_observation(value: Any, space: Any, method: str) -> None:
    subject = f"the observation of {method}"
    _check_kinds(value, space, subject)
    try:
        numbers = flatten_observation(space, value)
    except ValueError as error:
        raise EnvironmentProblem(f"{error}, in {subject}") from None
    wrong = np.flatnonzero(~np.isfinite(numbers))
    if len(wrong):
        raise ValueError(f"number {wrong[0]} of {subject} is {numbers[wrong[0]]}, and must be finite")


def _check_kinds(value: Any, space: Any, subject: str) -> None:
    """Check that an observation, or each part that it has, holds numbers: NumPy would take None for NaN."""
    from gymnasium import spaces

    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        for key, part in named_parts(space):
            with contextlib.suppress(KeyError, IndexError, TypeError):
                _check_kinds(value[key], part, f"part {key!r} of {subject}")
        return
    try:
        kind = np.asarray(value).dtype.kind
    except ValueError:  # lists of different lengths
        kind = "O"
    kinds, wanted = ("biu", "whole numbers") if isinstance(space, spaces.Discrete) else ("biuf", "numbers")
    if kind not in kinds:
        raise EnvironmentProblem(f"{subject} must hold {wanted}, but is {describe_value(value)}")


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
    env: VectorEnv,
    seed: int,
    steps: int,
    failures: list[str] | None = None,
    neighbours: Sequence[int] = (),
    action_seed: int | None = None,
    ended: list[bool] | None = None,
    until: float = math.inf,
) -> str:
    """Play an episode of at most `steps` steps.  Returns its trace: the SHA-256 (hex) of observations and rewards.

    failures: a list that gets the message of the episode if it fails.
    neighbours: seeds of episodes that are played beside it in the same batch, until it is over.
    action_seed: of the actions; None takes the episode's.  ended: a list that gets whether it was over.  until: of
    time.monotonic, at which it is broken off.
    """
    seeds = [seed, *neighbours]
    batch = env.open(seeds)
    randoms = [np.random.default_rng(each if action_seed is None else action_seed) for each in seeds]
    observations = batch.observations
    sha = hashlib.sha256(observations[0].tobytes())
    places = np.arange(len(seeds), dtype=np.int32)
    for _ in range(steps):
        batch.send(places, np.concatenate([draw_action(env.interface.action, randoms[place]) for place in places]))
        observations, rewards, over = batch.receive()
        observations = np.array(observations, np.float32)
        sha.update(observations[0].tobytes() + np.float64(rewards[0]).tobytes() + over[:1].tobytes())
        places = places[~over]
        if over[0] or time.monotonic() > until:
            break
    batch.close()
    if ended is not None:
        ended.append(0 not in places)
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


def never_ends(env: VectorEnv, steps: int) -> bool:
    """Whether an episode with random actions is not over after so many steps; False where they take too long."""
    ended: list[bool] = []
    trace(env, SEED, steps, ended=ended, until=(until := time.monotonic() + PATIENCE))
    return ended == [False] and time.monotonic() < until


def carries_history(env: VectorEnv, steps: int = 50) -> bool:
    """Whether an episode of `env`, in which nothing has been played yet, changes after others."""
    first = trace(env, SEED, steps)
    for seed in EARLIER_SEEDS:
        trace(env, seed, steps)
    return trace(env, SEED, steps) != first


def ignores_seed(env: VectorEnv, steps: int = 50) -> bool:
    """Whether an episode of `env`, which plays each in a new object, differs from another one with the same seed."""
    return trace(env, SEED, steps) != trace(env, SEED, steps)


def seeds_do_nothing(env: VectorEnv, steps: int) -> bool:
    """Whether episodes with different seeds and the same actions are the same; False where they take too long."""
    until, failures = time.monotonic() + PATIENCE, list[str]()
    traces = {trace(env, seed, steps, failures, action_seed=SEED, until=until) for seed in (SEED, SEED + 1)}
    return len(traces) == 1 and not failures and time.monotonic() < until


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
