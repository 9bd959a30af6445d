"""Changes of a task hold for every backend, and those of training for training alone."""

import numpy as np
import pytest

from envs import EnvironmentProblem, make_world
from envs.lqr import A, B, Q, R
from envs.tasks import change_task
from tests.envs.test_worlds import episodes_of

BACKENDS = pytest.mark.parametrize("backend", ["envpool", "gymnasium"])


def play(world, seed=3, steps=60, training=False, action=1):
    """Observations (t + 1, o), rewards (t,) of an episode with the same action throughout."""
    batch, place, seen, rewards = world.open([seed], training), np.zeros(1, np.int32), [], []
    seen.append(batch.observations[0])
    kind = np.full(1, action, np.int32) if hasattr(world.interface.action, "count") else None
    if kind is None:
        kind = np.full((1, len(world.interface.action.low)), action, np.float32)
    for _ in range(steps):
        batch.send(place, kind)
        observations, reward, over = batch.receive()
        seen.append(np.array(observations[0]))
        rewards.append(float(reward[0]))
        if over[0]:
            break
    batch.close()
    return np.array(seen), np.array(rewards)


@BACKENDS
def test_hidden_observations_are_left_out(backend):
    bare = make_world("Pendulum-v1", backend)
    world = change_task(bare, "Pendulum-v1", hide=[2])
    assert world.interface.observation_size == 2 and len(world.interface.action.low) == 1
    np.testing.assert_array_equal(play(world)[0], play(bare)[0][:, :2])


@pytest.mark.parametrize("hide", [[4], [0, 1, 2, 3]])
def test_what_cannot_be_hidden_is_said_in_one_line(hide):
    with pytest.raises(EnvironmentProblem, match=r"environment\.hide must leave out some of the observations 0 to 3"):
        change_task(make_world("CartPole-v1"), "CartPole-v1", hide=hide)


@BACKENDS
def test_a_repeated_action_sums_its_rewards_and_ends_with_the_episode(backend):
    bare = make_world("CartPole-v1", backend)
    seen, rewards = play(bare)
    repeat = 4 if len(rewards) % 4 else 3  # the episode ends within a repeat
    again, sums = play(change_task(bare, "CartPole-v1", action_repeat=repeat))
    assert sums.tolist() == [repeat] * (len(rewards) // repeat) + [len(rewards) % repeat]
    np.testing.assert_array_equal(again[:-1], seen[::repeat][: len(again) - 1])
    np.testing.assert_array_equal(again[-1], seen[-1])


@BACKENDS
def test_rewards_are_changed_in_training_only(backend):
    bare = make_world("BipedalWalker-v3", backend)
    world = change_task(bare, "BipedalWalker-v3", ignored_rewards=[-100.0], reward_shift=0.5)
    _, rewards = play(bare, steps=300)
    assert rewards[-1] == -100
    assert play(world, steps=300)[1].tolist() == rewards.tolist()
    changed = play(world, steps=300, training=True)[1]
    np.testing.assert_array_equal(changed, np.append(rewards[:-1] - 0.5, -0.5))


def test_nothing_to_change_costs_nothing():
    bare = make_world("CartPole-v1")
    assert change_task(bare, "CartPole-v1") is bare


def test_the_best_linear_policy_of_lqr_costs_what_the_riccati_equation_says():
    p = Q
    for _ in range(3000):
        gain = np.linalg.solve(R + B.T @ p @ B, B.T @ p @ A)
        p = Q + A.T @ p @ (A - B @ gain)
    world, total = make_world("LQR-v0", noise=0.0, max_steps=1500), 0.0
    batch, place = world.open([5]), np.zeros(1, np.int32)
    start = x = batch.observations[0].astype(np.float64)
    over = [False]
    while not over[0]:
        batch.send(place, np.float32(-gain @ x)[None])
        observations, rewards, over = batch.receive()
        x, total = observations[0].astype(np.float64), total + rewards[0]
    assert total == pytest.approx(-start @ p @ start, rel=1e-4)


def test_a_pole_swung_up_stays_in_reach_of_its_equations():
    world = make_world("CartPoleSwingUp-v0")
    seen, rewards = play(world, seed=1, steps=1000, action=0)
    energy = 0.5 * 9.82 * 0.6 / 2 * seen[:, 3]  # hangs: friction leaves no more than it began with
    assert len(rewards) == 1000 and energy.max() < 1
    assert (rewards < 0.2).all() and (rewards > -1e-9).all()
    seen, rewards = play(world, seed=1, steps=1000, action=1)
    assert len(rewards) < 200 and abs(seen[-1, 0]) > 2.4 >= abs(seen[-2, 0])
    assert episodes_of(world, [3]) == episodes_of(make_world("CartPoleSwingUp-v0"), [3])


@pytest.mark.parametrize("name", ["Pong-v5", "ALE/Pong-v5"])
def test_ataris_are_four_grey_frames(name):
    pytest.importorskip("envpool" if name == "Pong-v5" else "ale_py")
    world = make_world(name, frame_skip=3)
    assert world.interface.shape == (4, 84, 84) and world.interface.observation_size == 4 * 84 * 84
    seen, _ = play(world, steps=20, action=2)  # up
    assert seen.min() >= 0 and 100 < seen.max() <= 255
    frames = seen.reshape(-1, 4, 84, 84)
    np.testing.assert_array_equal(frames[5, 1:], frames[6, :3])
    assert (frames[0, 3] != frames[-1, 3]).any()
    world.close()


def test_dm_controls_named_observations_are_joined():
    world = make_world("CartpoleSwingup-v1", "envpool")
    seen, rewards = play(world, steps=20)
    assert world.interface.observation_size == seen.shape[1] == 5 and world.interface.shape is None
    assert np.hypot(seen[:, 1], seen[:, 2]) == pytest.approx(1, abs=1e-5)  # cosine and sine of the pole
    assert len(rewards) == 20
