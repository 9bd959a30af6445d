import numpy as np
import pytest

from mpies.config.loading import validate_config
from mpies.core.errors import ConfigError
from mpies.envs.base import Continuous, Discrete
from mpies.policies import PolicyProblem
from mpies.policies.export import policy_arrays
from mpies.policies.exported import Policy as Exported
from mpies.policies.heads import _STEPS, Noise
from mpies.policies.keys import parse_bins
from tests.policies.examples import BOX, act, draw_members, draw_observations


def silent_members(policy, count):
    """Members whose outputs are all 0."""
    stack = draw_members(policy, count)
    stack[:] = 0
    return stack


def test_noise_depends_on_the_seed_and_the_step_alone():
    shape, steps = (2,), _STEPS + 5
    noise = Noise(3, shape)
    noise.begin(0, 7)
    noise.begin(1, 8)
    noise.begin(2, None)
    numbers = np.stack([noise(3).copy() for _ in range(steps)])
    generator = np.random.Generator(np.random.Philox(7))
    expected = [generator.standard_normal((_STEPS, *shape), dtype=np.float32) for _ in range(2)]
    assert np.array_equal(numbers[:, 0], np.concatenate(expected)[:steps])
    assert not np.array_equal(numbers[:, 1], numbers[:, 0]) and not numbers[:, 2].any()


def test_noise_goes_on_where_a_slot_that_was_not_stepped_had_stopped():
    noise, other = Noise(2, (1,)), Noise(2, (1,))
    for values in (noise, other):
        values.begin(0, 7)
        values.begin(1, 8)
    expected = np.stack([noise(2).copy() for _ in range(6)])
    for _ in range(3):
        other(1)  # slot 1 waits
    both = np.stack([other(2).copy() for _ in range(3)])
    assert np.array_equal(both[:, 0], expected[3:, 0]) and np.array_equal(both[:, 1], expected[:3, 1])


def test_noise_has_the_deviation_of_the_key_and_is_absent_without_a_seed(build):
    policy = build("mlp", action_noise=0.2, hidden=[])
    stack, observations = silent_members(policy, 2), draw_observations(policy, 200, 2)
    without = act(policy, stack, observations)
    noisy = act(policy, stack, observations, seeds=[1, 2])
    assert not without.any()
    assert noisy.std() == pytest.approx(0.2, rel=0.15)
    assert abs(np.corrcoef(noisy[:, 0, 0], noisy[:, 1, 0])[0, 1]) < 0.3


def test_noise_is_added_to_values_of_bins(build):
    policy = build("mlp", action_noise=0.2, hidden=[], bins="custom:-0.5,0.5")
    stack, observations = draw_members(policy, 2), draw_observations(policy, 200, 2)
    chosen, noisy = act(policy, stack, observations), act(policy, stack, observations, seeds=[1, 2])
    assert set(chosen.ravel()) == {-0.5, 0.5}
    assert (noisy - chosen)[..., 0].std() == pytest.approx(0.2, rel=0.15)
    assert (noisy >= BOX.low).all() and (noisy <= BOX.high).all()


def test_values_of_bins_are_what_is_played_without_noise(build):
    """An exported policy has these values."""
    for noise in (0, 0.2):
        policy = build("mlp", action_noise=noise, hidden=[], bins="custom:-900,900")
        actions = act(policy, draw_members(policy, 2), draw_observations(policy, 200, 2))
        for number in range(len(BOX.low)):
            assert set(actions[..., number].ravel()) == set(policy.head.values[number])


@pytest.mark.parametrize(
    ("action", "options", "message"),
    [
        (Discrete(3), {"action_noise": 0.1}, "for continuous actions, but these are discrete"),
        (BOX, {"action_noise": 0.1, "sampling": "gaussian"}, "cannot be used together"),
        (BOX, {"action_noise": 0.1, "sampling": "softmax", "bins": "uniform:5"}, "cannot be used together"),
        (Discrete(3), {"bins": "uniform:3"}, "policy.bins is for continuous actions"),
        (Discrete(3), {"sampling": "gaussian"}, "not for discrete actions; use softmax"),
        (BOX, {"sampling": "softmax"}, "not for continuous actions; use gaussian"),
        (BOX, {"sampling": "gaussian", "bins": "uniform:3"}, "gaussian is not for bins; use softmax, or none"),
        (Continuous(*np.array([[-np.inf], [np.inf]], np.float32)), {"bins": "uniform:3"}, "needs bounded actions"),
        (Continuous(*np.array([[-3e38], [3e38]], np.float32)), {"bins": "uniform:3"}, "needs bounded actions"),
        (Continuous(*np.array([[-3e38], [3e38]], np.float32)), {"output": "scale"}, "needs bounded actions"),
        (
            Continuous(*np.array([[-np.inf], [1]], np.float32)),
            {"output": "floor"},
            "output floor needs bounded actions",
        ),
    ],
)
def test_options_that_do_not_fit_the_actions_are_refused(action, options, message, build):
    with pytest.raises(PolicyProblem, match=message):
        build("mlp", action=action, **options)


