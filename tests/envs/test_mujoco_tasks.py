"""gymnasium's MuJoCo tasks in batches against gymnasium's own classes."""

import sys

import gymnasium
import numpy as np
import pytest

from mpies.envs import EnvironmentProblem, make_env
from mpies.envs.mujoco_tasks import TASKS

pytest.importorskip("mujoco", reason="mujoco is not installed")


def make(name, **kwargs):
    return make_env(name, "mujoco", **kwargs)


STEPS = 200
# Arguments other than the defaults; those of the first episode of each task keep it going to the end.
ENDLESS = {"terminate_when_unhealthy": False}
VARIANTS = [
    *[(name, ENDLESS if "terminate_when_unhealthy" in task().options else {}) for name, task in TASKS.items()],
    (
        "Hopper-v5",
        {"healthy_reward": 2, "healthy_state_range": (-3, 3), "healthy_z_range": (0.6, 9)},
    ),
    ("Ant-v5", {"main_body": "torso", "include_cfrc_ext_in_observation": False, "contact_cost_weight": 0.1}),
    ("Humanoid-v5", {"include_cinert_in_observation": False, "contact_cost_range": (0.001, 0.01)}),
    ("HalfCheetah-v5", {"frame_skip": 2, "ctrl_cost_weight": 1, "forward_reward_weight": 3, "reset_noise_scale": 0.5}),
]


@pytest.mark.parametrize(("name", "kwargs"), VARIANTS)
def test_an_episode_is_that_of_gymnasium(name, kwargs):
    seed = 7
    env, reference = make(name, **kwargs), gymnasium.make(name, **kwargs)
    batch = env.open([seed, seed + 1])
    first, _ = reference.reset(seed=seed)
    np.testing.assert_allclose(batch.observations[0], first, rtol=0, atol=1e-9)
    space, random = reference.action_space, np.random.default_rng(1)
    places, steps = np.arange(2, dtype=np.int32), 0
    while 0 in places and steps < STEPS:
        actions = random.uniform(space.low, space.high, (2, *space.shape)).astype(np.float32)[: len(places)]
        batch.send(places, actions)
        observations, rewards, over = batch.receive()
        expected, reward, terminated, truncated, _ = reference.step(actions[0].astype(np.float64))
        np.testing.assert_allclose(observations[0], expected, rtol=0, atol=1e-9)
        assert abs(rewards[0] - reward) < 1e-9
        assert over[0] == (terminated or truncated)
        places, steps = places[~over], steps + 1
    assert not batch.failures
    assert steps in (STEPS, reference.spec.max_episode_steps) or over[0]
    assert env.max_steps == reference.spec.max_episode_steps


@pytest.mark.parametrize("name", TASKS)
def test_the_info_is_that_of_gymnasium(name):
    reference = gymnasium.make(name)
    reference.reset(seed=3)
    action = np.full(reference.action_space.shape, 0.3)
    *_, info = reference.step(action)
    for key, expected in info.items():
        if np.size(expected) == 0:  # tendons of the humanoid's, which has none
            continue
        env = make(name)
        env.measure_behaviour([key])
        batch = env.open([3])
        batch.send(np.zeros(1, np.int32), action[None])
        batch.receive()
        np.testing.assert_allclose(batch.behaviours[0], np.ravel(expected), rtol=0, atol=1e-9, err_msg=key)


def test_without_mujoco_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "mujoco", None)
    with pytest.raises(EnvironmentProblem, match=r'Hopper-v5 needs a package .*; pip install "mpies\[mujoco\]"'):
        make("Hopper-v5")
