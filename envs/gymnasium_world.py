"""Environments with gymnasium's interface, one Python object per episode under way."""

import contextlib
import functools
import signal
import time

import numpy as np

from envs.base import Batch, Continuous, Discrete, EnvironmentProblem, Interface, World
from envs.probe import remembers

# gymnasium's own packages, and the extra of ours that brings each.
_EXTRAS = {
    "Box2D": "box2d",
    "mujoco": "mujoco",
    "pygame": "classic-control",
    "imageio": "mujoco",
    "ale_py": "atari",
    "cv2": "atari",
}


@functools.cache
def registry():
    """gymnasium's registry of ids, with our own small worlds in it."""
    import gymnasium

    gymnasium.logger.min_level = gymnasium.logger.ERROR
    gymnasium.register("CartPoleSwingUp-v0", "envs.cartpole_swingup:CartPoleSwingUp", max_episode_steps=1000)
    gymnasium.register("LQR-v0", "envs.lqr:LQR", max_episode_steps=300)
    return gymnasium.registry


def offers(environment_id):
    """Whether gymnasium has this id."""
    return environment_id in registry() or environment_id.startswith("ALE/")


@contextlib.contextmanager
def cannot_build(environment_id):
    """What a constructor raises, said in one line."""
    try:
        yield
    except EnvironmentProblem:
        raise
    except ModuleNotFoundError as error:
        raise _missing(environment_id, error) from error
    except TypeError as error:
        raise EnvironmentProblem(f"{environment_id} does not take these kwargs: {one_line(error)}") from error
    except Exception as error:  # a constructor may raise anything
        raise EnvironmentProblem(
            f"{environment_id} cannot be built: {type(error).__name__}: {one_line(error)}"
        ) from error


def make(environment_id, max_steps=None, **kwargs):
    """gymnasium.make with every way to fail said in one line."""
    import gymnasium

    known = registry()
    with cannot_build(environment_id):
        try:
            if environment_id.startswith("ALE/"):
                return _make_atari(environment_id, max_steps, **kwargs)
            return gymnasium.make(environment_id, max_episode_steps=max_steps, disable_env_checker=True, **kwargs)
        except gymnasium.error.DependencyNotInstalled as error:
            raise _missing(environment_id, error) from error
        except gymnasium.error.Error as error:
            close = nearest(environment_id, known)
            hint = f"; did you mean {' or '.join(close)}?" if close else ""
            raise EnvironmentProblem(
                f"{environment_id!r} is not known to gymnasium ({one_line(error)}){hint}"
            ) from error


def _make_atari(environment_id, max_steps, frame_skip=4, repeat_action_probability=0.0, **kwargs):
    """ale-py's emulator with what EnvPool's has: 84x84 grey, 4 frames, up to 30 no-ops first, all lives one episode."""
    import ale_py
    import gymnasium
    from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation, TimeLimit

    gymnasium.register_envs(ale_py)
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    kwargs |= {"frameskip": 1, "repeat_action_probability": repeat_action_probability}
    bare = gymnasium.make(environment_id, disable_env_checker=True, **kwargs)
    environment = FrameStackObservation(AtariPreprocessing(bare, frame_skip=frame_skip), 4)
    return TimeLimit(environment, max_steps or 27_000)


def one_line(error):
    return " ".join(str(error).split())


def nearest(environment_id, known):
    """The ids among `known` that look like this one, at most two."""
    import difflib

    return difflib.get_close_matches(str(environment_id), list(known), n=2, cutoff=0.6)


def _missing(environment_id, error):
    text = one_line(error)
    extra = next((extra for module, extra in _EXTRAS.items() if module.lower() in text.lower()), None)
    cure = f'pip install "mpies[{extra}]"' if extra else "install the package it names"
    return EnvironmentProblem(f"{environment_id} needs a package that is not installed ({text}); {cure}")


def interface_of(environment_id, observation_space, action_space):
    """The Interface of a gymnasium environment; refuses spaces that no policy here can serve."""
    from gymnasium import spaces

    if not isinstance(observation_space, (spaces.Box, spaces.Discrete, spaces.MultiBinary)):
        raise EnvironmentProblem(
            f"{environment_id} has observations of kind {type(observation_space).__name__}; "
            "a Box or Discrete is needed: wrap it with gymnasium.wrappers.FlattenObservation in a factory of your own"
        )
    size = int(spaces.flatdim(observation_space))
    is_image = observation_space.dtype == np.uint8 and len(observation_space.shape) == 3
    shape = tuple(observation_space.shape) if is_image else None
    if isinstance(action_space, spaces.Discrete):
        return Interface(size, Discrete(int(action_space.n)), shape)
    if isinstance(action_space, spaces.Box):
        low = np.asarray(action_space.low, np.float32).ravel()
        return Interface(size, Continuous(low, np.asarray(action_space.high, np.float32).ravel()), shape)
    raise EnvironmentProblem(
        f"{environment_id} has actions of kind {type(action_space).__name__}; Discrete or Box is needed"
    )


