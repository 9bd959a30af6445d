"""Environments registered with gymnasium, one Python object per episode under way."""

import contextlib
import signal
import time

import numpy as np

from envs.base import Batch, Continuous, Discrete, EnvironmentProblem, Interface, World

# gymnasium's own packages, and the extra of ours that brings each.
_EXTRAS = {"Box2D": "box2d", "mujoco": "mujoco", "pygame": "classic-control", "imageio": "mujoco", "ale_py": "atari"}


def make(environment_id, max_steps=None, **kwargs):
    """gymnasium.make with every way to fail said in one line."""
    import gymnasium

    gymnasium.logger.min_level = gymnasium.logger.ERROR
    try:
        return gymnasium.make(environment_id, max_episode_steps=max_steps, disable_env_checker=True, **kwargs)
    except gymnasium.error.DependencyNotInstalled as error:
        raise _missing(environment_id, error) from error
    except gymnasium.error.Error as error:
        close = _nearest(environment_id, gymnasium.registry)
        hint = f"; did you mean {' or '.join(close)}?" if close else ""
        raise EnvironmentProblem(f"{environment_id!r} is not known to gymnasium ({_line(error)}){hint}") from error
    except ModuleNotFoundError as error:
        raise _missing(environment_id, error) from error
    except TypeError as error:
        raise EnvironmentProblem(f"{environment_id} does not take these kwargs: {_line(error)}") from error
    except Exception as error:  # a constructor may raise anything
        raise EnvironmentProblem(f"{environment_id} cannot be built: {type(error).__name__}: {_line(error)}") from error


def _line(error):
    return " ".join(str(error).split())


def _nearest(environment_id, known):
    import difflib

    return difflib.get_close_matches(str(environment_id), list(known), n=2, cutoff=0.6)


def _missing(environment_id, error):
    text = _line(error)
    extra = next((extra for module, extra in _EXTRAS.items() if module.lower() in text.lower()), None)
    cure = f'pip install "mpies[{extra}]"' if extra else "install the package it names"
    return EnvironmentProblem(f"{environment_id} needs a package that is not installed ({text}); {cure}")


def interface_of(environment_id, observation_space, action_space):
    """The Interface of a gymnasium environment; refuses spaces that no policy here can serve."""
    from gymnasium import spaces

    if isinstance(observation_space, (spaces.Dict, spaces.Tuple, spaces.Text, spaces.Graph, spaces.Sequence)):
        raise EnvironmentProblem(
            f"{environment_id} has observations of kind {type(observation_space).__name__}; "
            "a Box or Discrete is needed: wrap it with gymnasium.wrappers.FlattenObservation in a factory of your own"
        )
    size = int(spaces.flatdim(observation_space))
    if isinstance(action_space, spaces.Discrete):
        return Interface(size, Discrete(int(action_space.n)))
    if isinstance(action_space, spaces.Box):
        low = np.asarray(action_space.low, np.float32).ravel()
        return Interface(size, Continuous(low, np.asarray(action_space.high, np.float32).ravel()))
    raise EnvironmentProblem(
        f"{environment_id} has actions of kind {type(action_space).__name__}; Discrete or Box is needed"
    )


# Environments whose episodes depend on the ones played before in the same object (gym#2390: contacts are
# kept in another order); a new object for each episode mends it.
LEAKS_HISTORY = ("BipedalWalker-v3", "BipedalWalkerHardcore-v3")


class GymnasiumWorld(World):
    """Any id of gymnasium's registry.

    environment_id, kwargs: as for gymnasium.make.  max_steps: time limit, None for the environment's own.
    rebuild: whether each episode gets a new object; None where the environment is known to need it.
    timeout: seconds that an episode's own reset and steps may take before it fails; None lets it take its time.
    """

    # A few lanes spread the cost of the policy's matrix products; opening costs nothing.
    lanes, smallest, largest, low_water = 8, 1, 8, 7
    watch = None  # function of an environment, called after each reset and step, by who wants to see it

    def __init__(self, environment_id, max_steps=None, rebuild=None, timeout=None, **kwargs):
        self.timeout = timeout
        self._arguments = (environment_id, max_steps, kwargs)
        self._rebuild = environment_id in LEAKS_HISTORY if rebuild is None else rebuild
        self._idle = [self._make()]
        first = self._idle[0]
        self.interface = interface_of(environment_id, first.observation_space, first.action_space)

    def _make(self):
        environment_id, max_steps, kwargs = self._arguments
        return make(environment_id, max_steps, **kwargs)

    def open(self, seeds):
        environments = [self._idle.pop() if self._idle else self._make() for _ in seeds]
        return _GymnasiumBatch(self, environments, seeds)

    def give_back(self, environment):
        if self._rebuild:
            environment.close()
        else:
            self._idle.append(environment)

    def close(self):
        for environment in self._idle:
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
    def __init__(self, world, environments, seeds):
        from gymnasium.spaces import Discrete as DiscreteSpace

        self._world, self._environments = world, environments
        self.failures = {}
        first = environments[0]
        self._one_hot = isinstance(first.observation_space, DiscreteSpace)
        self._action_shape = first.action_space.shape
        self._action_type = first.action_space.dtype
        self._action_start = int(getattr(first.action_space, "start", 0))
        size = world.interface.observation_size
        self.observations = np.zeros((len(seeds), size), np.float32)
        self._broken = set()
        self._spent = np.zeros(len(seeds))  # seconds of each episode's own; its neighbours' do not count
        for place, (environment, seed) in enumerate(zip(environments, seeds, strict=True)):
            try:
                with _alarm(world.timeout, self._spent, place):
                    observation, _ = environment.reset(seed=int(seed))
                self._write(observation, self.observations[place])
                if world.watch:
                    world.watch(environment)
            except Exception as error:  # a user's environment may raise anything
                self._fail(place, error)
        self._over = np.zeros(len(seeds), bool)

    def _fail(self, place, error):
        self._broken.add(place)
        self.failures[place] = f"{type(error).__name__}: {_line(error)}"

    def _write(self, observation, out):
        if self._one_hot:
            out[:] = 0
            out[int(observation) - int(self._environments[0].observation_space.start)] = 1
            return
        flat = np.asarray(observation).ravel()
        if flat.shape != out.shape:
            raise ValueError(f"observation has {flat.size} numbers, {out.size} were promised")
        out[:] = flat

    def send(self, places, actions):
        self._sent = places, actions

    def receive(self):
        places, actions = self._sent
        observations = np.zeros((len(places), self._world.interface.observation_size), np.float32)
        rewards = np.zeros(len(places))
        over = np.zeros(len(places), bool)
        discrete = actions.ndim == 1
        for row, place in enumerate(places.tolist()):
            environment = self._environments[place]
            try:
                if place in self._broken:
                    raise RuntimeError
                if discrete:
                    action = int(actions[row]) + self._action_start
                else:
                    action = actions[row].reshape(self._action_shape).astype(self._action_type, copy=False)
                with _alarm(self._world.timeout, self._spent, place):
                    observation, reward, terminated, truncated, _ = environment.step(action)
                self._write(observation, observations[row])
                rewards[row] = reward
                over[row] = terminated or truncated
                if self._world.watch:
                    self._world.watch(environment)
            except Exception as error:
                if place not in self._broken:
                    self._fail(place, error)
                rewards[row], over[row] = np.nan, True
            if over[row]:
                if place in self._broken:  # its state is unknown: never used again
                    self._close(environment)
                else:
                    self._world.give_back(environment)
        return observations, rewards, over

    @staticmethod
    def _close(environment):
        with contextlib.suppress(Exception):  # nothing of it is used any more
            environment.close()
