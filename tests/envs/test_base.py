"""The contract of VectorEnv and EpisodeBatch, for every backend."""

import doctest
import importlib.util

import numpy as np
import pytest

from mpies.envs import EnvironmentProblem, VectorEnv, base, change_task, make_env
from tests.envs.episodes import draw_actions, play


def case(package: str, environment_id: str, **changes) -> object:
    """A parameter of the tests: an id and the changes of its task.  package: what it needs."""
    needed = pytest.mark.skipif(importlib.util.find_spec(package) is None, reason=f"{package} is not installed")
    name = f"{environment_id}{'-changed' if changes else ''}"
    return pytest.param(environment_id, changes, marks=needed, id=name)


CASES = [
    case("envpool", "envpool:CartPole-v1"),
    case("gymnasium", "gymnasium:CartPole-v1"),
    case("envpool", "envpool:Pendulum-v1"),
    case("gymnasium", "gymnasium:Pendulum-v1"),
    case("envpool", "envpool:BipedalWalker-v3"),
    case("Box2D", "gymnasium:BipedalWalker-v3"),  # in an object that is used again, earlier episodes change it
    case("envpool", "envpool:CartpoleSwingup-v1"),
    case("pybullet", "gym:CartPoleBulletEnv-v1"),
    case("pybullet", "gym:HopperBulletEnv-v0"),
    case("gymnasium", "mpies.envs.lqr:LQR"),
    case("mujoco", "tests.envs.test_mujoco:Cart"),
    case("envpool", "envpool:Pendulum-v1", hide=[2], action_repeat=2, reward_shift=1.0),
    case("gymnasium", "gymnasium:CartPole-v1", hide=[1], action_repeat=3, ignored_rewards=[1.0]),
]
every_backend = pytest.mark.parametrize(("environment_id", "changes"), CASES)


def build(environment_id: str, changes: dict, **options) -> VectorEnv:
    return change_task(make_env(environment_id, **options), environment_id, **changes)


@every_backend
def test_an_episode_depends_on_its_seed_and_actions_alone(environment_id, changes):
    env = build(environment_id, changes)
    single = {seed: play(env, [seed])[0].bits for seed in (3, 14, 2**31 - 1)}
    assert len(set(single.values())) == 3
    play(env, [14, 15], steps=3)  # a batch that is not finished
    for seeds in ([14, 3], [5, 6, 3, 7, 2**31 - 1, 8, 14], [3, 3]):
        for seed, episode in zip(seeds, play(env, seeds), strict=True):
            assert episode.bits == single.get(seed, episode.bits), f"seed {seed} beside {seeds}"
    assert play(build(environment_id, changes), [3])[0].bits == single[3]
    env.close()


@every_backend
def test_rows_are_in_the_order_of_the_places(environment_id, changes):
    env, seeds = build(environment_id, changes), [3, 14, 15]
    expected = play(env, seeds, steps=2)
    batch = env.open(seeds)
    assert batch.observations.shape == (3, env.interface.observation_size)
    for step in range(2):
        order = np.array([2, 0, 1] if step else [1, 2, 0], np.int32)
        actions = np.stack([draw_actions(env, seeds[place], 2)[step] for place in order])
        batch.send(order, actions)
        observations, rewards, over = batch.receive()
        assert observations.shape == (3, env.interface.observation_size)
        assert rewards.shape == over.shape == (3,) and rewards.dtype.kind == "f" and over.dtype == bool
        for place, observation, reward in zip(order, observations, rewards, strict=True):
            np.testing.assert_array_equal(observation, expected[place].observations[step + 1])
            assert reward == expected[place].rewards[step]
    assert not over.any() and not batch.failures and not batch.behaviours
    batch.close()
    env.close()


@every_backend
def test_the_time_limit_ends_an_episode(environment_id, changes):
    env = build(environment_id, changes, max_steps=6)
    episodes = play(env, [3, 14], action=0)
    assert [len(episode.rewards) for episode in episodes] == [6 // changes.get("action_repeat", 1)] * 2
    assert all(episode.is_over for episode in episodes)
    env.close()


@pytest.mark.parametrize("backend", ["envpool", "gymnasium", "mujoco"])
def test_behaviours_are_numbers_of_the_newest_info(backend):
    pytest.importorskip("envpool" if backend == "envpool" else "mujoco")
    env = make_env("Hopper-v5", backend)
    assert env.measure_behaviour(["x_position", "x_velocity"]) == 2
    batch, seen = env.open([3, 14]), []
    for _ in range(3):
        batch.send(np.array([1, 0], np.int32), np.ones((2, 3), np.float32))
        batch.receive()
        assert sorted(batch.behaviours) == [0, 1] and batch.behaviours[0].dtype == np.float64
        seen.append(np.stack([batch.behaviours[0], batch.behaviours[1]]))
    batch.close()
    positions, velocities = np.moveaxis(seen, 2, 0)  # each (3 steps, 2 episodes)
    assert (positions[:, 0] != positions[:, 1]).all()
    assert np.diff(positions, axis=0) == pytest.approx(velocities[1:] * 0.008)  # seconds of a step
    with pytest.raises(EnvironmentProblem, match=r"environment\.behaviour: .*has no 'altitude' in its info"):
        env.measure_behaviour(["altitude"])
    env.close()


def test_the_example_of_the_class_runs():
    assert doctest.testmod(base) == doctest.TestResults(failed=0, attempted=7)


def test_actions_without_bounds_can_be_drawn():
    low, high = np.array([-np.inf, 20, -np.inf, -1], np.float32), np.array([np.inf, np.inf, -20, 1], np.float32)
    drawn = base.draw_actions(base.Continuous(low, high), 1000, np.random.default_rng(1))
    assert (drawn >= low).all() and (drawn <= high).all() and np.abs(drawn).max() <= 40
    bounded = base.draw_actions(base.Continuous(low[3:], high[3:]), 5, np.random.default_rng(2))
    assert np.array_equal(bounded, np.random.default_rng(2).uniform(low[3:], high[3:], (5, 1)).astype(np.float32))
