"""Heads turn outputs into actions: noise, bins, sampling, and composite actions with a head for each part."""

import numpy as np
import pytest

from mpies import kernels
from mpies.config.loading import validate_config
from mpies.core.errors import ConfigError
from mpies.envs.base import Binary, Composite, Discrete, Interface
from mpies.policies import make_policy
from mpies.policies.heads import _STEPS, Noise
from mpies.policies.mlp import MLPOptions
from tests.policies.examples import BOX, act, box, draw_members, draw_observations
from tests.support import LEFT_OPEN

TALL = box([-np.inf, 0, -1], [0.3, np.inf, 1], 3)
MIXED = Composite((Discrete(3), BOX, Binary(2), Discrete(2), TALL))
OUTPUTS = {"choice": slice(0, 3), "box": slice(3, 5), "bits": slice(5, 7), "pair": slice(7, 9), "tall": slice(9, 12)}
CHOICES = Composite((Discrete(3), Binary(2), Discrete(2)))
NINES = box(-9, 9, 2)


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


@pytest.mark.parametrize(("action", "expected"), [(BOX, [0.2, 0.2]), (Composite((Binary(2), BOX)), [0, 0, 0.2, 0.2])])
def test_noise_has_the_deviation_of_the_key_in_boxes_alone_and_is_absent_without_a_seed(action, expected, build):
    policy = build("mlp", action=action, action_noise=0.2, hidden=[])
    stack, observations = draw_members(policy, 2, 0), draw_observations(policy, 1000, 2)
    assert not act(policy, stack, observations).any()
    noisy = act(policy, stack, observations, seeds=[1, 2])
    np.testing.assert_allclose(noisy.std(axis=(0, 1)), expected, atol=0.02)
    assert abs(np.corrcoef(noisy[:, 0, -1], noisy[:, 1, -1])[0, 1]) < 0.15


def test_noise_is_added_to_values_of_bins_and_without_it_they_are_played_as_they_are(build):
    """An exported policy has these values."""
    policy = build("mlp", action_noise=0.2, hidden=[], bins="custom:-900,0.5,900")
    stack, observations = draw_members(policy, 2), draw_observations(policy, 200, 2)
    chosen, noisy = act(policy, stack, observations), act(policy, stack, observations, seeds=[1, 2])
    for number in range(len(BOX.low)):
        assert set(chosen[..., number].ravel()) == set(policy.head.data[number])
    assert (noisy - chosen)[chosen == 0.5].std() == pytest.approx(0.2, rel=0.15)
    assert (noisy >= BOX.low).all() and (noisy <= BOX.high).all()


@pytest.mark.parametrize(
    ("action", "options", "message"),
    [
        (Discrete(3), {"action_noise": 0.1}, "for continuous actions, but these are discrete"),
        (BOX, {"action_noise": 0.1, "sampling": "gaussian"}, "cannot be used together"),
        (Discrete(3), {"bins": "uniform:3"}, "policy.bins is for continuous actions"),
        (Discrete(3), {"sampling": "gaussian"}, "not for discrete actions; use softmax"),
        (BOX, {"sampling": "softmax"}, "not for continuous actions; use gaussian"),
        (BOX, {"sampling": "gaussian", "bins": "uniform:3"}, "gaussian is not for bins; use softmax, or none"),
        (box(-np.inf, np.inf, 1), {"bins": "uniform:3"}, "needs bounded actions"),
        (box(-3e38, 3e38, 1), {"bins": "uniform:3"}, "needs bounded actions"),
        (box(-3e38, 3e38, 1), {"output": "scale"}, "needs bounded actions"),
        (box(-np.inf, 1, 1), {"output": "floor"}, "output floor needs bounded actions"),
        (CHOICES, {"bins": "uniform:3"}, "policy.bins uniform:3 fits none of the 3 parts of the action; remove it"),
        (CHOICES, {"action_noise": 0.1}, "policy.action_noise 0.1 fits none of the 3 parts of the action; remove it"),
        (CHOICES, {"sampling": "gaussian"}, "sampling gaussian fits none of the 3 parts.*; use another, or none"),
        (Composite((BOX, TALL)), {"sampling": "softmax"}, "policy.sampling softmax fits none of the 2 parts"),
        (MIXED, {"bins": "uniform:3"}, "needs bounded actions"),
        (MIXED, {"sampling": "gaussian", "action_noise": 0.1}, "cannot be used together"),
    ],
)
def test_options_that_do_not_fit_the_actions_are_refused(action, options, message, build):
    with pytest.raises(ConfigError, match=message) as caught:
        build("mlp", action=action, **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("action", "biases", "expected", "likely"),
    [
        (Discrete(3), np.log([0.2, 0.5, 0.3]), [0.2, 0.5, 0.3], [0, 1, 0]),
        (Composite((Binary(3),)), np.log([0.2 / 0.8, 1, 9]), [0.2, 0.5, 0.9], [0, 0, 1]),
    ],
)
def test_softmax_draws_with_the_probabilities_of_the_outputs(action, biases, expected, likely, build):
    policy = build("mlp", action=action, sampling="softmax", hidden=[])
    stack, observations = draw_members(policy, 1, 0), np.zeros((4000, 1, 6), np.float32)
    stack[0, -3:] = biases
    drawn, certain = act(policy, stack, observations, seeds=[5])[:, 0], act(policy, stack, observations)[:, 0]
    if isinstance(action, Discrete):
        drawn, certain = np.eye(3)[drawn], np.eye(3)[certain]
    np.testing.assert_allclose(drawn.mean(axis=0), expected, atol=0.03)
    assert (certain == likely).all()