def test_softmax_draws_with_the_probabilities_of_the_outputs(build):
    policy = build("mlp", action=Discrete(3), sampling="softmax", hidden=[])
    stack, observations = silent_members(policy, 1), np.zeros((4000, 1, 6), np.float32)
    stack[0, -3:] = np.log([0.2, 0.5, 0.3])
    counts = np.bincount(act(policy, stack, observations, seeds=[5])[:, 0], minlength=3) / 4000
    np.testing.assert_allclose(counts, [0.2, 0.5, 0.3], atol=0.03)
    assert set(act(policy, stack, observations)[:, 0]) == {1}  # the most likely


def test_gaussian_has_a_learnt_deviation_for_each_number(build):
    wide = Continuous(np.full(2, -9, np.float32), np.full(2, 9, np.float32))
    policy = build("mlp", action=wide, sampling="gaussian", hidden=[])
    stack, observations = silent_members(policy, 1), np.zeros((4000, 1, 6), np.float32)
    stack[0, -2:] = np.log([0.5, 2.0])
    deviations = act(policy, stack, observations, seeds=[5]).std(axis=(0, 1))
    np.testing.assert_allclose(deviations, [0.5, 2.0], rtol=0.1)
    assert not act(policy, stack, observations).any()  # evaluations take the mean


@pytest.mark.parametrize(
    ("bins", "values"),
    [
        ("uniform:4", np.linspace(BOX.low, BOX.high, 4, dtype=np.float32)),
        ("custom:-0.5,0,1", np.array([[-0.5] * 2, [0] * 2, [1] * 2], np.float32)),
    ],
)
def test_actions_in_bins_are_values_between_the_bounds_or_the_users_own(bins, values, build):
    policy = build("mlp", bins=bins)
    actions = act(policy, draw_members(policy), draw_observations(policy, 40, 9)).reshape(-1, 2)
    for number in range(2):
        assert set(actions[:, number].tolist()) == set(values[:, number].tolist())


def test_the_tanh_is_rounded_down_to_multiples_of_a_sixth_and_scaled_to_the_bounds(build):
    policy = build("mlp", output="floor", hidden=[])
    assert policy.size == 6 * 2 + 2  # one output for each number of the action
    outputs = [-20, -1, -0.1, -1e-6, 0, 0.1, np.arctanh(0.34), 1, 8, 20]
    sixths = [-6, -5, -1, -1, 0, 0, 2, 4, 5, 6]
    stack = silent_members(policy, len(outputs))
    stack[:, -2:] = np.array(outputs)[:, None]  # biases
    (actions,) = act(policy, stack, np.zeros((1, len(outputs), 6), np.float32))
    np.testing.assert_allclose(actions[:, 0], np.array(sixths) / 6, rtol=1e-6)  # bounds -1 and 1
    np.testing.assert_allclose(actions[:, 1], 0.75 + 1.25 * np.array(sixths) / 6, rtol=1e-5)  # bounds -0.5 and 2


def test_an_exported_policy_rounds_as_training_does(build):
    policy = build("mlp", output="floor", hidden=[4], normalize_observations=False)
    stack, observations = draw_members(policy, 1), draw_observations(policy, 50, 1)
    arrays = policy_arrays(policy, {"parameters": stack[0]})
    alone = Exported(arrays | {"kind": np.array("mlp"), "about": np.array("")})
    assert alone(observations[:, 0]).tobytes() == act(policy, stack, observations)[:, 0].tobytes()


@pytest.mark.parametrize("sampling", ["none", "gaussian", "softmax"])
def test_a_policy_knows_whether_its_actions_are_random(sampling, build):
    options = {"bins": "uniform:3"} if sampling == "softmax" else {}
    assert build("mlp", sampling=sampling, **options).head.is_random == (sampling != "none")
    assert build("mlp", action_noise=0.1).head.is_random


def test_bins_are_a_number_or_values():
    assert parse_bins("uniform:7") == 7
    values = parse_bins("custom:-1, 0.5,2")
    assert isinstance(values, np.ndarray) and values.tolist() == [-1, 0.5, 2] and values.dtype == np.float32


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "bins", ["uniform", "uniform:1", "uniform:x", "custom:", "custom:1", "custom:1,nan", "custom:0,1e39", "3"]
)
def test_bins_of_another_form_are_refused(bins):
    with pytest.raises(ConfigError, match=r"policy\.bins must be uniform:N or custom:v1,v2"):
        validate_config({"environment": {"id": "Pendulum-v1"}, "policy": {"bins": bins}}, "x")
