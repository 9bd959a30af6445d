"""Environments with gym's old interface, above all those of pybullet.

gym is frozen at version 0.26.  It is imported only for such an environment.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import functools
import importlib
import inspect
import math
import os
import random
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np

from mpies.core.errors import EnvironmentProblem
from mpies.core.text import describe_value, flush_output
from mpies.envs.build_errors import explain_build_errors, suggest_ids, suggest_pybullet

# Attributes of pybullet's walking robots: the weights of the parts of their reward.
REWARD_WEIGHTS = ("electricity_cost", "stall_torque_cost", "joints_at_limit_cost")


@contextlib.contextmanager
def silence() -> Iterator[None]:
    """Drop what Python or C code prints in the `with` block: gym's deprecation notice and pybullet's build time."""
    saved: dict[int, int] = {}
    for target in (1, 2):
        with contextlib.suppress(OSError):  # it may be closed
            saved[target] = fcntl.fcntl(target, fcntl.F_DUPFD_CLOEXEC, 3)  # not the place of another closed one
    flush_output()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        with contextlib.redirect_stdout(None), contextlib.redirect_stderr(None):
            yield
    finally:
        ctypes.CDLL(None).fflush(None)  # C buffers its output and would print it later
        for target in (1, 2):
            if target in saved:
                os.dup2(saved[target], target)
            os.close(saved.get(target, target))
        if nowhere > 2:
            os.close(nowhere)


@functools.cache
def load_registry() -> dict[str, Any]:
    """gym's registry, ids to specs, with pybullet's environments in it; empty if gym is not installed."""
    with silence():
        try:
            import gym.envs.registration as registration
        except ImportError:
            return {}

        class Registry(dict[str, Any]):
            """A dict with the attribute `env_specs`, which pybullet_envs reads and gym 0.26 no longer has."""

            @property
            def env_specs(self) -> dict[str, Any]:
                return self

        registration.registry = Registry(registration.registry)
        with contextlib.suppress(ImportError):
            importlib.import_module("pybullet_envs")
        return registration.registry


def offers(environment_id: str) -> bool:
    """Whether pybullet registers this id with gym."""
    known = load_registry()
    return environment_id in known and "pybullet" in str(known[environment_id].entry_point)


def make(
    environment_id: str, max_steps: int | None = None, render_mode: str | None = None, **kwargs: Any
) -> gymnasium.Env[Any, Any]:
    """Build an environment of gym's registry, with gymnasium's interface.

    max_steps: time limit, None for the environment's own.  render_mode: None, rgb_array or human, as in gymnasium.
    kwargs: for its constructor.  Those of pybullet's walking robots may also be REWARD_WEIGHTS.
    Raises EnvironmentProblem if gym is not installed, the id is unknown, the environment cannot be built or a weight is
    not a finite number.
    """
    known = load_registry()
    if not known:
        raise EnvironmentProblem(f'gym:{environment_id} needs gym, which is not installed; pip install "gym==0.26.2"')
    if environment_id not in known:
        hint = suggest_ids(environment_id, known) + suggest_pybullet(environment_id)
        raise EnvironmentProblem(f"{environment_id!r} is not known to gym{hint}")
    spec = known[environment_id]
    with explain_build_errors(environment_id), silence():
        module, _, name = spec.entry_point.partition(":")
        constructor = getattr(importlib.import_module(module), name)
        known_weights = [name for name in REWARD_WEIGHTS if name in kwargs and hasattr(constructor, name)]
        weights = {name: _check_weight(environment_id, name, kwargs.pop(name)) for name in known_weights}
        arguments = render_arguments(constructor, render_mode) | spec.kwargs | kwargs
        # Minitaur and Kuka are among those in this package that draw from the global generators.
        uses_global_random = module.startswith("pybullet_envs.bullet")
        bare = constructor(**arguments)
        for name, weight in weights.items():
            setattr(bare, name, weight)
        environment = GymAdapter(bare, uses_global_random)
    limit = max_steps or spec.max_episode_steps
    return gymnasium.wrappers.TimeLimit(environment, limit) if limit else environment


def _check_weight(environment_id: str, name: str, weight: Any) -> float:
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not math.isfinite(weight):
        raise EnvironmentProblem(
            f"{environment_id}: kwargs.{name} must be a finite number, the weight of a part of the reward, "
            f"but is {weight!r}"
        )
    return float(weight)


def render_arguments(constructor: Callable[..., Any], render_mode: str | None) -> dict[str, Any]:
    """The constructor's arguments for a render mode.  Before gym 0.26 there was only a flag for opening a window.

    The flag is always given: some environments open a window by default, and without a screen pybullet then ends the
    process.
    """
    known = inspect.signature(constructor).parameters
    if "render_mode" in known:
        return {"render_mode": render_mode} if render_mode else {}
    return {name: render_mode == "human" for name in ("renders", "render") if name in known}


class GymAdapter(gymnasium.Env[Any, Any]):
    """An environment of gym with gymnasium's interface: `reset` takes the seed, `step` returns five values.

    environment: of gym 0.26, or of an earlier version, with a method `seed` and four values from `step`.
    uses_global_random: whether it draws from Python's `random` and `numpy.random`.  These then have states of the
    adapter's own while the environment runs, seeded in `reset`; the states of the process do not change.
    """

    _random_states: tuple[Any, Any]  # of `random` and of `numpy.random`

    def __init__(self, environment: Any, uses_global_random: bool = False) -> None:
        self.environment, self._uses_global_random = environment, uses_global_random
        self.observation_space = _convert_space(environment.observation_space)
        self.action_space = _convert_space(environment.action_space)
        metadata = getattr(environment, "metadata", {})
        self.metadata = {"render_fps": metadata.get("render_fps") or metadata.get("video.frames_per_second")}
        self._is_first_reset = True

    @contextlib.contextmanager
    def _own_random_state(self) -> Iterator[None]:
        """Give the global generators this environment's states inside the `with` block."""
        if not self._uses_global_random:
            yield
            return
        outside = random.getstate(), np.random.get_state()
        random.setstate(self._random_states[0])
        np.random.set_state(self._random_states[1])
        try:
            yield
        finally:
            self._random_states = random.getstate(), np.random.get_state()
            random.setstate(outside[0])
            np.random.set_state(outside[1])

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self._random_states = random.Random(seed).getstate(), np.random.RandomState(seed).get_state()
        # Some of pybullet's environments start their simulator, which prints, in the first reset.
        with self._own_random_state(), silence() if self._is_first_reset else contextlib.nullcontext():
            self._is_first_reset = False
            if seed is not None and callable(getattr(self.environment, "seed", None)):  # else it may be a number
                self.environment.seed(seed)
                result = self.environment.reset()
            else:
                result = self.environment.reset(seed=seed)
        if isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], dict):
            return result
        return result, {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        with self._own_random_state():
            result = self.environment.step(action)
        if not isinstance(result, (tuple, list)) or len(result) not in (4, 5):
            raise EnvironmentProblem(
                f"step must return observation, reward, done, info, but returns {describe_value(result)}"
            )
        if len(result) == 5:
            return result  # type: ignore[return-value]  # checked by whoever unpacks it
        observation, reward, done, info = result
        if not isinstance(info, dict):
            raise EnvironmentProblem(f"the info of step must be a dict, but is {describe_value(info)}")
        truncated = bool(info.get("TimeLimit.truncated", False))
        return observation, reward, bool(done) and not truncated, truncated, info

    def render(self) -> Any:
        takes_mode = "mode" in inspect.signature(self.environment.render).parameters  # before gym 0.26
        return self.environment.render(mode="rgb_array") if takes_mode else self.environment.render()

    def close(self) -> None:
        if hasattr(self.environment, "close"):  # nothing else needs it
            self.environment.close()


def _convert_space(space: Any) -> Any:
    """gymnasium's space for gym's.  Spaces that no policy can serve are returned as they are."""
    kinds, kind = gymnasium.spaces, type(space).__name__
    if kind == "Box":
        return kinds.Box(np.asarray(space.low), np.asarray(space.high), space.shape, space.dtype.type)
    if kind == "Discrete":
        return kinds.Discrete(int(space.n), start=int(getattr(space, "start", 0)))
    if kind == "MultiDiscrete":
        return kinds.MultiDiscrete(np.asarray(space.nvec), start=getattr(space, "start", None))
    if kind == "MultiBinary":
        return kinds.MultiBinary(space.n)
    if kind == "Tuple":
        return kinds.Tuple([_convert_space(part) for part in space.spaces])
    if kind == "Dict":
        return kinds.Dict([(key, _convert_space(part)) for key, part in space.spaces.items()])
    return space