@pytest.mark.parametrize(
    ("action", "learnt", "expected"),
    [(NINES, [0.5, 2], [0.5, 2]), (Composite((NINES, Discrete(2), NINES)), [0.5, 1, 2, 3], [0.5, 1, 0, 2, 3])],
)
def test_gaussian_has_a_learnt_deviation_for_each_number_of_a_box(action, learnt, expected, build):
    policy = build("mlp", action=action, sampling="gaussian", hidden=[])
    assert policy.initial(1)[-len(learnt) :].tolist() == [-1] * len(learnt)
    stack, observations = draw_members(policy, 1, 0), np.zeros((4000, 1, 6), np.float32)
    stack[0, -len(learnt) :] = np.log(learnt)
    deviations = act(policy, stack, observations, seeds=[5]).std(axis=(0, 1))
    np.testing.assert_allclose(deviations, expected, rtol=0.1)
    assert not act(policy, stack, observations).any()  # evaluations take the mean


@pytest.mark.parametrize("action", [BOX, Composite((BOX, Discrete(2)))])
@pytest.mark.parametrize(
    ("bins", "values"),
    [
        ("uniform:4", np.linspace(BOX.low, BOX.high, 4, dtype=np.float32)),
        ("custom:-0.5,0,1", np.array([[-0.5] * 2, [0] * 2, [1] * 2], np.float32)),
    ],
)
def test_actions_in_bins_are_values_between_the_bounds_or_the_users_own(bins, values, action, build):
    policy = build("mlp", action=action, bins=bins)
    actions = act(policy, draw_members(policy), draw_observations(policy, 40, 9)).reshape(-1, len(action.low))
    for number in range(2):
        assert set(actions[:, number].tolist()) == set(values[:, number].tolist())


def test_the_tanh_is_rounded_down_to_multiples_of_a_sixth_and_scaled_to_the_bounds(build):
    policy = build("mlp", output="floor", hidden=[])
    assert policy.size == 6 * 2 + 2  # one output for each number of the action
    outputs = [-20, -1, -0.1, -1e-6, 0, 0.1, np.arctanh(0.34), 1, 8, 20]
    sixths = [-6, -5, -1, -1, 0, 0, 2, 4, 5, 6]
    stack = draw_members(policy, len(outputs), 0)
    stack[:, -2:] = np.array(outputs)[:, None]  # biases
    (actions,) = act(policy, stack, np.zeros((1, len(outputs), 6), np.float32))
    np.testing.assert_allclose(actions[:, 0], np.array(sixths) / 6, rtol=1e-6)  # bounds -1 and 1
    np.testing.assert_allclose(actions[:, 1], 0.75 + 1.25 * np.array(sixths) / 6, rtol=1e-5)  # bounds -0.5 and 2


