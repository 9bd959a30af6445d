"""What is special about EnvPool's environments."""

import subprocess
import sys

import numpy as np
import pytest

from mpies.config.loading import validate_config
from mpies.envs import EnvironmentProblem, envpool_env, make_env
from mpies.rollouts.batch import evaluation_batch
from mpies.rollouts.queue import play_alone
from mpies.training.task import Task
from tests.envs.episodes import play, step_all

pytest.importorskip("envpool", reason="EnvPool is not installed")


def test_only_the_family_that_is_asked_for_is_imported():
    script = """
import sys
from mpies.envs.envpool_env import EnvPoolEnv, offers
assert EnvPoolEnv("LunarLander-v3").interface.observation_size == 8
assert not offers("module:Own-v0") and "envpool.entry" not in sys.modules and "matplotlib" not in sys.modules
assert offers("MiniGrid-Empty-5x5-v0") and "envpool.entry" in sys.modules and not offers("Absent-v0")
"""
    subprocess.run([sys.executable, "-c", script], check=True)


class ShuffledPool:
    """EnvPool's pool, but the rows of a state come in another order, as with several threads."""

    def __init__(self, pool):
        self._pool, self._random = pool, np.random.default_rng(1)

    def _recv(self):
        state = self._pool._recv()
        order = self._random.permutation(len(state[0]))
        return [part[order] for part in state]

    def __getattr__(self, name):
        return getattr(self._pool, name)

    def __len__(self):
        return len(self._pool)


def test_rows_that_arrive_in_another_order_are_sorted():
    env, seeds = envpool_env.EnvPoolEnv("CartPole-v1"), [3, 14, 15, 16, 17]
    expected = [episode.bits for episode in play(env, seeds)]
    batch = env.open(seeds)
    batch._pool = ShuffledPool(batch._pool)
    assert [episode.bits for episode in step_all(env, batch, seeds, 60)] == expected


def test_only_plain_vectors_and_images_serve_the_compiled_loop():
    plain = envpool_env.EnvPoolEnv("Hopper-v5")
    assert plain.open([3]).calls.action_type == np.float64
    assert envpool_env.EnvPoolEnv("CartpoleSwingup-v1").open([3]).calls is None  # several parts
    images = envpool_env.EnvPoolEnv("Pong-v5")
    assert images.open([3]).calls.action_type == np.int32 and images.slots < plain.slots
    assert envpool_env.EnvPoolEnv("FrozenLake-v1").open([3]).calls is None  # one-hot vectors
    plain.measure_behaviour(["x_position"])
    assert plain.open([3]).calls is None


@pytest.mark.parametrize("name", ["CliffWalking-v1", "Parking-v0", "CartPole-v1"])
@pytest.mark.parametrize("action_repeat", [1, 3])
def test_max_steps_ends_episodes_at_exactly_that_step(name, action_repeat):
    section = {"id": name, "max_steps": 7, "action_repeat": action_repeat}
    few = {
        "solver": {"population": 4},
        "noise": {"size": 20_000},
        "policy": {"hidden": [], "normalize_observations": False},
    }
    task = Task(validate_config({"environment": section, **few}, "x"))
    batch = evaluation_batch(np.zeros(task.dimension, np.float32), task.evaluation_seeds(1, 0, 3), None)
    rows, failures = play_alone(task.player, batch)
    task.close()
    assert not failures and rows["steps"].tolist() == [-(-7 // action_repeat)] * 3


@pytest.mark.parametrize(
    ("name", "words"), [("Pong-v5", "'Pong-v5' is not known to gymnasium"), ("CartPoel-v1", "did you mean CartPole-v1")]
)
def test_without_envpool_an_id_that_it_may_have_names_the_extra(name, words, without_envpool):
    without_envpool()
    assert not envpool_env.offers("CartPole-v1")
    with pytest.raises(EnvironmentProblem, match=r'CartPole-v1.*pip install "mpies\[envpool\]"'):
        envpool_env.EnvPoolEnv("CartPole-v1")
    with pytest.raises(EnvironmentProblem) as caught:
        make_env(name)
    message = str(caught.value)
    assert words in message and 'pip install "mpies[envpool]"' in message
    assert "Ant-v5" not in message and "\n" not in message  # another test may have registered gymnasium's Pong


def test_without_the_large_data_the_recipes_play_and_other_ids_say_what_they_need():
    """As make install leaves it; in a process of its own, as EnvPool's families are imported once."""
    code = """
import sys

sys.modules["envpool_assets_mujoco_large"] = None  # as if it were not installed
from mpies.envs import EnvironmentProblem, envpool_env, make_env

print(*(envpool_env.offers(name) for name in ("Hopper-v5", "Pong-v5", "CartPole-v1", "myoArmReachRandom-v0")))
try:
    make_env("myoArmReachRandom-v0")
except EnvironmentProblem as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    offered, message = done.stdout.splitlines()
    assert offered == "True True True False" and message.endswith("not installed: pip install 'mpies[envpool]'")
