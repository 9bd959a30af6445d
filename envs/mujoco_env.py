"""MuJoCo in batches: simulations of one model side by side, and a task that is the same for all of them.

A robot of one's own is a class of MujocoTask (docs/robots.md); gymnasium's are in mpies.envs.mujoco_tasks.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mpies.core.errors import EnvironmentProblem
from mpies.core.text import describe_error, message_of
from mpies.envs.base import EpisodeBatch, VectorEnv
from mpies.envs.build_errors import explain_build_errors
from mpies.envs.spaces import interface_of
from mpies.envs.trial import EARLIER_SEEDS, SEED, trace

Array = npt.NDArray[Any]

TRIAL = 20  # steps of the episodes that are played alone and among others before a run
_warnings: list[str] = []  # MuJoCo's, since the list was cleared last

# Fields of a model that mj_setConst derives from masses, inertias and the like.
_DERIVED = (
    *("body_subtreemass", "body_invweight0", "dof_invweight0", "dof_M0", "tendon_length0", "tendon_invweight0"),
    *("actuator_acc0", "actuator_length0"),
)


class Streams:
    """NumPy's random generators, one for each simulation.

    `random.uniform(-1, 1, 3)` is (n, 3), and row i is drawn from the stream of simulation i alone.  All methods of
    np.random.Generator are there.
    """

    def __init__(self, generators: Sequence[np.random.Generator]) -> None:
        self._generators = generators

    def __iter__(self) -> Iterator[np.random.Generator]:
        return iter(self._generators)

    def __getattr__(self, name: str) -> Callable[..., Array]:
        methods = [getattr(generator, name) for generator in self._generators]
        return lambda *args, **kwargs: np.array([method(*args, **kwargs) for method in methods])


class Simulations:
    """n simulations of one model.

    Every field of MjData is an array whose row i is simulation i: `sim.qpos` is (n, nq), a copy that cannot be written
    to, and `sim.qpos = values` writes all rows.  Any other name is the episode's own, and kept until its end:
    `sim.command = values` for an array (n, ...).

    model: MuJoCo's.  dt: seconds of a step of the task.
    """

    model: Any
    dt: float
    _batch: _MujocoBatch
    _rows: npt.NDArray[np.int32]  # the places of the batch
    _data: list[Any]
    _read: dict[str, Array]  # fields of MjData, until they change
    _memory: dict[str, tuple[Array, Array] | None]  # of MjData's fields, as `_MujocoBatch.memory` has it

    def __init__(self, batch: _MujocoBatch, rows: npt.NDArray[np.int32]) -> None:
        self.__dict__.update(model=batch.env.model, dt=batch.env.dt, _batch=batch, _rows=rows, _read={}, _memory={})
        self.__dict__["_data"] = [batch.data[row] for row in rows.tolist()]

    def __len__(self) -> int:
        return len(self._rows)

    def __getattr__(self, name: str) -> Array:
        if name in self._read:
            return self._read[name]
        own = self._batch.own
        if name in own:
            rows: Array = own[name][self._rows]
            return rows
        if not hasattr(type(self._data[0]), name):
            raise AttributeError(f"MjData has no field {name!r}, and no array of that name was set in this episode")
        memory = self._look_up(name)
        values = np.array([getattr(data, name) for data in self._data]) if memory is None else memory[0][memory[1]]
        values.flags.writeable = False
        self._read[name] = values
        return values

    def __setattr__(self, name: str, values: Any) -> None:
        if hasattr(type(self._data[0]), name):
            self._read.clear()
            values = np.asarray(values)
            values = np.broadcast_to(values, (len(self), *values.shape[1:]))
            memory = self._look_up(name)
            if memory is not None:
                span, index = memory
                span[index] = values.reshape(len(self), *(index.ndim - values.ndim) * (1,), *values.shape[1:])
                return
            for data, value in zip(self._data, values, strict=True):
                if isinstance(getattr(data, name), np.ndarray):
                    getattr(data, name)[...] = value
                else:
                    setattr(data, name, value)
            return
        values = np.array(values)
        if values.shape[:1] != (len(self),):
            raise ValueError(f"sim.{name} must have a row for each of {len(self)} simulations, but is {values.shape}")
        own = self._batch.own
        if name not in own or own[name].dtype != values.dtype or own[name].shape[1:] != values.shape[1:]:
            own[name] = np.zeros((len(self._batch._steps), *values.shape[1:]), values.dtype)
        own[name][self._rows] = values

    def _look_up(self, name: str) -> tuple[Array, Array] | None:
        """Where a field of these MjData is in memory; None for numbers, and for fields that move."""
        if name not in self._memory:
            found = self._batch.memory(name)
            self._memory[name] = found and (found[0], found[1][self._rows])
        return self._memory[name]

    def sensor(self, name: str) -> Array:
        """The values (n, dim) of a sensor of the model.  Raises KeyError where it has none of that name."""
        sensor = self.model.sensor(name)
        start = int(sensor.adr[0])
        values: Array = self.sensordata[:, start : start + int(sensor.dim[0])]
        return values

    def vary(self, name: str, values: Array) -> None:
        """Give each simulation its own values of a field of the model, until its episode ends.

        name: such as geom_friction or body_mass.  values: (n, ...), a row for each simulation.
        """
        default = np.array(getattr(self.model, name))
        varied = self._batch.varied
        if name not in varied:
            varied[name] = np.repeat(default[None], len(self._batch._steps), axis=0)
        varied[name][self._rows] = values


class MujocoTask:
    """What is the same for all episodes of a model: how they begin, what is observed, controlled and rewarded.

    Methods work on n simulations at once, and row i of what they return is of simulation i.  A row must not depend on
    the others, to the last bit: no matrix products, and no sums over rows.  Keyword arguments of the constructor are
    `environment.kwargs`.

    model: the path of an MJCF or URDF file beside the class's own, the text of an MJCF model, an MjSpec or an MjModel.
    frame_skip: simulation steps in a step of the task.
    max_steps: time limit, in steps; `environment.max_steps` comes before it.
    keyframe: name of the model's keyframe in which episodes begin; None for its qpos0.
    has_contact_forces: whether cfrc_ext and the like are computed after each step (mj_rnePostConstraint).
    low, high: (a,) bounds of the actions; None for those of the model's actuators.
    """

    model: Any
    frame_skip: int = 1
    max_steps: int | None = None
    keyframe: str | None = None
    has_contact_forces = False
    low: Array | None = None
    high: Array | None = None

    @classmethod
    def make_vector_env(cls, name: str, max_steps: int | None, **kwargs: Any) -> MujocoEnv:
        """What mpies calls for the task's environment."""
        return MujocoEnv(name, cls, max_steps, **kwargs)

    def randomize(self, sim: Simulations, random: Streams) -> None:
        """Give episodes models of their own by `sim.vary`, from `random` alone."""

    def reset(self, sim: Simulations, random: Streams) -> None:
        """Change the state in which episodes begin, and set arrays of their own."""

    def control(self, sim: Simulations, actions: Array) -> Array:
        """The controls (n, nu) of a step, from actions (n, a) float64."""
        return actions

    def before_step(self, sim: Simulations) -> None:
        """Remember what `outcome` must know of the state before a step."""

    def observe(self, sim: Simulations) -> Array:
        """Observations (n, o)."""
        return np.concatenate([sim.qpos, sim.qvel], axis=1)

    def outcome(self, sim: Simulations, actions: Array) -> tuple[Array, Array, Mapping[str, Array]]:
        """Of a step: rewards (n,), whether episodes are over (n,) bool, and the info: names to arrays (n, ...)."""
        raise NotImplementedError("the task must define outcome(sim, actions), which returns rewards, over and an info")


