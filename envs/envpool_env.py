"""A VectorEnv of EnvPool's environments, which step in C++, a batch for each call.

A call takes tens of microseconds however few environments it steps, so batches are large.  EnvPool takes seeds only
when a pool is built, and in general a second episode of an environment depends on the first.  So each batch is a pool
of its own, and each environment plays one episode; mpies.envs.envpool_reuse says where it may play others.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
import types
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from mpies.core.errors import EnvironmentProblem
from mpies.core.text import message_of
from mpies.envs.base import SEED_BITS, Calls, EpisodeBatch, VectorEnv
from mpies.envs.build_errors import suggest_ids
from mpies.envs.envpool_reuse import PoolStore, SeededPool
from mpies.envs.spaces import interface_of, named_parts, pick_parts

if TYPE_CHECKING:
    import gymnasium

# Families of environments that import fast.  `import envpool` would import them all, and Matplotlib with them: 1.5 s.
_FAST_FAMILIES = ("box2d", "classic_control", "mujoco.gym", "toy_text", "atari")

# Environments that end the process when they are built.
_CRASHING = {"Cig-v1", "MultiDuel-v1", "SearchAndRescue-v0"}

# Arguments of EnvPool's constructor that no user gives.
_FIXED_ARGUMENTS = ("task_id", "env_type", "num_threads")


@functools.cache
def _import_envpool() -> Any:
    """The package envpool without its families, which `offers` imports; None if it is not installed."""
    all_families = "envpool.entry"
    is_absent = all_families not in sys.modules
    if is_absent:
        sys.modules[all_families] = types.ModuleType(all_families)  # `import envpool` finds it empty
    try:
        import envpool
    except ImportError:
        return None
    finally:
        if is_absent:
            del sys.modules[all_families]
    return envpool


def is_installed() -> bool:
    """Whether EnvPool can be imported."""
    return _import_envpool() is not None


def has_all_data() -> bool:
    """Whether EnvPool's large packages of data are installed, without which it lists some families only."""
    return importlib.util.find_spec("envpool_assets_mujoco_large") is not None


@functools.cache
def offers(environment_id: str) -> bool:
    """Whether EnvPool is installed and has this id, and the data of its family."""
    envpool = _import_envpool()
    if envpool is None or ":" in environment_id:  # MODULE:ID is gymnasium's
        return False
    for family in (*(f"envpool.{name}.registration" for name in _FAST_FAMILIES), "envpool.entry"):
        try:
            importlib.import_module(family)
        except FileNotFoundError:
            if has_all_data():
                raise
            return False
        if environment_id in envpool.registration.registry.specs:
            return True
    return False


def is_atari(environment_id: str) -> bool:
    """Whether EnvPool is installed and has this id for an Atari game."""
    if not offers(environment_id):
        return False
    family: str = _import_envpool().registration.registry.specs[environment_id][0]
    return family == "envpool.atari"


