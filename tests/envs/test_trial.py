"""A trial tells environments that carry history from those that do not."""

import mmap

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from mpies.envs.base import Continuous
from mpies.envs.gymnasium_env import GymnasiumEnv
from mpies.envs.trial import carries_history, draw_action, memory_growth, trace, trace_used


class Leaky(gymnasium.Env):
    """Episodes of ten steps.  history: what an earlier episode changes.  leak: bytes lost in each reset."""

    observation_space, action_space = spaces.Box(-9.0, 9.0, (2,), np.float32), spaces.Discrete(3)

    def __init__(self, history=None, leak=0):
        self.history, self.leak, self.episodes, self.lost = history, leak, 0, []

    def reset(self, seed, options=None):
        self.seed, self.steps, self.episodes = seed, 0, self.episodes + 1
        if self.leak:
            self.lost.append(mmap.mmap(-1, self.leak))  # pages that no earlier test has left to the process
            self.lost[-1].write(b"x" * self.leak)
        return self.observe(), {}

    def observe(self):
        change = self.history == "observation" and self.episodes > 1 and self.steps == 5
        return np.array([self.seed % 3 + change, self.steps], np.float32)

    def step(self, action):
        self.steps += 1
        change = self.history == "reward" and self.episodes > 1 and self.steps == 5
        late = self.history == "length" and self.episodes > 1
        return self.observe(), float(action) + change, self.steps == 10 + late, False, {}


def leaky_env(**options):
    return GymnasiumEnv("Leaky", lambda: Leaky(**options), rebuild=False)


def test_the_trace_depends_on_seed_and_length_alone():
    first = trace(leaky_env(), 3, 20)
    assert len(first) == 64 and trace(leaky_env(), 3, 20) == first == trace(leaky_env(), 3, 20, None, [4, 5])
    assert first == trace(leaky_env(), 3, 10)  # it ends with the episode
    assert len({first, trace(leaky_env(), 4, 20), trace(leaky_env(), 3, 9)}) == 3


@pytest.mark.parametrize("history", [None, "observation", "reward", "length"])
def test_history_of_any_kind_is_found(history):
    assert carries_history(leaky_env(history=history)) == (history is not None)
    is_changed = trace_used(leaky_env(history=history), 3, 20) != trace(leaky_env(), 3, 20)
    assert is_changed == (history is not None)


@pytest.mark.parametrize(
    ("low", "high", "least", "most"),
    [
        (15, 30, 15, 25),
        (-30, -15, -25, -15),
        (15, np.inf, 15, 25),
        (-np.inf, -15, -25, -15),
        (-3e38, 3e38, -10, 10),
        (2e6, 3e6, 2e6, 2e6 + 10),
    ],
)
def test_bounds_far_from_zero_are_kept(low, high, least, most):
    action, random = Continuous(np.float32([low]), np.float32([high])), np.random.default_rng(1)
    actions = np.concatenate([draw_action(action, random) for _ in range(50)])
    assert least <= actions.min() < actions.max() <= most


def test_memory_that_leaks_is_measured():
    assert memory_growth(leaky_env(leak=200_000), episodes=50, steps=3) > 50 * 200_000 * 0.9
    assert memory_growth(leaky_env(), episodes=50, steps=3) < 50 * 200_000 * 0.1