def _load(task: MujocoTask, name: str) -> Any:
    """The MjModel of a task.  Raises EnvironmentProblem where it cannot be loaded."""
    import mujoco

    mujoco.set_mju_user_warning(_warnings.append)  # or it writes them into a file
    source = getattr(task, "model", None)
    try:
        if isinstance(source, (str, Path)):
            if "<mujoco" in str(source):
                return mujoco.MjModel.from_xml_string(str(source))
            return mujoco.MjModel.from_xml_path(str(Path(inspect.getfile(type(task))).parent / source))
        model = source.compile() if isinstance(source, mujoco.MjSpec) else source
    except Exception as error:  # MuJoCo raises ValueError and its own
        raise EnvironmentProblem(f"{name}: its model cannot be loaded: {message_of(error)}") from error
    if not isinstance(model, mujoco.MjModel):
        raise EnvironmentProblem(
            f"{name}: `model` must be a path, the text of a model, an MjSpec or an MjModel, but is {source!r}"
        )
    return model


class MujocoEnv(VectorEnv):
    """Episodes of a MujocoTask.  A reset takes microseconds, and simulations are used for one episode after the other.

    name: of the environment, for messages.  task: the class, whose constructor is called with kwargs.
    max_steps: time limit, in steps; None for the task's own.
    Raises EnvironmentProblem where the task or its model cannot be built.
    """

    backend = "mujoco"
    slots, smallest, largest, low_water = 64, 8, 64, 16

    def __init__(self, name: str, task: type[MujocoTask], max_steps: int | None = None, **kwargs: Any) -> None:
        self.name = name
        self.render_mode = kwargs.pop("render_mode", None)  # rgb_array is for `watch`
        with explain_build_errors(name):
            import mujoco

            self.task = task(**kwargs)
        self.model = _load(self.task, name)
        from gymnasium.spaces import Box

        # A simulation that has become unstable is not reset without a word: its member fails.
        self.model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_AUTORESET
        self.dt = self.model.opt.timestep * self.task.frame_skip
        self.max_steps = max_steps or self.task.max_steps
        self.key = -1
        if self.task.keyframe is not None:
            try:
                self.key = self.model.key(self.task.keyframe).id
            except KeyError as error:
                raise EnvironmentProblem(f"{name}: its keyframe is not in the model: {message_of(error)}") from error
        limits = np.where(self.model.actuator_ctrllimited[:, None], self.model.actuator_ctrlrange, [-np.inf, np.inf])
        low, high = limits.T.astype(np.float32) if self.task.low is None else (self.task.low, self.task.high)
        self.size = 0  # o, of an observation; 0 until the first ones are there
        self.idle: list[Any] = []  # MjData that are not in use
        self._stays: dict[str, bool] = {}
        first = self.open([0])
        first.close()
        if first.failures:
            raise EnvironmentProblem(f"{name}: {first.failures[0]}")
        observation = Box(-np.inf, np.inf, (self.size,), np.float64)
        self.interface = interface_of(name, observation, Box(np.float32(low), np.float32(high)))

    def open(self, seeds: Sequence[int], is_training: bool = False) -> _MujocoBatch:
        return _MujocoBatch(self, seeds)

    def stays(self, data: Any, name: str) -> bool:
        """Whether a field of MjData stays where it is in memory: those of contacts move."""
        if name not in self._stays:
            field = getattr(data, name)
            is_array = isinstance(field, np.ndarray) and field.size > 0
            offset = field.ctypes.data - data.qpos.ctypes.data if is_array else -1
            self._stays[name] = 0 <= offset < data.nbuffer
        return self._stays[name]

    def try_out(self) -> None:
        """Play an episode alone and among others.  Raises EnvironmentProblem where it fails, or has other bits."""
        failures: list[str] = []
        alone, among = (trace(self, SEED, TRIAL, failures, others) for others in ((), EARLIER_SEEDS))
        if failures:
            raise EnvironmentProblem(f"{self.name}: {failures[0]}")
        if alone != among:
            raise EnvironmentProblem(
                f"{self.name}: an episode has other bits when it is played alone than among others, so results would "
                "depend on the number of ranks; compute each row by itself, without matrix products and sums over rows "
                "(docs/robots.md)"
            )