class EnvPoolEnv(VectorEnv):
    """Episodes of an environment in EnvPool's registry.

    max_steps: time limit, None for the environment's own.
    observations: names of the parts of a Dict that are observed; () for all.
    kwargs: for EnvPool's constructor.  With obs_type="ram", as in ale-py, the observation of an Atari game is its
    memory (128,) in place of images.
    Raises EnvironmentProblem if EnvPool is not installed, does not know the id or cannot build the environment, and
    if no policy can serve its spaces.
    """

    backend = "envpool"
    slots, smallest, largest, low_water = 64, 8, 256, 16

    def __init__(
        self, environment_id: str, max_steps: int | None = None, observations: Sequence[str] = (), **kwargs: Any
    ) -> None:
        envpool = _import_envpool()
        if envpool is None:
            raise EnvironmentProblem(
                f"{environment_id} with backend envpool needs a package that is not installed; "
                'pip install "mpies[envpool]", or begin another run with environment.backend=gymnasium'
            )
        if not offers(environment_id):
            hint = suggest_ids(environment_id, envpool.list_all_envs())
            raise EnvironmentProblem(f"{environment_id!r} is not known to EnvPool{hint}")
        if environment_id.rpartition("/")[2] in _CRASHING:
            raise EnvironmentProblem(
                f"{environment_id} of EnvPool crashes when it is built; choose another environment"
            )
        family = envpool.registration.registry.specs[environment_id][0]
        is_ram = family == "envpool.atari" and kwargs.get("obs_type") == "ram"
        kwargs = {name: value for name, value in kwargs.items() if not (is_ram and name == "obs_type")}
        self._observed = [f"obs:{name}" for name in observations] or ["info:ram" if is_ram else "obs"]
        self._arguments: dict[str, Any] = dict(task_id=environment_id, env_type="gymnasium", num_threads=1, **kwargs)
        if max_steps is not None:
            self._arguments["max_episode_steps"] = max_steps
        self.max_steps = max_steps
        pool = self._make_pool([0])
        if (players := pool.config["max_num_players"]) > 1:
            raise EnvironmentProblem(
                f"{environment_id} is a game of {players} players, and a policy plays games of one; choose another"
            )
        with warnings.catch_warnings(action="ignore"):  # gymnasium warns of bounds that lose precision
            space = _memory() if is_ram else pool.observation_space
            space = pick_parts(environment_id, space, observations) if observations else space
            self.interface = interface_of(environment_id, space, pool.action_space)
        self._counts = dict(_find_counts(pool.observation_space, "obs"))
        self.numbers_episodes = family == "envpool.mujoco.gym"
        self._store = PoolStore(self._make_pool, 2 * self.largest)
        if self.interface.shape or is_ram:  # an emulator takes much memory, and a step much longer than a call
            self.slots, self.smallest, self.largest, self.low_water = 8, 1, 8, 6
        elif family == "envpool.classic_control":  # a step takes less time than a call
            self.slots = self.largest = 160

    def _make_pool(self, seeds: Sequence[int]) -> Any:
        """A new pool with an environment for each seed."""
        with warnings.catch_warnings(action="ignore"):
            try:
                return _import_envpool().make(num_envs=len(seeds), seed=list(seeds), **self._arguments)
            except Exception as error:
                reason = message_of(error)
                if "incompatible constructor arguments" in reason:  # and hundreds of characters of types
                    reason = "a number is too large for it, or a value of another type than it expects"
                given = {name: value for name, value in self._arguments.items() if name not in _FIXED_ARGUMENTS}
                values = "".join(f", {name}={value!r}" for name, value in given.items())
                cure = "; change max_steps, frame_skip or kwargs of the environment" if given else ""
                name = self._arguments["task_id"]
                raise EnvironmentProblem(f"EnvPool cannot build {name}{values}: {reason}{cure}") from error

    def open(self, seeds: Sequence[int], is_training: bool = False) -> _EnvPoolBatch:
        seeds_and_numbers = np.array(seeds, np.int64)
        numbers = seeds_and_numbers >> SEED_BITS
        if self.numbers_episodes and numbers.any():
            pool = self._store.take(seeds_and_numbers & (1 << SEED_BITS) - 1, numbers)
            store: PoolStore | None = self._store
        else:
            pool, numbers, store = self._store.make(seeds_and_numbers), np.ones_like(numbers), None
        return _EnvPoolBatch(
            *(pool, numbers, store, self.interface.observation_size, self.behaviour, self._counts),
            *(self.max_steps, self._observed),
        )

    def close(self) -> None:
        self._store.close()


def _memory() -> gymnasium.Space[Any]:
    """The space of the memory of an Atari console."""
    from gymnasium import spaces

    return spaces.Box(0, 255, (128,), np.uint8)


def _find_counts(space: gymnasium.Space[Any], name: str) -> Iterator[tuple[str, int]]:
    """The names of the Discrete parts of an observation with their counts.

    space, name: of the observation or a part of it, such as obs:position:row.
    """
    from gymnasium import spaces

    if isinstance(space, spaces.Discrete):
        yield name, int(space.n)
    elif isinstance(space, spaces.Dict):
        for key, part in named_parts(space):
            yield from _find_counts(part, f"{name}:{key}")


