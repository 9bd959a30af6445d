"""Rollouts of real environments: what an EpisodePlayer makes of them, whatever the backend."""

import re

import gymnasium
import numpy as np
import pytest

from mpies.config.loading import validate_config
from mpies.envs import make_env
from mpies.policies import make_policy
from mpies.policies.mlp import MLPOptions
from mpies.rollouts.batch import RolloutBatch, evaluation_batch
from mpies.rollouts.player import EpisodePlayer
from mpies.rollouts.queue import RolloutQueue
from mpies.training.task import Task

SEED = 100  # of the first two rollouts; two share a seed
NAMES = ("CartPole-v1", "Pendulum-v1", "LunarLander-v3", "BipedalWalker-v3")
CASES = [*((name, "envpool") for name in NAMES), ("CartPole-v1", "gymnasium"), ("Pendulum-v1", "gymnasium")]


def draw_members(policy, rollouts):
    """The parameters of all rollouts (r, d), and a function that writes those of one."""
    rows = np.random.default_rng(1).standard_normal((rollouts, policy.size)).astype(np.float32)

    def write(rollout, out):
        out[:] = rows[rollout]
        return ()

    return rows, write


def play_rollouts(env, rollouts=24):
    """The finished RolloutQueue of rollouts whose members all differ."""
    policy = make_policy(MLPOptions(hidden=[16]), env.interface)
    normalization = np.repeat(np.array([[0.1], [0.9]], np.float32), env.interface.observation_size, axis=1)
    seeds, (_, write) = np.arange(rollouts) // 2 + SEED, draw_members(policy, rollouts)
    queue = RolloutQueue(RolloutBatch(seeds, write, np.ones(rollouts, bool), normalization))
    EpisodePlayer(env, policy, 5.0).play([queue])
    assert queue.is_finished.all()
    return queue


def observed_of(env, queue):
    """The observation sums of a queue, in the order of the rollouts."""
    return np.sort(queue.observations(env.interface.observation_size), order="rollout")


@pytest.mark.parametrize(("environment_id", "backend"), CASES)
def test_results_have_the_same_bits_however_a_rank_arranges_its_rollouts(environment_id, backend, monkeypatch):
    results = []
    for slots, largest, low_water in [(64, 256, 16), (1, 1, 0), (3, 2, 1)]:
        env = make_env(environment_id, backend, max_steps=60)
        shape = {"slots": slots, "smallest": min(largest, 2), "largest": largest, "low_water": low_water}
        for name, value in shape.items():
            monkeypatch.setattr(env, name, value)
        for _ in range(2):  # the second in an environment that has played
            queue = play_rollouts(env)
            assert not queue.failures
            results.append(queue.results.tobytes() + observed_of(env, queue).tobytes())
        env.close()
    assert len(set(queue.results["total"])) > 8
    assert len(set(results)) == 1


def test_return_length_and_observation_sums_are_those_of_gymnasium():
    env = make_env("CartPole-v1", "gymnasium")
    queue = play_rollouts(env, rollouts=2)
    result, observed = queue.results[0], observed_of(env, queue)[0]
    policy = make_policy(MLPOptions(hidden=[16]), env.interface)
    act = policy.bind(draw_members(policy, 2)[0][:1].copy())
    environment = gymnasium.make("CartPole-v1")
    observation, total, seen, is_over = environment.reset(seed=SEED)[0], 0.0, [], False
    while not is_over:
        seen.append(np.float64(observation))
        normalized = np.clip((observation - np.float32(0.1)) / np.float32(0.9), -5, 5).astype(np.float32)
        observation, reward, terminated, truncated, _ = environment.step(int(act(normalized[None])[0]))
        total, is_over = total + reward, terminated or truncated
    assert (result["steps"], result["total"], result["signs"]) == (len(seen), total, total)
    assert observed["count"] == len(seen)
    np.testing.assert_allclose(observed["total"], np.sum(seen, axis=0))
    np.testing.assert_allclose(observed["squares"], np.sum(np.square(seen), axis=0))


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("step", "ZeroDivisionError: in step 3"),
        ("reset", "RuntimeError: no reset today"),
        ("shape", "ValueError: observation has 3 numbers, but 2 were expected"),
        ("tuple", "ValueError: .*"),
        ("no reward", "return nan"),
        ("NaN", "return nan"),
        ("infinite", "return -inf"),
    ],
)
def test_a_failed_episode_costs_its_own_rollout_only_and_is_named(fault, message):
    env = make_env("tests.envs.faulty:Faulty", fault=fault)
    for _ in range(2):
        queue = play_rollouts(env, rollouts=12)
        is_odd = queue.batch.seeds % 2 == 1
        assert np.isnan(queue.results["total"][is_odd]).all()
        assert (queue.results["total"][~is_odd] == 10).all() and (queue.results["steps"][~is_odd] == 10).all()
        assert sorted(queue.failures) == np.flatnonzero(is_odd).tolist()
        assert all(re.fullmatch(message, text) for text in queue.failures.values())
        observed = observed_of(env, queue)
        assert observed["rollout"].tolist() == np.flatnonzero(~is_odd).tolist()
        assert np.isfinite(observed["total"]).all()
    env.close()


