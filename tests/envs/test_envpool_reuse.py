"""Numbered episodes: the k-th episode of an environment is a function of (seed, k) and its actions."""

import numpy as np
import pytest

from mpies.envs import change_task, envpool_env
from mpies.envs.base import SEED_BITS
from tests.envs.episodes import play, step_all

pytest.importorskip("envpool", reason="EnvPool is not installed")

TASKS = ("Ant", "HalfCheetah", "Hopper", "Humanoid", "HumanoidStandup", "InvertedDoublePendulum", "InvertedPendulum")
TASKS += ("Pusher", "Reacher", "Swimmer", "Walker2d")
SEEDS = [7, 2**31 - 1]


def numbered(k, seeds=SEEDS):
    return [seed + (k << SEED_BITS) for seed in seeds]


def bits(env, seeds, **options):
    return [episode.bits for episode in play(env, seeds, **options)]


class Builds:
    """Counts the environments that a VectorEnv builds."""

    def __init__(self, env):
        self.sizes, self._make = [], env._store._build
        env._store._build = self.make

    def make(self, seeds):
        self.sizes.append(len(seeds))
        return self._make(seeds)


@pytest.mark.parametrize("task", TASKS)
def test_an_episode_is_the_same_whatever_was_played_before(task):
    env = envpool_env.EnvPoolEnv(f"{task}-v5", max_steps=40)
    assert env.numbers_episodes
    builds = Builds(env)
    first = play(env, numbered(1), steps=5)
    play(env, numbered(2), steps=60, action=0.3)  # to the end
    fourth = bits(env, numbered(4))
    assert builds.sizes == [2]
    other = envpool_env.EnvPoolEnv(f"{task}-v5", max_steps=40)
    plain = play(other, SEEDS, steps=5)
    # `play` draws the actions from the number, so only the beginnings are those of the plain seeds.
    assert [one.observations[0].tobytes() for one in first] == [one.observations[0].tobytes() for one in plain]
    assert bits(other, numbered(4)) == fourth
    assert len({*fourth, *bits(other, numbered(5))}) == 4


def test_environments_are_used_again_by_batches_of_other_sizes_and_built_for_earlier_episodes():
    env = envpool_env.EnvPoolEnv("Swimmer-v5")
    builds = Builds(env)
    expected = bits(env, numbered(3, [5] * 3), steps=3)
    for k, size in [(4, 4), (5, 1), (9, 2)]:
        play(env, numbered(k, [5] * size), steps=2)
    assert builds.sizes == [4]
    assert bits(env, numbered(3, [5] * 3), steps=3) == expected  # episode 3 is over for the first four
    assert builds.sizes == [4, 4]
    play(env, numbered(10, [6]), steps=2)
    assert builds.sizes == [4, 4, 1]


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
