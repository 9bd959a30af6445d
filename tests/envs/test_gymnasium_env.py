"""Episodes in Python objects: what fails costs its own episode only, and objects are used again as they should be."""

import re
import signal
import time

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from mpies.envs import EnvironmentProblem, make_env
from mpies.envs.gymnasium_env import GymnasiumEnv
from tests.envs.episodes import play, step_all

SEEDS = [100, 101, 102, 103, 104]
ODD = [1, 3]  # places


@pytest.mark.parametrize(
    ("fault", "steps", "message"),
    [
        ("step", 3, "ZeroDivisionError: in step 3"),
        ("reset", 1, "RuntimeError: no reset today"),
        ("shape", 3, "ValueError: observation has 3 numbers, but 2 were expected"),
        ("tuple", 3, "ValueError: not enough values .*"),
    ],
)
def test_an_exception_ends_its_own_episode_only(fault, steps, message):
    env = make_env("tests.envs.faulty:Faulty", fault=fault)
    for _ in range(2):  # the objects that failed are not used again
        batch = env.open(SEEDS)
        episodes = step_all(env, batch, SEEDS, 20, action=0)
        assert sorted(batch.failures) == ODD
        assert all(re.fullmatch(message, text) for text in batch.failures.values())
        for place, episode in enumerate(episodes):
            expected = [1.0] * (steps - 1) + [np.nan] if place in ODD else [1.0] * 10
            np.testing.assert_array_equal(episode.rewards, expected)
            assert episode.is_over
        batch.close()
    env.close()


@pytest.mark.parametrize("fault", ["step hangs", "slow steps", "reset hangs"])
def test_an_episode_that_takes_too_long_fails_alone(fault):
    env = make_env("tests.envs.faulty:Slow", timeout=0.4, fault=fault)
    for _ in range(2):
        began = time.monotonic()
        batch = env.open(SEEDS[:3])
        episodes = step_all(env, batch, SEEDS[:3], 10, action=0)
        assert time.monotonic() - began < 5
        assert batch.failures == {1: "TimeoutError: it took more than 0.4 s"}
        assert np.isnan(episodes[1].rewards[-1]) and episodes[1].is_over
        assert [episodes[place].rewards.tolist() for place in (0, 2)] == [[1.0] * 5] * 2
        batch.close()
    env.close()


def test_the_signal_handler_of_the_process_is_restored():
    def handler(number, frame):
        pytest.fail("the alarm of an episode rang after it")

    previous = signal.signal(signal.SIGALRM, handler)
    try:
        env = make_env("tests.envs.faulty:Slow", timeout=5, fault="none")
        assert play(env, SEEDS)[0].is_over
        assert signal.getsignal(signal.SIGALRM) is handler
        assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)
    finally:
        signal.signal(signal.SIGALRM, previous)


class Worn(gymnasium.Env):
    """One step whose reward is the number of episodes that the object has begun, if it carries history."""

    observation_space = action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, carries_history):
        self.carries_history, self.episodes, self.is_closed = carries_history, 0, False

    def reset(self, seed, options=None):
        self.episodes += 1
        return np.full(1, seed % 5 / 5, np.float32), {}

    def step(self, action):
        return np.zeros(1, np.float32), float(self.episodes if self.carries_history else 1), True, False, {}

    def close(self):
        assert not self.is_closed, "it was closed twice"
        self.is_closed = True


def worn_env(carries_history=True, **options):
    """A GymnasiumEnv of Worn objects, and the list of those that it has built."""
    built = []

    def build():
        built.append(Worn(carries_history))
        return built[-1]

    return GymnasiumEnv("Worn", build, **options), built


@pytest.mark.parametrize(
    ("carries_history", "options", "episodes"),
    [
        (True, {"rebuild": True}, [1] * 7),
        (True, {"rebuild": False}, [7]),
        (True, {"rebuild": False, "rebuild_every": 3}, [3, 3, 1]),
        (True, {"rebuild": None}, [4] + [1] * 9),  # the probe plays four episodes in one, and then two
        (True, {"rebuild": None, "rebuild_every": 3}, [4] + [1] * 9),
        (False, {"rebuild": None}, [11]),
        (False, {"rebuild": None, "rebuild_every": 2}, [5, 2, 2, 2]),
    ],
)
def test_an_object_serves_as_many_episodes_as_it_should(carries_history, options, episodes):
    env, built = worn_env(carries_history, **options)
    rewards = [play(env, [seed])[0].rewards[0] for seed in range(7)]
    assert [each.episodes for each in built] == episodes
    expected = [number + 1 if carries_history else 1 for count in episodes for number in range(count)]
    assert rewards == expected[-7:]
    env.close()
    assert all(environment.is_closed for environment in built)


def test_an_unfinished_episode_counts_for_its_object():
    env, built = worn_env(rebuild=False, rebuild_every=2)
    for _ in range(4):
        env.open([3]).close()
    assert [each.episodes for each in built] == [2, 2]


@pytest.mark.parametrize(("value", "words"), [(None, "None"), ("left", "the text 'left'")])
def test_a_behaviour_that_is_no_number_is_refused(value, words):
    class Aimless(Worn):
        def step(self, action):
            return *super().step(action)[:4], {"goal": value}

    env = GymnasiumEnv("Aimless", lambda: Aimless(False), rebuild=False)
    with pytest.raises(EnvironmentProblem, match=rf"environment\.behaviour: info\['goal'\] must hold .* is {words}"):
        env.measure_behaviour(["goal"])


def test_whoever_watches_sees_the_object_after_each_reset_and_step():
    (env, built), seen = worn_env(rebuild=False), []
    env.watch = seen.append
    play(env, [3, 4])
    assert seen == [*built, *built] and len(built) == 2