@pytest.mark.parametrize("backend", ["envpool", "gymnasium"])
def test_the_behaviour_of_a_rollout_is_that_of_its_last_step(backend):
    env = make_env("Hopper-v5", backend, max_steps=30)
    size = env.measure_behaviour(["x_position", "x_velocity"])
    policy = make_policy(MLPOptions(hidden=[4]), env.interface)
    members, write = draw_members(policy, 6)
    queue = RolloutQueue(RolloutBatch(np.arange(6), write, np.zeros(6, bool), behaviour_size=size))
    EpisodePlayer(env, policy, 5.0).play([queue])
    behaviours = queue.results["behaviour"]
    assert len(np.unique(behaviours, axis=0)) == 6
    for seed, row in enumerate(members):  # one after the other
        act, batch, is_over = policy.bind(row[None].copy()), env.open([seed]), [False]
        observations = batch.observations
        while not is_over[0]:
            batch.send(np.zeros(1, np.int32), act(observations.astype(np.float32)))
            observations, _, is_over = batch.receive()
        assert batch.behaviours[0].tolist() == behaviours[seed].tolist()
        batch.close()
    env.close()


class Keeping(gymnasium.Env):
    """Rewards small changes of the action, of which it keeps the array, or a copy."""

    observation_space = action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, copies):
        self.copies = copies

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.last, self.left = np.zeros(1, np.float32), 3 + seed % 20
        return self.np_random.uniform(-1, 1, 1).astype(np.float32), {}

    def step(self, action):
        cost = float(((action - self.last) ** 2).sum())
        self.last, self.left = action.copy() if self.copies else action, self.left - 1
        return self.np_random.uniform(-1, 1, 1).astype(np.float32), -cost, self.left == 0, False, {}


def test_an_environment_may_keep_its_actions():
    kept, copied = (play_rollouts(make_env(f"{__name__}:Keeping", copies=copies)) for copies in (False, True))
    assert kept.results.tobytes() == copied.results.tobytes() and not kept.failures and kept.results["total"].all()


class Wandering(gymnasium.Env):
    """Three steps, whose info says how far it is; odd seeds fail in the reset or in the first step."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, fault=""):
        self.fault = fault

    def reset(self, *, seed=None, options=None):
        self.seed, self.place = seed, 0
        assert seed % 2 == 0 or self.fault != "reset", "no reset"
        return np.ones(4, np.float32), {}

    def step(self, action):
        self.place += 1
        assert self.seed % 2 == 0 or self.fault != "step", "no step"
        return np.ones(4, np.float32), 1.0, self.place == 3, False, {"place": [self.place, self.seed]}


@pytest.mark.parametrize("hide", [[], [1]])
@pytest.mark.parametrize("fault", ["reset", "step"])
def test_an_episode_without_a_first_step_fails_alone_and_has_no_behaviour(fault, hide):
    section = {"id": f"{__name__}:Wandering", "kwargs": {"fault": fault}, "behaviour": ["place"], "hide": hide}
    config = {"environment": section, "policy": {"hidden": []}, "solver": {"kind": "novelty_es"}}
    task = Task(validate_config(config | {"noise": {"size": 1000}}, "config.yaml"))
    mean = evaluation_batch(np.zeros(task.dimension, np.float32), np.zeros(0, np.int64)).write
    queue = RolloutQueue(RolloutBatch(np.arange(4), mean, np.zeros(4, bool), behaviour_size=task.behaviour_size))
    task.player.play([queue])
    np.testing.assert_array_equal(queue.results["total"], [3, np.nan, 3, np.nan])
    assert queue.results["behaviour"].tolist() == [[3, 0], [0, 0], [3, 2], [0, 0]]
    assert sorted(queue.failures) == [1, 3]
