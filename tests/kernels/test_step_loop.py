"""The step loop gives the bits of steps in Python: for any network, with hidden observations, and with images."""

import contextlib
import dataclasses
from unittest.mock import Mock

import numpy as np
import pytest

from mpies.envs import change_task, make_env
from mpies.envs.envpool_env import EnvPoolEnv
from mpies.policies import POLICIES, make_policy
from mpies.policies.mlp import MLPOptions
from mpies.rollouts.batch import RolloutBatch
from mpies.rollouts.player import EpisodePlayer
from mpies.rollouts.queue import RolloutQueue
from tests.kernels.conftest import compiled, in_numpy
from tests.policies.examples import draw_images

pytest.importorskip("envpool")
pytestmark = compiled
TYPES = {"LunarLander-v3": np.int32, "BipedalWalker-v3": np.float32, "Hopper-v5": np.float64}


def write_members(size):
    """A function that writes the parameters of thirty members."""
    stack = np.random.default_rng(3).standard_normal((30, size)).astype(np.float32)

    def write(rollout, out):
        out[:] = stack[rollout % 30]
        return ()

    return write


class CountingLoop:
    """A StepLoop that notes the steps of each call."""

    def __init__(self, loop):
        self.loop, self.prepare, self.steps = loop, loop.prepare, []

    def __call__(self, *arguments):
        self.steps.append(self.loop(*arguments))
        return self.steps[-1]


def play(env, policy, episodes=100, way=contextlib.nullcontext, timeout=None, **batch):
    """The results of some episodes of thirty members, the sums of their observations, and the player.

    way: in_numpy, for steps in Python.  Otherwise the loop of the player is a CountingLoop.  batch: of RolloutBatch.
    """
    with way():
        player = EpisodePlayer(env, policy, 5.0, timeout=timeout)
    player._loop = CountingLoop(player._loop) if player._loop else None
    sampled = np.arange(episodes) % 3 == 0
    queue = RolloutQueue(RolloutBatch(np.arange(episodes), write_members(policy.size), sampled, **batch))
    player.play([queue])
    assert queue.is_finished.all() and not queue.failures
    observations = np.sort(queue.observations(env.interface.observation_size), order="rollout")
    return queue.results, observations, player


def pendulum(**changes):
    return change_task(make_env("Pendulum-v1", "envpool", max_steps=30), "Pendulum-v1", **changes)


def build(env, kind, **options):
    options = {"normalize_observations": False, **options}
    reference = draw_images(3, 1, env.interface.observation_size).astype(np.uint8)
    return make_policy(POLICIES[kind].Options(**options), env.interface, {"reference": reference})


def assert_bits_of_numpy(env, policy, is_compiled=True, **options):
    """The same results and sums either way, and every step in the compiled loop, or none.  Returns those results."""
    results, observed, player = play(env, policy, **options)
    loop = player._loop
    assert sum(loop.steps) == player.step if is_compiled else not (loop and loop.steps)
    expected, expected_sums, plain = play(env, policy, way=in_numpy, **options)
    assert plain._loop is None and player.step > 0 and player.played == plain.played == results["steps"].sum()
    assert results.tobytes() == expected.tobytes() and observed.tobytes() == expected_sums.tobytes()
    return results, player


def play_many(environment_id, **options):
    """What assert_bits_of_numpy takes: an environment of EnvPool, a policy, and normalised observations."""
    env = make_env(environment_id, "envpool", max_steps=120)
    policy = make_policy(MLPOptions(hidden=[8]), env.interface)
    statistics = np.repeat(np.array([[0], [2]], np.float32), env.interface.observation_size, axis=1)
    return env, policy, {"normalization": statistics, **options}


