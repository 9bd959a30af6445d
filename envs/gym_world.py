"""Environments of gym's old interface, foremost the ones that come with pybullet.

gym is frozen at 0.26 and only imported when such an environment is asked for.  Its objects are dressed as
gymnasium's, so that the same batch serves both.
"""

import contextlib
import ctypes
import functools
import importlib
import inspect
import os
import random
import sys

import gymnasium
import numpy as np

from envs.base import EnvironmentProblem
from envs.gymnasium_world import cannot_build, nearest


@contextlib.contextmanager
def silence():
    """What Python or C prints inside is dropped: gym says that it is old, and pybullet when it was built."""
    saved = os.dup(1), os.dup(2)
    sys.stdout.flush()
    sys.stderr.flush()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        with contextlib.redirect_stdout(None), contextlib.redirect_stderr(None):
            yield
    finally:
        ctypes.CDLL(None).fflush(None)  # C keeps what it printed until its buffer is full
        for number, target in zip(saved, (1, 2), strict=True):
            os.dup2(number, target)
            os.close(number)
        os.close(nowhere)


@functools.cache
def registry():
    """gym's registry of ids to specs, pybullet's among them; empty where gym is not installed."""
    with silence():
        try:
            import gym.envs.registration as registration
        except ImportError:
            return {}

        class Registry(dict):
            """pybullet_envs looks for `env_specs`, which the registry had before it became a dict (gym 0.26)."""

            @property
            def env_specs(self):
                return self

        registration.registry = Registry(registration.registry)
        with contextlib.suppress(ImportError):
            importlib.import_module("pybullet_envs")
        return registration.registry


def offers(environment_id):
    """Whether pybullet registers this id with gym."""
    return environment_id in registry() and "pybullet" in str(registry()[environment_id].entry_point)


def make(environment_id, max_steps=None, render_mode=None, **kwargs):
    """An environment of gym's registry, dressed as gymnasium's.

    max_steps: time limit, None for its own.  render_mode: None, rgb_array or human, as gymnasium's.
    """
    known = registry()
    if not known:
        raise EnvironmentProblem(f'gym:{environment_id} needs gym, which is not installed; pip install "gym==0.26.2"')
    if environment_id not in known:
        close = nearest(environment_id, known)
        hint = f"; did you mean {' or '.join(close)}?" if close else ""
        raise EnvironmentProblem(f"{environment_id!r} is not known to gym{hint}")
    spec = known[environment_id]
    with cannot_build(environment_id), silence():
        module, _, name = spec.entry_point.partition(":")
        constructor = getattr(importlib.import_module(module), name)
        shown = _render_arguments(constructor, render_mode)
        # Minitaur and Kuka, among those in this package, draw from the process's generators.
        draws_globally = module.startswith("pybullet_envs.bullet")
        environment = Dressed(constructor(**{**shown, **spec.kwargs, **kwargs}), draws_globally)
    limit = max_steps or spec.max_episode_steps
    return gymnasium.wrappers.TimeLimit(environment, limit) if limit else environment


def _render_arguments(constructor, render_mode):
    """What a constructor must be told to be seen: before gym 0.26, only whether to open a window.

    Where it would open one by itself, pybullet ends the process if there is no screen.
    """
    known = inspect.signature(constructor).parameters
    if "render_mode" in known:
        return {"render_mode": render_mode} if render_mode else {}
    return {name: render_mode == "human" for name in ("renders", "render") if name in known}


class Dressed(gymnasium.Env):
    """An environment of gym's as gymnasium has them: seeds go into reset, a step returns five things.

    Serves the signatures before gym 0.26 (a method `seed`, four things from a step) and since.
    draws_globally: whether it draws from the generators of Python's `random` and `numpy.random`; it is then given
    states of its own, seeded with the episode, and those of the process stay as they were.
    """

    def __init__(self, environment, draws_globally=False):
        self.environment, self._draws_globally = environment, draws_globally
        self.observation_space = _dress_space(environment.observation_space)
        self.action_space = _dress_space(environment.action_space)
        metadata = getattr(environment, "metadata", {})
        self.metadata = {"render_fps": metadata.get("render_fps") or metadata.get("video.frames_per_second")}
        self._quiet = True

    @contextlib.contextmanager
    def _own_luck(self):
        if not self._draws_globally:
            yield
            return
        outside = random.getstate(), np.random.get_state()
        random.setstate(self._luck[0])
        np.random.set_state(self._luck[1])
        try:
            yield
        finally:
            self._luck = random.getstate(), np.random.get_state()
            random.setstate(outside[0])
            np.random.set_state(outside[1])

    def reset(self, *, seed=None, options=None):
        self._luck = random.Random(seed).getstate(), np.random.RandomState(seed).get_state()
        # Several of pybullet's start their simulator, which prints, at the first reset.
        with self._own_luck(), silence() if self._quiet else contextlib.nullcontext():
            self._quiet = False
            if seed is not None and hasattr(self.environment, "seed"):
                self.environment.seed(seed)
                found = self.environment.reset()
            else:
                found = self.environment.reset(seed=seed)
        if isinstance(found, tuple) and len(found) == 2 and isinstance(found[1], dict):
            return found
        return found, {}

    def step(self, action):
        with self._own_luck():
            found = self.environment.step(action)
        if len(found) == 5:
            return found
        observation, reward, over, info = found
        truncated = bool(info.get("TimeLimit.truncated", False))
        return observation, reward, bool(over) and not truncated, truncated, info

    def render(self):
        before = "mode" in inspect.signature(self.environment.render).parameters
        return self.environment.render(mode="rgb_array") if before else self.environment.render()

    def close(self):
        self.environment.close()


def _dress_space(space):
    """gymnasium's space for gym's; of kinds that are refused anyway, the same."""
    kinds = gymnasium.spaces
    if type(space).__name__ == "Box":
        return kinds.Box(np.asarray(space.low), np.asarray(space.high), space.shape, space.dtype.type)
    if type(space).__name__ == "Discrete":
        return kinds.Discrete(int(space.n), start=int(getattr(space, "start", 0)))
    return space