def _flatten_rows(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The array (m, ...) as (m, n)."""
    return values if values.ndim == 2 else values.reshape(len(values), -1)


def _read_part(state: list[npt.NDArray[Any]], at: int, count: int | None) -> npt.NDArray[Any]:
    """The part (m, n) of observations at this position of a state.

    count: of a Discrete part, whose numbers become one-hot vectors; None for others.
    """
    if count is None:
        return _flatten_rows(state[at])
    rows = np.zeros((len(state[at]), count), np.float32)
    rows[np.arange(len(rows)), state[at].ravel()] = 1
    return rows


class _EnvPoolBatch(EpisodeBatch):
    """A pool whose first environments play an episode each; an environment's id in the pool is the episode's place.

    It calls EnvPool's own `_send` and `_recv`: the public `step` builds dicts, which takes 20 us for each call.

    numbers: (k,) which episode of its environment each is, counted from 1.  store: keeps the pool in the end, if given.
    size: o, of an observation.  behaviour: names of entries of the info.
    counts: of the parts of an observation that EnvPool returns as single numbers, which become one-hot vectors here.
    max_steps: as of VectorEnv; many environments of EnvPool disregard the limit that they are given.
    observed: entries of a state that are the observation, or begin the names of its parts.
    Raises EnvironmentProblem if the info lacks one of them.
    """

    def __init__(
        self,
        seeded: SeededPool,
        numbers: npt.NDArray[np.int64],
        store: PoolStore | None,
        size: int,
        behaviour: Sequence[str],
        counts: Mapping[str, int],
        max_steps: int | None,
        observed: Sequence[str],
    ) -> None:
        self._seeded, self._store, pool = seeded, store, seeded.pool
        self._pool = pool
        self.failures, self.behaviours = {}, {}
        self._max_steps, self._steps = max_steps, np.zeros(len(numbers), np.int64)
        self._action_type = pool.spec.action_array_spec["action"].dtype
        # A state is a list of arrays; these are the positions in it.  `done` is true of truncated episodes too.
        names: list[str] = pool._state_keys
        self._env_id, self._reward, self._done = (names.index(name) for name in ("info:env_id", "reward", "done"))
        uniform = [f"{name.replace('.', ':')}:" for name in names]  # EnvPool uses both
        parts = [at for at, name in enumerate(uniform) if name.startswith(tuple(f"{one}:" for one in observed))]
        self._parts = [(at, counts.get(uniform[at][:-1])) for at in parts]
        info = [name.removeprefix("info:") for name in names if name.startswith("info:")]
        for name in behaviour:
            if name not in info:
                raise EnvironmentProblem(f"environment.behaviour: EnvPool has no {name!r} in its info, only {info}")
        self._behaviour = [names.index(f"info:{name}") for name in behaviour]
        self.observations = np.empty((len(numbers), size), np.float32)
        for state in seeded.begin(numbers):
            self.observations[state[self._env_id]] = self._read_observations(state)
        first = state[parts[0]]
        can_be_copied = first.dtype == np.uint8 or (first.ndim == 2 and first.dtype.kind == "f")
        if [count for _, count in self._parts] == [None] and can_be_copied and not behaviour:
            at = parts[0], self._reward, self._done, self._env_id
            self.calls = Calls(pool._send, pool._recv, at, self._action_type)

    def _read_observations(self, state: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
        """The observations (m, o) in a state."""
        if len(self._parts) == 1:
            return _read_part(state, *self._parts[0])
        return np.concatenate([_read_part(state, *part) for part in self._parts], axis=1, dtype=np.float32)

    def send(self, places: npt.NDArray[np.int32], actions: npt.NDArray[Any]) -> None:
        self._places = places
        if self._action_type.kind in "iu":
            actions = np.rint(actions)
        self._pool._send([places, places, actions.astype(self._action_type, copy=False)])

    def receive(self) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[np.bool_]]:
        state = self._pool._recv()
        if self._behaviour:
            parts = [_flatten_rows(state[position]) for position in self._behaviour]
            values = np.concatenate(parts, axis=1, dtype=np.float64)
            self.behaviours.update(zip(state[self._env_id].tolist(), values, strict=True))
        observations, rewards, over = self._read_observations(state), state[self._reward], state[self._done]
        env_ids = state[self._env_id]
        if self._max_steps is not None:
            self._steps[env_ids] += 1
            over = over | (self._steps[env_ids] >= self._max_steps)
        if env_ids.tobytes() == self._places.tobytes():  # eight times as fast as NumPy's comparison of so few
            return observations, rewards, over
        order = np.argsort(env_ids)[np.argsort(np.argsort(self._places))]
        return observations[order], rewards[order], over[order]

    def close(self) -> None:
        if self._pool and self._store:
            self._store.give_back(self._seeded)
        elif self._pool:
            self._pool.close()
        self._pool = self.calls = None
