"""The step loop with networks other than perceptrons, with hidden observations, and with images."""

import numpy as np
import pytest

from mpies import kernels
from mpies.envs import change_task, make_env
from mpies.policies import POLICIES, make_policy
from mpies.rollouts.batch import RolloutBatch
from mpies.rollouts.player import EpisodePlayer
from mpies.rollouts.queue import RolloutQueue

pytestmark = pytest.mark.skipif(not kernels.compiled, reason="the kernels could not be built when mpies was installed")


class Normals:
    """Parameters of thirty members."""

    def __init__(self, size):
        self._stack = 0.5 * np.random.default_rng(3).standard_normal((30, size)).astype(np.float32)

    def write(self, rollout, out):
        out[:] = self._stack[rollout % 30]
        return ()


class CountingLoop:
    """A StepLoop that counts its steps."""

    def __init__(self, loop):
        self._loop, self.prepare, self.made = loop, loop.prepare, 0

    def __call__(self, *arguments):
        made = self._loop(*arguments)
        self.made += made
        return made


def play(env, policy, module, episodes, is_training=False):
    """The results of some episodes, the steps that the player made, and those of them that the compiled loop made.

    module: what kernels.compiled is for the policy and the player.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "compiled", module)
        player = EpisodePlayer(env, policy, 5.0)
    loop = CountingLoop(player._loop) if player._loop else None
    player._loop = loop
    batch = RolloutBatch(
        np.arange(episodes), Normals(policy.size).write, np.zeros(episodes, bool), is_training=is_training
    )
    queue = RolloutQueue(batch)
    player.play([queue])
    assert queue.is_finished.all() and not queue.failures
    return queue.results, player.step, loop.made if loop else 0


def pendulum(**changes):
    pytest.importorskip("envpool")
    return change_task(make_env("Pendulum-v1", "envpool", max_steps=30), "Pendulum-v1", **changes)


def build(env, kind, **options):
    options = {"normalize_observations": False, **options}
    reference = np.random.default_rng(1).integers(256, size=(3, env.interface.observation_size)).astype(np.uint8)
    return make_policy(POLICIES[kind].Options(**options), env.interface, {"reference": reference})


@pytest.mark.parametrize("kind", ["lstm", "gru", "elman", "mlp"])
@pytest.mark.parametrize("hide", [(2,), (0, 1)])
def test_hidden_observations_are_stepped_by_it_with_the_bits_of_numpy(kind, hide):
    env = pendulum(hide=hide)
    policy = build(env, kind)
    results, steps, compiled_steps = play(env, policy, kernels.compiled, 100)
    assert compiled_steps == steps > 0
    expected, _, compiled_steps = play(env, policy, None, 100)
    assert compiled_steps == 0 and results.tobytes() == expected.tobytes()
    assert len(np.unique(results["total"])) == 100


def test_images_are_stepped_by_it_with_the_bits_of_numpy():
    pytest.importorskip("envpool")
    env = make_env("Pong-v5", "envpool", max_steps=12)
    policy = build(env, "conv", convolutions=[[4, 8, 8]], hidden=[8], reference=3)
    results, steps, compiled_steps = play(env, policy, kernels.compiled, 3)
    assert compiled_steps == steps == 12
    expected, *_ = play(env, policy, None, 3)
    assert results.tobytes() == expected.tobytes()


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
    policy = build(env, "mlp", hidden=[4])
    results, steps, compiled_steps = play(env, policy, kernels.compiled, 20, is_training)
    assert compiled_steps == (steps if is_compiled else 0)
    assert results.tobytes() == play(env, policy, None, 20, is_training)[0].tobytes()


def test_calls_that_show_another_number_of_observations_are_refused():
    env = pendulum(hide=(0,))
    policy = build(env, "mlp", hidden=[4])
    open_batch = env.open

    def open_wrong(seeds, is_training=False):
        batch = open_batch(seeds, is_training)
        batch.calls.shown[:] = True
        return batch

    env.open = open_wrong
    with pytest.raises(ValueError, match="3 numbers are shown, but an observation has 2"):
        play(env, policy, kernels.compiled, 20)
