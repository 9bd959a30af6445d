"""gym's old interface, above all pybullet's environments."""

import random
import subprocess
import sys

import numpy as np
import pytest
from gymnasium import spaces

from mpies.envs import make_env
from mpies.envs.base import Continuous, Discrete
from mpies.envs.gym_env import GymAdapter, render_arguments
from tests.envs.episodes import play

pytest.importorskip("pybullet", reason="pybullet is not installed")


def test_the_notices_of_gym_and_pybullet_are_silenced():
    script = """
from mpies.envs import make_env
env = make_env('AntBulletEnv-v0')
env.open([1])
env.close()
print('done')
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr) == ("done\n", "")


def test_outputs_that_are_closed_stay_so():
    code = "import os; from mpies.envs.gym_env import load_registry\nos.close(1)\nos.close(2)\n"
    code += "assert load_registry()\nfor fd in (1, 2):\n    try: os.fstat(fd)\n    except OSError: pass\n"
    code += "    else: os._exit(1)\n"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


def test_an_episode_depends_on_its_seed_and_actions_alone():
    name = "gym:KukaBulletEnv-v0"  # one at a time
    env = make_env(name)
    alone = play(env, [3], steps=30)[0].bits
    play(env, [14], steps=10)
    assert play(env, [3], steps=30)[0].bits == alone
    env.close()
    assert play(make_env(name), [3], steps=30)[0].bits == alone


def test_kwargs_time_limit_and_spaces_are_passed_on():
    env = make_env("CartPoleBulletEnv-v1", max_steps=3, discrete_actions=False)
    assert isinstance(env.interface.action, Continuous) and env.backend == "gym"
    assert isinstance(make_env("CartPoleBulletEnv-v1").interface.action, Discrete)
    assert len(play(env, [1], 9)[0].rewards) == 3
    env.close()


def test_kwargs_set_the_weights_of_a_walkers_rewards():
    costs = {"electricity_cost": 0.0, "stall_torque_cost": 0.0, "joints_at_limit_cost": 0.0}
    usual, free = (play(make_env("AntBulletEnv-v0", **kwargs), [3], 30)[0] for kwargs in ({}, costs))
    assert usual.observations.tobytes() == free.observations.tobytes()
    assert sum(usual.rewards) < sum(free.rewards) - 1
    again = play(make_env("AntBulletEnv-v0", electricity_cost=-2, stall_torque_cost=-0.1), [3], 30)[0]
    assert again.bits == usual.bits


class Old:
    """An environment of gym before 0.26: `seed` is a method, `step` returns four values."""

    observation_space, action_space = spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(2)

    def seed(self, seed):
        self.number = seed

    def reset(self):
        return np.full(2, self.number % 7, np.float32)

    def step(self, action):
        return np.zeros(2, np.float32), 1.5, True, {"TimeLimit.truncated": bool(action)}

    def render(self, mode="human"):
        return mode

    def close(self):
        self.is_closed = True


class New(Old):
    """An environment of gym 0.26."""

    seed = property()  # there is no method `seed`

    def reset(self, seed=None):
        return np.full(2, seed % 7, np.float32), {"a": 1}

    def step(self, action):
        return np.zeros(2, np.float32), 1.5, not action, bool(action), {}

    def render(self):
        return "rgb_array"


@pytest.mark.parametrize("kind", [Old, New])
def test_both_interfaces_of_gym_become_gymnasiums(kind):
    environment = GymAdapter(kind())
    observation, info = environment.reset(seed=10)
    assert observation.tolist() == [3, 3] and isinstance(info, dict)
    assert environment.step(0)[1:4] == (1.5, True, False)
    assert environment.step(1)[1:4] == (1.5, False, True)
    assert environment.render() == "rgb_array"
    environment.close()
    assert environment.environment.is_closed


@pytest.mark.parametrize(
    ("constructor", "render_mode", "expected"),
    [
        (lambda renders=True: 0, None, {"renders": False}),  # else pybullet would open a window
        (lambda render=True: 0, "rgb_array", {"render": False}),
        (lambda renders=True: 0, "human", {"renders": True}),
        (lambda render_mode=None: 0, "human", {"render_mode": "human"}),
        (lambda render_mode=None: 0, None, {}),
        (lambda: 0, "human", {}),
    ],
)
def test_a_window_opens_only_if_it_is_asked_for(constructor, render_mode, expected):
    assert render_arguments(constructor, render_mode) == expected


class Lucky(Old):
    """Its rewards come from the global generators."""

    def step(self, action):
        return np.zeros(2, np.float32), random.random() + np.random.random(), False, {}


def rewards_of(environment, seed):
    environment.reset(seed=seed)
    return [environment.step(0)[1] for _ in range(3)]


def test_global_generators_are_seeded_with_the_episode_and_restored():
    one, other = (GymAdapter(Lucky(), uses_global_random=True) for _ in range(2))
    random.seed(1)
    np.random.seed(1)
    before = random.getstate(), np.random.get_state()[1].tolist()
    expected = rewards_of(one, 5)
    assert len(set(expected)) == 3 and rewards_of(one, 6) != expected
    one.reset(seed=5)
    other.reset(seed=7)
    interleaved = [(one.step(0)[1], other.step(0)[1]) for _ in range(3)]
    assert [reward for reward, _ in interleaved] == expected
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before
