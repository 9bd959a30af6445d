"""Environments and functions, each wrong in one way.  tests/envs/test_misbehaving.py says what a user sees of each.

It is written to a file of the user's, so it imports nothing of mpies.
"""

import os
import signal
import time

import gymnasium
import numpy as np
from gymnasium import spaces


class Good(gymnasium.Env):
    """Episodes of five steps."""

    observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def render(self):
        return np.zeros((16, 16, 3), np.uint8)

    def observe(self):
        return self.np_random.random(2).astype(np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seed, self.steps = seed, 0
        return self.observe(), {}

    def step(self, action):
        self.steps += 1
        return self.observe(), float(action), self.steps == 5, False, {}


# What is wrong in every episode.


class FourValues(Good):
    def step(self, action):
        return super().step(action)[:4]


class NoStepValues(Good):
    def step(self, action):
        pass


class NoInfo(Good):
    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)[0]


class NoOptions(Good):
    def reset(self, *, seed=None):
        return super().reset(seed=seed)


class NoSeed(Good):
    def reset(self):
        return super().reset()


class NoAction(Good):
    def step(self):
        return super().step(0)


def rewarding(reward):
    class Rewarding(Good):
        def step(self, action):
            observation, _, terminated, truncated, info = super().step(action)
            return observation, reward, terminated, truncated, info

    return Rewarding


NoReward, RewardInArray, RewardInText = rewarding(None), rewarding(np.ones(1)), rewarding("1.0")
RewardNaN = rewarding(float("nan"))


def observing(value, space=Good.observation_space):
    class Observing(Good):
        observation_space = space

        def observe(self):
            return value

    return Observing


NoObservation, ObservationInDict = observing(None), observing({"position": 0.5})
ObservationNaN = observing(np.array([0.5, np.nan], np.float32))
ObservationInfinite = observing(np.array([np.inf, 0.5], np.float32))
ObservationTooLong, ObservationRagged = observing(np.zeros(3, np.float32)), observing([[0.5], [0.5, 0.5]])
ObservationOutside = observing(7, spaces.Discrete(3))


class NoTerminated(Good):
    def step(self, action):
        observation, reward, _, truncated, info = super().step(action)
        return observation, reward, None, truncated, info


class StepRaises(Good):
    def step(self, action):
        raise KeyError("no such joint")


class ResetExits(Good):
    def reset(self, *, seed=None, options=None):
        raise SystemExit(0)


class ConstructorExits(Good):
    def __init__(self):
        raise SystemExit("no display")


class ConstructorInterrupts(Good):
    def __init__(self):
        raise KeyboardInterrupt


class ConstructorMistaken(Good):
    def __init__(self):
        len(None)


class SpaceRaises(Good):
    @property
    def observation_space(self):
        raise RuntimeError("not connected")


class TextSpace(Good):
    observation_space = spaces.Dict({"position": Good.observation_space, "word": spaces.Text(3)})


def not_an_environment():
    return {}


def vectorised():
    return gymnasium.make_vec("CartPole-v1", num_envs=4)


# What is wrong in some episodes, or harms none.


class Own(BaseException):
    pass


class Unspeakable(Exception):
    def __str__(self):
        raise SystemExit(0)


def sometimes(error):
    """An environment with this error in the third step of episodes whose seed leaves a remainder of 1, divided by 4."""

    class Sometimes(Good):
        def step(self, action):
            if self.seed % 4 == 1 and self.steps == 2:
                raise error()
            return super().step(action)

    return Sometimes


Exits, Interrupts = sometimes(lambda: SystemExit(0)), sometimes(KeyboardInterrupt)
EndsGenerator, RaisesOwn = sometimes(lambda: GeneratorExit("at an end")), sometimes(lambda: Own("of its own kind"))
RaisesMuch = sometimes(lambda: ValueError("much " * 100_000))
RaisesControls = sometimes(lambda: ValueError("\x1b[31mred\x07 \udcff"))
RaisesUnspeakable = sometimes(Unspeakable)
Hangs = sometimes(lambda: time.sleep(60))


class ResetSometimesExits(Good):
    def reset(self, *, seed=None, options=None):
        if seed % 4 == 1:
            raise SystemExit(3)
        return super().reset(seed=seed)


class CloseRaises(Good):
    def close(self):
        raise SystemExit("cannot be closed")


class ChangesFolder(Good):
    def step(self, action):
        os.makedirs("elsewhere", exist_ok=True)
        os.chdir("elsewhere")
        return super().step(action)


class Prints(Good):
    def step(self, action):
        print("1" * 64, end="", flush=True)
        return super().step(action)


class TakesSignals(Good):
    def __init__(self):
        super().__init__()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


class ReusesArrays(Good):
    """Returns the same array each time, and changes the action."""

    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self):
        super().__init__()
        self.array = np.zeros(2, np.float32)

    def observe(self):
        self.array[:] = super().observe()
        return self.array

    def step(self, action):
        reward = action[0] + 0
        action[:] = 0
        observation, _, terminated, truncated, info = super().step(reward)
        return observation, reward, terminated, truncated, info


# Functions of parameters.


def good(x):
    return -float(x @ x)


def returns_nothing(x):
    x @ x


def returns_array(x):
    return -x


def returns_text(x):
    return "1.0"


def returns_complex(x):
    return 1j


def returns_nan(x):
    return float("nan")


def takes_two(x, y):
    return 0.0


def always_raises(x):
    raise OSError("no data")


def sometimes_exits(x):
    if int(abs(x[0]) * 1e6) % 4 == 1:
        raise SystemExit(0)
    return good(x)


def sometimes_interrupts(x):
    if int(abs(x[0]) * 1e6) % 4 == 1:
        raise KeyboardInterrupt
    return good(x)


def changes_argument(x):
    value = good(x)
    x[:] = 0
    return value
