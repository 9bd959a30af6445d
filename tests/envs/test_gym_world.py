"""gym's old interface, foremost pybullet's environments."""

import subprocess
import sys

import numpy as np
import pytest

from envs import EnvironmentProblem, make_world
from envs.base import Continuous, Discrete
from envs.gym_world import Dressed, offers, registry
from tests.envs.test_worlds import episodes_of

pytest.importorskip("pybullet", reason="pybullet is not installed")


def test_pybullets_environments_register_with_the_gym_that_there_is():
    ids = [name for name in registry() if offers(name)]
    assert len(ids) >= 23
    for name in ("Minitaur", "Ant", "Hopper", "Walker2D", "HalfCheetah", "Humanoid", "Kuka", "Racecar"):
        assert f"{name}BulletEnv-v0" in ids


def test_the_notices_of_gym_and_pybullet_are_silenced():
    code = (
        "from envs import make_world\n"
        "world = make_world('AntBulletEnv-v0')\n"
        "world.open([1]); world.close(); print('done')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr) == ("done\n", "")


@pytest.mark.parametrize("name", ["gym:AntBulletEnv-v0", "MinitaurBulletEnv-v0", "gym:KukaBulletEnv-v0"])
def test_an_episode_is_the_same_after_any_history_where_it_is_rebuilt(name):
    world = make_world(name)
    alone = episodes_of(world, [3], steps=30)[0]
    if world.lanes > 1:
        assert episodes_of(world, [14, 3], steps=30)[1] == alone
    episodes_of(world, [14], steps=10)
    assert episodes_of(world, [3], steps=30)[0] == alone
    world.close()
    assert episodes_of(make_world(name), [3], steps=30)[0] == alone
    world.close()


def test_an_ant_that_is_not_rebuilt_remembers():
    world = make_world("AntBulletEnv-v0", rebuild=False)
    assert episodes_of(world, [3], steps=30) != episodes_of(world, [3], steps=30)
    world.close()


def test_constructor_arguments_time_limit_and_spaces_are_passed_on():
    from mpies.config import validate
    from mpies.task import Task

    section = {"id": "CartPoleBulletEnv-v1", "kwargs": {"discrete_actions": False}, "max_steps": 3}
    world = Task(validate({"environment": section, "noise": {"size": 10_000}}, "x")).world
    assert isinstance(world.interface.action, Continuous) and world.backend == "gym"
    assert isinstance(make_world("CartPoleBulletEnv-v1").interface.action, Discrete)
    assert len(episodes_of(world, [1], 9)[0]) == 4 * 4 + 3 * (4 * 4 + 8)
    with pytest.raises(EnvironmentProblem, match="CartPoleBulletEnv-v1 does not take these kwargs"):
        make_world("CartPoleBulletEnv-v1", colour="red")
    with pytest.raises(EnvironmentProblem, match="did you mean AntBulletEnv-v0"):
        make_world("gym:AntBuletEnv-v0")


class Old:
    """gym before 0.26: seed apart, four things from a step."""

    def __init__(self):
        from gym import spaces

        self.observation_space, self.action_space = spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(2)

    def seed(self, seed):
        self.number = seed

    def reset(self):
        return np.full(2, self.number % 7, np.float32)

    def step(self, action):
        return np.zeros(2, np.float32), 1.5, True, {"TimeLimit.truncated": bool(action)}

    def close(self):
        pass


class New(Old):
    """gym 0.26."""

    seed = property()

    def reset(self, seed=None):
        return np.full(2, seed % 7, np.float32), {"a": 1}

    def step(self, action):
        return np.zeros(2, np.float32), 1.5, not action, bool(action), {}


@pytest.mark.parametrize("kind", [Old, New])
def test_both_signatures_of_gym_become_gymnasiums(kind):
    environment = Dressed(kind())
    observation, _ = environment.reset(seed=10)
    assert observation.tolist() == [3, 3]
    assert environment.step(0)[1:4] == (1.5, True, False)
    assert environment.step(1)[1:4] == (1.5, False, True)
