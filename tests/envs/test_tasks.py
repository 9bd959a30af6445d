"""Changes of a task hold for every backend, and those of training for training alone."""

import numpy as np
import pytest

from mpies.envs import EnvironmentProblem, make_env
from mpies.envs.base import Interface
from mpies.envs.tasks import change_task
from tests.envs.episodes import play

every_backend = pytest.mark.parametrize("backend", ["envpool", "gymnasium"])


@every_backend
def test_hidden_observations_are_left_out(backend):
    bare = make_env("Pendulum-v1", backend)
    env = change_task(bare, "Pendulum-v1", hide=[1])
    assert env.interface.observation_size == 2 and env.interface.action == bare.interface.action
    np.testing.assert_array_equal(play(env, [3])[0].observations, play(bare, [3])[0].observations[:, [0, 2]])


@pytest.mark.parametrize("hide", [[4], [0, 1, 2, 3]])
def test_hiding_what_cannot_be_hidden_is_refused_in_one_line(hide):
    with pytest.raises(EnvironmentProblem, match=r"environment\.hide must leave out some of the observations 0 to 3"):
        change_task(make_env("CartPole-v1"), "CartPole-v1", hide=hide)


def test_pixels_cannot_be_hidden():
    bare = make_env("CartPole-v1")
    bare.interface = Interface(2 * 3 * 3, bare.interface.action, (2, 3, 3))
    with pytest.raises(EnvironmentProblem, match=r"Images-v0 has images .*leave environment\.hide out"):
        change_task(bare, "Images-v0", hide=[1])


@every_backend
def test_a_repeated_action_sums_its_rewards_and_ends_with_the_episode(backend):
    bare = make_env("CartPole-v1", backend)
    (single,) = play(bare, [3], action=1)
    steps = len(single.rewards)
    repeat = 4 if steps % 4 else 3  # the episode ends within a repeat
    (repeated,) = play(change_task(bare, "CartPole-v1", action_repeat=repeat), [3], action=1)
    assert repeated.rewards.tolist() == [repeat] * (steps // repeat) + [steps % repeat]
    seen, shown = single.observations, repeated.observations
    np.testing.assert_array_equal(shown[:-1], seen[::repeat][: len(shown) - 1])
    np.testing.assert_array_equal(shown[-1], seen[-1])


@every_backend
def test_rewards_are_changed_in_training_only(backend):
    bare = make_env("BipedalWalker-v3", backend)
    env = change_task(bare, "BipedalWalker-v3", ignored_rewards=[-100.0], reward_shift=0.5)
    rewards = play(bare, [3], steps=300, action=1)[0].rewards
    assert rewards[-1] == -100
    assert play(env, [3], steps=300, action=1)[0].rewards.tolist() == rewards.tolist()
    changed = play(env, [3], steps=300, action=1, is_training=True)[0].rewards
    np.testing.assert_array_equal(changed, np.append(rewards[:-1] - 0.5, -0.5))


@every_backend
def test_ignored_rewards_need_not_be_exact_in_float32(backend):
    """EnvPool's rewards are float32."""
    name = "MountainCarContinuous-v0"  # a step costs 0.1 action^2: 0.025
    env = change_task(make_env(name, backend), name, ignored_rewards=[-0.025])
    (episode,) = play(env, [3], steps=2, action=0.5)
    np.testing.assert_allclose(episode.rewards, -0.025, rtol=1e-6)
    (trained,) = play(env, [3], steps=2, action=0.5, is_training=True)
    assert trained.rewards.tolist() == [0, 0]


def test_what_is_not_changed_is_passed_on():
    bare = make_env("Hopper-v5", "gymnasium", timeout=7)
    assert change_task(bare, "Hopper-v5") is bare
    env, seen = change_task(bare, "Hopper-v5", reward_shift=1.0), []
    rules = ("slots", "smallest", "largest", "low_water", "divisor", "timeout", "backend", "interface")
    assert [getattr(env, name) for name in rules] == [getattr(bare, name) for name in rules]
    env.watch = seen.append
    assert bare.watch == env.watch
    assert env.measure_behaviour(["x_position"]) == 1 and len(seen) == 2
    env.close()
    assert not bare._idle
