"""What is special about EnvPool's environments, and their numbered episodes, for which pools are used again."""

import subprocess
import sys

import numpy as np
import pytest

from mpies.config.loading import validate_config
from mpies.envs import EnvironmentProblem, change_task, envpool_env, make_env
from mpies.envs.base import SEED_BITS
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


def test_rows_that_arrive_in_another_order_are_sorted():
    env, seeds, random = envpool_env.EnvPoolEnv("CartPole-v1"), [3, 14, 15, 16, 17], np.random.default_rng(1)
    expected = [episode.bits for episode in play(env, seeds)]
    batch = env.open(seeds)
    receive = batch._pool._recv

    def receive_shuffled():
        """A state whose rows come in another order, as with several threads."""
        state = receive()
        order = random.permutation(len(state[0]))
        return [part[order] for part in state]

    batch._pool._recv = receive_shuffled
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
    few = {"solver": {"population": 4}, "noise": {"size": 20_000}}
    policy = {"hidden": [], "normalize_observations": False}
    task = Task(validate_config({"environment": section, "policy": policy, **few}, "x"))
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


TASKS = ("Ant", "HalfCheetah", "Hopper", "Humanoid", "HumanoidStandup", "InvertedDoublePendulum", "InvertedPendulum")
TASKS += ("Pusher", "Reacher", "Swimmer", "Walker2d")
SEEDS = [7, 2**31 - 1]


def numbered(k, seeds=SEEDS):
    return [seed + (k << SEED_BITS) for seed in seeds]


def bits(env, seeds, **options):
    return [episode.bits for episode in play(env, seeds, **options)]


def count_builds(env):
    """The list that gets how many environments each pool has that is built from now on."""
    sizes, build = [], env._store._build
    env._store._build = lambda seeds: sizes.append(len(seeds)) or build(seeds)
    return sizes


@pytest.mark.parametrize("task", TASKS)
def test_an_episode_is_the_same_whatever_was_played_before(task):
    env = envpool_env.EnvPoolEnv(f"{task}-v5", max_steps=40)
    assert env.numbers_episodes
    sizes = count_builds(env)
    first = play(env, numbered(1), steps=5)
    play(env, numbered(2), steps=60, action=0.3)  # to the end
    fourth = bits(env, numbered(4))
    assert sizes == [2]
    other = envpool_env.EnvPoolEnv(f"{task}-v5", max_steps=40)
    plain = play(other, SEEDS, steps=5)
    # `play` draws the actions from the number, so only the beginnings are those of the plain seeds.
    assert [one.observations[0].tobytes() for one in first] == [one.observations[0].tobytes() for one in plain]
    assert bits(other, numbered(4)) == fourth
    assert len({*fourth, *bits(other, numbered(5))}) == 4


def test_environments_are_used_again_by_batches_of_other_sizes_and_built_for_earlier_episodes():
    env = envpool_env.EnvPoolEnv("Swimmer-v5")
    sizes = count_builds(env)
    expected = bits(env, numbered(3, [5] * 3), steps=3)
    for k, size in [(4, 4), (5, 1), (9, 2)]:
        play(env, numbered(k, [5] * size), steps=2)
    assert sizes == [4]
    assert bits(env, numbered(3, [5] * 3), steps=3) == expected  # episode 3 is over for the first four
    assert sizes == [4, 4]
    play(env, numbered(10, [6]), steps=2)
    assert sizes == [4, 4, 1]


def test_a_batch_does_not_share_its_environments_with_another():
    env = envpool_env.EnvPoolEnv("Swimmer-v5")
    one, other = env.open(numbered(1)), env.open(numbered(2))
    assert one._pool is not other._pool
    episodes = [step_all(env, batch, SEEDS, 4) for batch in (one, other)]
    assert all(a.observations[0].tobytes() != b.observations[0].tobytes() for a, b in zip(*episodes, strict=True))
    one.close()
    one.close()
    assert len(env._store._waiting) == 1


def test_too_many_waiting_environments_are_closed_and_close_frees_the_rest():
    env = envpool_env.EnvPoolEnv("Swimmer-v5")
    env._store._limit = 6
    for seed in range(5):
        play(env, numbered(1, [seed] * 2), steps=2)
    assert [pool.seeds[0] for pool in env._store._waiting] == [2, 3, 4]
    env.close()
    assert not env._store._waiting


def test_the_task_can_be_changed():
    plain = envpool_env.EnvPoolEnv("Hopper-v5")
    env = change_task(plain, "Hopper-v5", reward_shift=1.0)
    assert env.numbers_episodes and not envpool_env.EnvPoolEnv("LunarLander-v3").numbers_episodes
    shifted, own = (play(e, numbered(2), steps=9, is_training=True) for e in (env, plain))
    for one, other in zip(shifted, own, strict=True):
        np.testing.assert_allclose(one.rewards, other.rewards - 1)