@pytest.mark.parametrize(
    ("environment_id", "options"),
    [*((environment_id, {"limit": 110}) for environment_id in TYPES), ("LunarLander-v3", {"timeout": 60})],
)
def test_the_step_loop_gives_the_bits_of_steps_in_python(environment_id, options):
    env, policy, options = play_many(environment_id, **options)
    assert env.open([1]).calls.action_type == TYPES[environment_id]
    results, player = assert_bits_of_numpy(env, policy, **options)
    assert max(player._loop.steps) > 1 and results["steps"].min() < results["steps"].max()
    assert player._loop.loop.calls is None  # it no longer holds the environment


@pytest.mark.parametrize("kind", ["lstm", "gru", "elman", "mlp"])
@pytest.mark.parametrize("hide", [(2,), (0, 1)])
def test_hidden_observations_are_stepped_by_it_with_the_bits_of_numpy(kind, hide):
    env = pendulum(hide=hide)
    results, _ = assert_bits_of_numpy(env, build(env, kind))
    assert len(np.unique(results["total"])) == 100


def test_images_are_stepped_by_it_with_the_bits_of_numpy():
    env = make_env("Pong-v5", "envpool", max_steps=12)
    policy = build(env, "conv", convolutions=[[4, 8, 8]], hidden=[8], reference=3)
    assert assert_bits_of_numpy(env, policy, episodes=3)[1].step == 12


@pytest.mark.parametrize(
    ("changes", "is_training", "is_compiled"),
    [
        ({"hide": (0,), "reward_shift": 1.0}, True, False),
        ({"hide": (0,), "reward_shift": 1.0}, False, True),  # evaluations count the environment's own rewards
        ({"ignored_rewards": (0.0,)}, True, False),
        ({"action_repeat": 2}, False, False),
    ],
)
def test_other_changes_of_the_task_are_left_to_numpy(changes, is_training, is_compiled):
    env = pendulum(**changes)
    assert_bits_of_numpy(env, build(env, "mlp", hidden=[4]), is_compiled, episodes=20, is_training=is_training)


def change_receive(monkeypatch, change):
    """Let `change(arrays, at)` replace what EnvPool returns to the step loop; at: of Calls."""
    real = EnvPoolEnv.open

    def open_changed(env, seeds, training=False):
        batch = real(env, seeds, training)
        receive, at = batch.calls.receive, batch.calls.at
        batch.calls = dataclasses.replace(batch.calls, receive=lambda: change(receive(), at))
        return batch

    monkeypatch.setattr(EnvPoolEnv, "open", open_changed)


def test_results_in_another_order_get_to_their_slots(monkeypatch):
    """EnvPool with several threads returns environments as they finish."""

    def shuffle(arrays, at):
        order = np.random.default_rng(1).permutation(len(arrays[at[3]]))
        return [part[order] if len(part) == len(order) else part for part in arrays]

    env, policy, options = play_many("LunarLander-v3")
    expected, sums, _ = play(env, policy, **options)
    change_receive(monkeypatch, shuffle)
    results, observed, _ = play(env, policy, **options)
    assert results.tobytes() == expected.tobytes() and observed.tobytes() == sums.tobytes()


@pytest.mark.parametrize(
    ("part", "change", "error", "message"),
    [
        (1, np.int64, TypeError, "512 bytes of type l, but 64 numbers of type f or d were expected"),
        (0, lambda x: x[:, :4].copy(), TypeError, "1024 bytes of type f, but 512 numbers"),
        (2, np.uint8, TypeError, "64 bytes of type B"),
        (3, lambda x: x + np.int32(1000), RuntimeError, "environment 10.., which was not sent"),
        (0, Mock(side_effect=KeyError("the simulator is broken")), KeyError, "the simulator is broken"),
    ],
)
def test_results_of_another_type_size_or_place_and_errors_reach_the_caller(part, change, error, message, monkeypatch):
    def spoil(arrays, at):
        arrays[at[part]] = change(arrays[at[part]])
        return arrays

    change_receive(monkeypatch, spoil)
    env, policy, options = play_many("LunarLander-v3")
    with pytest.raises(error, match=message):
        play(env, policy, **options)