class GymnasiumWorld(World):
    """Environments that `build`, a function without arguments, makes.

    name: what they are called in messages.  rebuild: whether each episode gets a new object; None for finding out
    whether it needs one.  rebuild_every: episodes that an object serves, where it would fill the memory.
    timeout: seconds that an episode's own reset and steps may take before it fails; None lets it take its time.
    alone: whether two of them in one process disturb each other, so that one is played after the other.
    """

    # A few lanes spread the cost of the policy's matrix products.  Opening costs nothing, so ranks take half their
    # share of what is left at a time: who is done early finds something to do.
    lanes, smallest, largest, low_water, divisor = 8, 1, 8, 0, 2
    watch = None  # function of an environment, called after each reset and step, by who wants to see it

    def __init__(self, name, build, rebuild=None, rebuild_every=None, timeout=None, backend="gymnasium", alone=False):
        self.name, self.build, self.timeout, self.backend = name, build, timeout, backend
        self._rebuild_every = 1 if rebuild else rebuild_every
        if alone:
            self.lanes, self.smallest, self.largest, self.low_water = 1, 1, 1, 0
        first = build()
        self.observation_space, self.action_space = first.observation_space, first.action_space
        self.interface = interface_of(name, self.observation_space, self.action_space)
        self._idle = [(first, 0)]  # environments, and the episodes that each has played
        if rebuild is None and remembers(self):
            self._rebuild_every = 1
            self.close()

    def open(self, seeds, training=False):
        return _GymnasiumBatch(self, seeds)

    def take(self):
        """An environment and the episodes it has played."""
        return self._idle.pop() if self._idle else (self.build(), 0)

    def give_back(self, environment, played):
        if played == self._rebuild_every:
            environment.close()
        else:
            self._idle.append((environment, played))

    def close(self):
        for environment, _ in self._idle:
            environment.close()
        self._idle = []


@contextlib.contextmanager
def _alarm(limit, spent, place):
    """Adds what runs inside to spent[place]; raises TimeoutError in it when that exceeds `limit`, None being never."""
    if limit is None:
        yield
        return

    def ring(_number, _frame):
        raise TimeoutError(f"it took more than {limit:g} s")

    began = time.monotonic()
    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, max(limit - spent[place], 1e-4))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        spent[place] += time.monotonic() - began


class _GymnasiumBatch(Batch):
    def __init__(self, world, seeds):
        from gymnasium import spaces

        self._world = world
        self.failures, self.behaviours = {}, {}
        self._one_hot = isinstance(world.observation_space, spaces.Discrete)
        self._action_shape, self._action_type = world.action_space.shape, world.action_space.dtype
        self._action_start = int(getattr(world.action_space, "start", 0))
        size = world.interface.observation_size
        self.observations = np.zeros((len(seeds), size), np.float32)
        self._environments = {}  # place -> environment and the episodes it has played, of those under way
        self._spent = np.zeros(len(seeds))  # seconds of each episode's own; its neighbours' do not count
        for place, seed in enumerate(seeds):
            try:
                self._environments[place] = environment, _ = world.take()
                with _alarm(world.timeout, self._spent, place):
                    observation, _ = environment.reset(seed=int(seed))
                self._write(observation, self.observations[place])
                if world.watch:
                    world.watch(environment)
            except Exception as error:  # a user's environment may raise anything
                self._fail(place, error)

    def _fail(self, place, error):
        """Note what went wrong.  The environment's state is unknown: it is never used again."""
        known = isinstance(error, EnvironmentProblem)
        self.failures[place] = one_line(error) if known else f"{type(error).__name__}: {one_line(error)}"
        environment, _ = self._environments.pop(place, (None, 0))
        with contextlib.suppress(Exception):
            environment.close()

    def _write(self, observation, out):
        if self._one_hot:
            out[:] = 0
            out[int(observation) - int(self._world.observation_space.start)] = 1
            return
        flat = np.asarray(observation).ravel()
        if flat.shape != out.shape:
            raise ValueError(f"observation has {flat.size} numbers, {out.size} were promised")
        out[:] = flat

    def _behaviour(self, info):
        names = self._world.behaviour
        for name in names:
            if name not in info:
                raise EnvironmentProblem(f"{self._world.name} says no {name!r} in its info, only {sorted(info)}")
        return np.concatenate([np.ravel(info[name]).astype(np.float64) for name in names])

    def send(self, places, actions):
        self._sent = places, actions

    def receive(self):
        places, actions = self._sent
        observations = np.zeros((len(places), self._world.interface.observation_size), np.float32)
        rewards = np.full(len(places), np.nan)
        over = np.ones(len(places), bool)
        discrete = actions.ndim == 1
        for row, place in enumerate(places.tolist()):
            if place not in self._environments:  # it failed before its first step
                continue
            environment, played = self._environments[place]
            try:
                if discrete:
                    action = int(actions[row]) + self._action_start
                else:
                    action = actions[row].reshape(self._action_shape).astype(self._action_type, copy=False)
                with _alarm(self._world.timeout, self._spent, place):
                    observation, reward, terminated, truncated, info = environment.step(action)
                self._write(observation, observations[row])
                if self._world.behaviour:
                    self.behaviours[place] = self._behaviour(info)
                rewards[row] = reward
                over[row] = terminated or truncated
                if self._world.watch:
                    self._world.watch(environment)
            except Exception as error:
                self._fail(place, error)
                rewards[row], over[row] = np.nan, True
                continue
            if over[row]:
                del self._environments[place]
                self._world.give_back(environment, played + 1)
        return observations, rewards, over

    def close(self):
        """Give back the environments of episodes that nobody wanted to see the end of."""
        for environment, played in self._environments.values():
            self._world.give_back(environment, played + 1)
        self._environments = {}
