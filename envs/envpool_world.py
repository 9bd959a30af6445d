"""Environments stepped in C++ by EnvPool, a batch per call.

A call costs tens of microseconds however few environments it steps, so batches are kept wide.
EnvPool takes seeds only when a pool is built and a second episode of an environment would depend
on the first, so each batch is a pool of its own and every environment plays one episode.
"""

import functools
import importlib
import sys
import types
import warnings

import numpy as np

from envs.base import Batch, Calls, EnvironmentProblem, World
from envs.gymnasium_world import interface_of, nearest, one_line

# `import envpool` imports all of its families, and Matplotlib with them: 1.5 s, where most runs need one of these.
_SMALL = ("box2d", "classic_control", "mujoco.gym", "toy_text", "atari")


@functools.cache
def _envpool():
    """The package without its families, which `offers` adds; None where it is not installed."""
    whole = "envpool.entry"
    absent = whole not in sys.modules
    if absent:
        sys.modules[whole] = types.ModuleType(whole)
    try:
        import envpool
    except ImportError:
        return None
    finally:
        if absent:
            del sys.modules[whole]
    return envpool


@functools.cache
def offers(environment_id):
    """Whether EnvPool is installed and has this id."""
    envpool = _envpool()
    if envpool is None or ":" in environment_id:  # a module's own id
        return False
    for family in (*(f"envpool.{name}.registration" for name in _SMALL), "envpool.entry"):
        importlib.import_module(family)
        if environment_id in envpool.registration.registry.specs:
            return True
    return False


class EnvPoolWorld(World):
    """An id of EnvPool's registry.  max_steps: time limit, None for the environment's own."""

    backend = "envpool"
    lanes, smallest, largest, low_water = 64, 8, 256, 16

    def __init__(self, environment_id, max_steps=None, **kwargs):
        envpool = _envpool()
        if envpool is None:
            raise EnvironmentProblem(
                f"{environment_id} with backend envpool needs a package that is not installed; "
                'pip install "mpies[envpool]"'
            )
        if not offers(environment_id):
            close = nearest(environment_id, envpool.list_all_envs())
            hint = f"; did you mean {' or '.join(close)}?" if close else ""
            raise EnvironmentProblem(f"{environment_id!r} is not known to EnvPool{hint}")
        self._arguments = dict(task_id=environment_id, env_type="gymnasium", num_threads=1, **kwargs)
        if max_steps is not None:
            self._arguments["max_episode_steps"] = max_steps
        pool = self._make([0])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # bounds that lose precision
            self.interface = interface_of(environment_id, _flat(pool.observation_space), pool.action_space)
        if self.interface.shape:  # emulators take memory, and a step of one takes long
            self.lanes, self.smallest, self.largest, self.low_water = 8, 1, 8, 6

    def _make(self, seeds):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                return _envpool().make(num_envs=len(seeds), seed=list(seeds), **self._arguments)
            except Exception as error:
                raise EnvironmentProblem(
                    f"EnvPool cannot build {self._arguments['task_id']}: {one_line(error)}"
                ) from error

    def open(self, seeds, training=False):
        return _EnvPoolBatch(self._make([int(seed) for seed in seeds]), self.interface.observation_size, self.behaviour)


def _rows(values):
    return values if values.ndim == 2 else values.reshape(len(values), -1)


def _flat(space):
    """dm_control's observations come in named parts; they are joined in EnvPool's own order."""
    from gymnasium import spaces

    if not isinstance(space, spaces.Dict) or not all(isinstance(part, spaces.Box) for part in space.values()):
        return space
    return spaces.Box(-np.inf, np.inf, (spaces.flatdim(space),), np.float32)


class _EnvPoolBatch(Batch):
    """A pool whose environments each play one episode.

    It is driven by EnvPool's own `_send` and `_recv`: the public `step` builds dicts and costs 20 us a call.
    """

    def __init__(self, pool, width, behaviour=()):
        self._pool = pool
        self.failures, self.behaviours = {}, {}
        self._action_type = pool.spec.action_array_spec["action"].dtype
        names = pool._state_keys
        # EnvPool says of a truncated episode too that it is done.
        self._env_id, self._reward, self._done = (names.index(name) for name in ("info:env_id", "reward", "done"))
        self._parts = [place for place, name in enumerate(names) if name == "obs" or name.startswith("obs:")]
        said = [name.removeprefix("info:") for name in names if name.startswith("info:")]
        for name in behaviour:
            if name not in said:
                raise EnvironmentProblem(f"EnvPool says no {name!r} in its info of this environment, only {said}")
        self._behaviour = [names.index(f"info:{name}") for name in behaviour]
        self.observations = np.empty((len(pool), width), np.float32)
        pool._reset(pool.all_env_ids)
        state = pool._recv()
        self.observations[state[self._env_id]] = self._observed(state)
        first = state[self._parts[0]]
        if len(self._parts) == 1 and first.ndim == 2 and first.dtype.kind == "f" and not behaviour:
            at = *self._parts, self._reward, self._done, self._env_id
            self.calls = Calls(pool._send, pool._recv, at, self._action_type)

    def _observed(self, state):
        """The observations (m, o) in a state."""
        if len(self._parts) == 1:
            return _rows(state[self._parts[0]])
        return np.concatenate([_rows(state[part]) for part in self._parts], axis=1, dtype=np.float32)

    def send(self, places, actions):
        self._places = places
        self._pool._send([places, places, actions.astype(self._action_type, copy=False)])

    def receive(self):
        state = self._pool._recv()
        if self._behaviour:
            values = np.concatenate([_rows(state[part]) for part in self._behaviour], axis=1, dtype=np.float64)
            self.behaviours.update(zip(state[self._env_id].tolist(), values, strict=True))
        found, env_ids = (self._observed(state), state[self._reward], state[self._done]), state[self._env_id]
        if env_ids.tobytes() == self._places.tobytes():  # an eighth of what NumPy takes to compare so few
            return found
        order = np.argsort(env_ids)[np.argsort(np.argsort(self._places))]
        return tuple(values[order] for values in found)

    def close(self):
        self._pool.close()
        self._pool = self.calls = None