class _View:
    """A simulation as `watch` sees it: an environment of gymnasium with its renderer of MuJoCo."""

    def __init__(self, env: MujocoEnv, data: Any) -> None:
        from gymnasium.envs.mujoco.mujoco_rendering import MujocoRenderer

        self.metadata = {"render_fps": max(1, round(1 / env.dt))}
        self.unwrapped, self.mujoco_renderer = self, MujocoRenderer(env.model, data, None, 480, 480)

    def render(self) -> Any:
        """A frame (480, 480, 3) uint8."""
        return self.mujoco_renderer.render("rgb_array")


class _MujocoBatch(EpisodeBatch):
    """Episodes that began together, each in a simulation of its own, which is stepped in `receive`.

    data: MjData of the places whose episodes are not over.  own: arrays (k, ...) of the task's.
    varied: fields of the model that episodes have for themselves, (k, ...).
    """

    def __init__(self, env: MujocoEnv, seeds: Sequence[int]) -> None:
        import mujoco

        self.env, self._mujoco = env, mujoco
        self.failures, self.behaviours = {}, {}
        self.data = {row: env.idle.pop() if env.idle else mujoco.MjData(env.model) for row in range(len(seeds))}
        self._all = list(self.data.values())
        self._addresses = np.array([data.qpos.ctypes.data for data in self._all])
        self._memory: dict[str, tuple[Array, Array]] = {}
        self.own: dict[str, Array] = {}
        self.varied: dict[str, Array] = {}
        self._inertias: Array | None = None
        self._steps = np.zeros(len(seeds), np.int64)
        self._view: _View | None = None
        self.observations = np.zeros((len(seeds), env.size))
        rows = np.arange(len(seeds), dtype=np.int32)
        random = Streams([np.random.Generator(np.random.PCG64(np.random.SeedSequence(int(seed)))) for seed in seeds])
        self._sim = sim = Simulations(self, rows)
        _warnings.clear()
        try:
            env.task.randomize(sim, random)
            self._derive()
            for data in self.data.values():
                mujoco.mj_resetData(env.model, data)
                if env.key >= 0:
                    mujoco.mj_resetDataKeyframe(env.model, data, env.key)
            sim._read.clear()
            env.task.reset(sim, random)
            self._each(lambda data: mujoco.mj_forward(env.model, data))
            observations = np.asarray(env.task.observe(sim))
            env.size = env.size or math.prod(observations.shape[1:])
            self.observations = _shaped("observe", observations, (len(seeds), env.size))
            self._show()
        except Exception as error:  # a user's task may raise anything
            self.failures = dict.fromkeys(rows.tolist(), describe_error(error))

    def memory(self, name: str) -> tuple[Array, Array] | None:
        """The memory from the lowest of the MjData on, and where a field of each is in it; None where it moves.

        Reading by one index is several times faster than asking each MjData.
        """
        if name not in self._memory:
            if not self._all or not self.env.stays(self._all[0], name):
                return None
            lowest = int(self._addresses.argmin())
            field = getattr(self._all[lowest], name)
            places = (self._addresses - self._addresses[lowest]) // field.itemsize
            index = places.reshape(-1, *field.ndim * (1,)) + np.arange(field.size).reshape(field.shape)
            span = np.lib.stride_tricks.as_strided(field.reshape(-1), (int(index.max()) + 1,), (field.itemsize,))
            self._memory[name] = span, index
        return self._memory[name]

    def _derive(self) -> None:
        """Compute what follows from masses and the like that are varied."""
        if not self.varied:
            return
        model = self.env.model
        for name in _DERIVED:
            self.varied.setdefault(name, np.repeat(getattr(model, name)[None], len(self.data), axis=0))
        # The model's own arrays, the values of the episodes, and the model's own values.
        self._fields = [(getattr(model, name), rows, getattr(model, name).copy()) for name, rows in self.varied.items()]
        self._inertia, inertia = model.stat.meaninertia, np.zeros(len(self.data))
        for row, data in self.data.items():
            self._enter(row)
            self._mujoco.mj_setConst(model, data)
            inertia[row] = model.stat.meaninertia
            for name in _DERIVED:
                self.varied[name][row] = getattr(model, name)
        self._inertias = inertia
        self._leave()
        self._fields = [(field, rows, own) for field, rows, own in self._fields if (rows != own).any()]

    def _enter(self, row: int) -> None:
        """Give the model the fields that this episode has for itself."""
        for field, rows, _ in self._fields:
            field[...] = rows[row]
        if self._inertias is not None:
            self.env.model.stat.meaninertia = self._inertias[row]

    def _leave(self) -> None:
        """Give the model its own fields again."""
        for field, _, own in self._fields:
            field[...] = own
        self.env.model.stat.meaninertia = self._inertia

    def _each(self, advance: Callable[[Any], object]) -> None:
        """Do something with each MjData, with the model as it is for it; those of which MuJoCo warns fail."""
        for row, data in zip(self._sim._rows.tolist(), self._sim._data, strict=True):
            if self.varied:
                self._enter(row)
            try:
                advance(data)
                if _warnings:
                    raise RuntimeError(_warnings[0].strip())
            except Exception as error:
                self.failures[row] = f"MuJoCo: {message_of(error)}, in step {self._steps[row]}"
                _warnings.clear()
        if self.varied:
            self._leave()
        self._sim._read.clear()

    def send(self, places: npt.NDArray[np.int32], actions: Array) -> None:
        self._sent = places.copy(), actions.astype(np.float64)  # the caller may write into its own

    def receive(self) -> tuple[Array, Array, npt.NDArray[np.bool_]]:
        env, (rows, actions) = self.env, self._sent
        self._steps[rows] += 1
        count = len(rows)
        if not np.array_equal(rows, self._sim._rows):
            self._sim = Simulations(self, rows)
        sim = self._sim
        try:
            env.task.before_step(sim)
            controls = _shaped("control", env.task.control(sim, actions), (count, env.model.nu))
            sim.ctrl = controls
            self._advance()
            observations = _shaped("observe", env.task.observe(sim), (count, env.size))
            rewards, ended, info = env.task.outcome(sim, actions)
            rewards = _shaped("the rewards of outcome", rewards, (count,)).astype(np.float64)
            over = _shaped("the ends of outcome", ended, (count,)).astype(bool)
            if env.max_steps is not None:
                over = over | (self._steps[rows] >= env.max_steps)
            if env.behaviour:
                missing = [name for name in env.behaviour if name not in info]
                if missing:
                    raise EnvironmentProblem(f"{env.name} has no {missing[0]!r} in its info, only {sorted(info)}")
                values = [np.asarray(info[name], np.float64).reshape(count, -1) for name in env.behaviour]
                self.behaviours.update(zip(rows.tolist(), np.concatenate(values, axis=1), strict=True))
            self._show()
        except Exception as error:  # a user's task may raise anything
            self.failures |= dict.fromkeys(rows.tolist(), describe_error(error))
            observations, rewards, over = np.zeros((count, env.size)), np.zeros(count), np.ones(count, bool)
        if self.failures:
            failed = [row in self.failures for row in rows.tolist()]
            rewards[failed], over[failed] = np.nan, True
        env.idle += [self.data.pop(row) for row in rows[over].tolist()]
        return observations, rewards, over

    def _advance(self) -> None:
        """Step the simulations."""
        model, skip, step = self.env.model, self.env.task.frame_skip, self._mujoco.mj_step
        add_forces = self._mujoco.mj_rnePostConstraint
        if self.env.task.has_contact_forces:
            self._each(lambda data: (step(model, data, skip), add_forces(model, data)))
        else:
            self._each(lambda data: step(model, data, skip))

    def _show(self) -> None:
        """Show the first episode in a window, or to whoever watches."""
        if 0 in self.data and (self.env.watch or self.env.render_mode == "human"):
            self._view = self._view or _View(self.env, self.data[0])
            show = self.env.watch or (lambda view: view.mujoco_renderer.render("human"))
            show(self._view)

    def close(self) -> None:
        if self._view:
            self._view.mujoco_renderer.close()
        self.env.idle += self.data.values()
        self.data = {}


def _shaped(what: str, values: Any, shape: tuple[int, ...]) -> Array:
    """The values as an array of this shape.  Raises ValueError where they have another one."""
    array = np.asarray(values)
    if array.shape != shape:
        raise ValueError(f"{what} must return an array of shape {shape}, but it is {array.shape}")
    return array