@pytest.mark.filterwarnings("error", *LEFT_OPEN)
@pytest.mark.parametrize(
    "bins", ["uniform", "uniform:1", "uniform:x", "custom:", "custom:1", "custom:1,nan", "custom:0,1e39", "3"]
)
def test_bins_of_another_form_are_refused(bins):
    with pytest.raises(ConfigError, match=r"policy\.bins must be uniform:N or custom:v1,v2"):
        validate_config({"environment": {"id": "Pendulum-v1"}, "policy": {"bins": bins}}, "x")


def outputs_of(policy, stack, observations):
    """The outputs (steps, members, width) of the network itself."""
    unbounded = box(-np.inf, np.inf, 12)
    plain = make_policy(policy.options.model_copy(update={"output": "clip"}), Interface(6, unbounded))
    assert plain.size == policy.size
    return act(plain, stack, observations)


@pytest.mark.parametrize("output", ["clip", "scale"])
@pytest.mark.parametrize("kind", ["mlp", "lstm"])
def test_each_part_is_chosen_by_its_own_outputs(kind, output, build):
    action = MIXED if output == "clip" else Composite((*MIXED.parts[:4], box(0, 1, 3)))
    policy = build(kind, action=action, output=output)
    stack, observations = draw_members(policy), draw_observations(policy, 12, 9)
    actions, outputs = act(policy, stack, observations), outputs_of(policy, stack, observations)
    assert actions.shape == (12, 9, 9) and actions.dtype == np.float32
    assert np.array_equal(actions[..., 0], outputs[..., OUTPUTS["choice"]].argmax(-1))
    assert np.array_equal(actions[..., 3:5], outputs[..., OUTPUTS["bits"]] > 0)
    assert np.array_equal(actions[..., 5], outputs[..., OUTPUTS["pair"]].argmax(-1))
    for place, numbers, part in ((OUTPUTS["box"], slice(1, 3), BOX), (OUTPUTS["tall"], slice(6, 9), action.parts[4])):
        if output == "clip":
            expected = outputs[..., place].clip(part.low, part.high)
        else:
            expected = (part.low + part.high) / 2 + (part.high - part.low) / 2 * np.tanh(outputs[..., place])
        np.testing.assert_allclose(actions[..., numbers], expected, rtol=1e-6)
    for column in (0, 3, 4, 5):
        assert len(np.unique(actions[..., column])) > 1  # the observations matter


@pytest.mark.skipif(not kernels.compiled, reason="the kernels could not be built when mpies was installed")
@pytest.mark.parametrize(
    "action", [Discrete(3), TALL, MIXED, CHOICES, Composite((Binary(4),)), Composite((Discrete(1), TALL))]
)
@pytest.mark.parametrize("odd", [None, np.nan, np.inf, -np.inf, -0.0])
def test_compiled_heads_give_the_bits_of_numpy(action, odd, monkeypatch):
    actions = []
    for module in (kernels.compiled, None):
        monkeypatch.setattr(kernels, "compiled", module)
        policy = make_policy(MLPOptions(hidden=[7]), Interface(6, action))
        stack = draw_members(policy)
        if odd is not None:
            stack[::2, -policy.outputs :: 2] = stack[3, -1] = odd  # biases of the last layer
            stack[1] *= odd == 0  # all outputs equal
        actor = policy.bind(stack)
        assert (actor.compiled is not None) == (module is not None)
        with np.errstate(all="ignore"):
            actions.append(act(policy, stack, draw_observations(policy, 9, 9), actor=actor))
    assert actions[0].dtype == actions[1].dtype and actions[0].tobytes() == actions[1].tobytes()


def test_parts_draw_different_numbers_and_the_first_those_of_a_single_head(build):
    twice, once = Composite((Discrete(3), Discrete(3))), Discrete(3)
    policy, single = (build("mlp", action=action, sampling="softmax", hidden=[]) for action in (twice, once))
    stack, alone = draw_members(policy, 1, 0), draw_members(single, 1, 0)
    observations = np.zeros((300, 1, 6), np.float32)
    both, one = act(policy, stack, observations, seeds=[5])[:, 0], act(single, alone, observations, seeds=[5])[:, 0]
    assert np.array_equal(both[:, 0], one)
    assert 0.2 < (both[:, 0] == both[:, 1]).mean() < 0.47  # by chance a third
