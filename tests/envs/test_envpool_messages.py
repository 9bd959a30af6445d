"""What is said where EnvPool is absent or refuses a value, and observations that it returns as numbers."""

import subprocess
import sys

import numpy as np
import pytest

from mpies.envs import EnvironmentProblem, envpool_env, make_env
from tests.envs.episodes import play


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
    pytest.importorskip("envpool")
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


@pytest.mark.parametrize("steps", [2**31, 10**11, 10**18])
def test_a_time_limit_that_is_too_large_for_envpool_is_one_short_line(steps):
    pytest.importorskip("envpool")
    with pytest.raises(EnvironmentProblem) as caught:
        make_env("CartPole-v1", max_steps=steps)
    message = str(caught.value)
    assert f"EnvPool cannot build CartPole-v1, max_episode_steps={steps}: a number is too large" in message
    assert "change max_steps" in message and len(message) < 250 and "\n" not in message
    assert make_env("CartPole-v1", max_steps=2**31 - 1).interface.observation_size == 4


@pytest.mark.parametrize("name", ["FrozenLake-v1", "Taxi-v3"])
def test_an_observation_that_is_a_number_becomes_a_one_hot_vector(name):
    pytest.importorskip("envpool")
    env = make_env(name, "envpool")
    rows = np.concatenate([episode.observations for episode in play(env, [1, 2, 3], steps=4, action=1)])
    assert rows.shape[1] == env.interface.observation_size and len(np.unique(rows, axis=0)) > 1
    assert (rows.sum(axis=1) == 1).all() and (rows.max(axis=1) == 1).all()
