"""Composite actions: a head for each part."""

import numpy as np
import pytest

from mpies import kernels
from mpies.envs.base import Binary, Composite, Continuous, Discrete, Interface
from mpies.policies import POLICIES, PolicyProblem, make_policy
from mpies.policies.heads import Head
from mpies.policies.mlp import MLPOptions
from tests.policies.examples import BOX, act, build_policy, draw_members, draw_observations

TALL = Continuous(np.array([-np.inf, 0, -1], np.float32), np.array([0.3, np.inf, 1], np.float32))
MIXED = Composite((Discrete(3), BOX, Binary(2), Discrete(2), TALL))
OUTPUTS = {"choice": slice(0, 3), "box": slice(3, 5), "bits": slice(5, 7), "pair": slice(7, 9), "tall": slice(9, 12)}
CHOICES = Composite((Discrete(3), Binary(2), Discrete(2)))
WIDE = Continuous(np.full(12, -np.inf, np.float32), np.full(12, np.inf, np.float32))


def outputs_of(policy, stack, observations):
    """The outputs (steps, members, width) of the network itself."""
    plain = make_policy(policy.options.model_copy(update={"output": "clip"}), Interface(6, WIDE))
    assert plain.size == policy.size
    return act(plain, stack, observations)


@pytest.mark.parametrize("output", ["clip", "scale"])
@pytest.mark.parametrize("kind", ["mlp", "lstm", "gru", "elman"])
def test_each_part_is_chosen_by_its_own_outputs(kind, output, build):
    action = (
        Composite((Discrete(3), BOX, Binary(2), Discrete(2), TALL))
        if output == "clip"
        else (
            Composite(
                (Discrete(3), BOX, Binary(2), Discrete(2), Continuous(np.zeros(3, np.float32), np.ones(3, np.float32)))
            )
        )
    )
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


@pytest.mark.parametrize("kind", [kind for kind in POLICIES if kind in ("conv", "torch")])
def test_modules_and_convolutions_have_a_head_for_each_part_too(kind, tmp_path):
    policy = build_policy(kind, tmp_path, action=MIXED)
    assert policy.outputs == 12
    actions = act(policy, draw_members(policy), draw_observations(policy, 6, 9))
    assert actions.shape == (6, 9, 9)
    assert set(np.unique(actions[..., 0])) <= {0, 1, 2} and set(np.unique(actions[..., 3:5])) == {0, 1}
    assert (actions >= MIXED.low).all() and (actions <= MIXED.high).all()


@pytest.mark.parametrize("kind", ["mlp", "lstm", "torch"])
@pytest.mark.parametrize(
    "options",
    [
        *({}, {"output": "scale"}, {"sampling": "softmax"}, {"sampling": "gaussian"}, {"action_noise": 0.2}),
        *({"bins": "custom:-0.5,0,0.5"}, {"bins": "custom:-0.5,0.5", "sampling": "softmax"}),
        {"action_noise": 0.2, "sampling": "softmax"},
    ],
    ids=str,
)
def test_a_member_acts_the_same_beside_any_others_and_in_any_slot(kind, options, build):
    action = Composite((Discrete(3), BOX, Binary(2), BOX))
    policy = build(kind, action=action, **options)
    stack, observations, seeds = draw_members(policy), draw_observations(policy, 5, 9), np.arange(9) * 7
    together = act(policy, stack, observations, seeds=seeds)
    for slots in ([4], [8, 0], [3, 2, 1, 0, 4]):
        assert act(policy, stack, observations, slots, seeds).tobytes() == together[:, slots].tobytes()
    assert (together >= action.low).all() and (together <= action.high).all()
    assert set(np.unique(together[..., 0])) == {0, 1, 2} and set(np.unique(together[..., 3:5])) == {0, 1}
    is_random = "sampling" in options or "action_noise" in options
    assert policy.head.is_random == is_random
    assert np.array_equal(act(policy, stack, observations), together) != is_random


@pytest.mark.skipif(not kernels.compiled, reason="the kernels could not be built when mpies was installed")
@pytest.mark.parametrize("action", [MIXED, CHOICES, Composite((Binary(4),)), Composite((Discrete(1), TALL))])
@pytest.mark.parametrize("odd", [None, np.nan, np.inf, -np.inf, 0.0])
def test_compiled_heads_give_the_bits_of_numpy(action, odd, monkeypatch):
    actions = []
    for module in (kernels.compiled, None):
        monkeypatch.setattr(kernels, "compiled", module)
        policy = make_policy(MLPOptions(hidden=[7]), Interface(6, action))
        stack = draw_members(policy)
        if odd is not None:
            stack[::2, -policy.outputs :: 2] = odd  # biases of the last layer
            stack[1] *= odd == 0  # all outputs equal
        actor = policy.bind(stack)
        assert (actor.compiled is not None) == (module is not None)
        with np.errstate(all="ignore"):
            actions.append(act(policy, stack, draw_observations(policy, 9, 9), actor=actor))
    assert actions[0].tobytes() == actions[1].tobytes()
    assert actions[0].shape == (9, 9, sum(part.numbers for part in action.parts))


@pytest.mark.skipif(not kernels.compiled, reason="the kernels could not be built when mpies was installed")
def test_parts_that_do_not_fit_the_outputs_are_refused():
    policy = make_policy(MLPOptions(hidden=[]), Interface(2, CHOICES))
    network, bounds = policy.network(policy.views(draw_members(policy))), np.zeros(7, np.float32)
    for parts in ([("Discrete", 6)], [("Discrete", 7), ("Binary", 0)]):
        with pytest.raises(ValueError, match="must take 7 outputs"):
            network.choose_parts(parts, bounds, bounds)


def test_parts_draw_different_numbers_and_the_first_those_of_a_single_head(build):
    twice, once = Composite((Discrete(3), Discrete(3))), Discrete(3)
    policy, single = (build("mlp", action=action, sampling="softmax", hidden=[]) for action in (twice, once))
    stack, alone = draw_members(policy, 1), draw_members(single, 1)
    stack[:], alone[:] = 0, 0
    observations = np.zeros((300, 1, 6), np.float32)
    both, one = act(policy, stack, observations, seeds=[5])[:, 0], act(single, alone, observations, seeds=[5])[:, 0]
    assert np.array_equal(both[:, 0], one)
    assert 0.2 < (both[:, 0] == both[:, 1]).mean() < 0.47  # by chance a third


def test_softmax_draws_0s_and_1s_with_the_probabilities_of_the_outputs(build):
    policy = build("mlp", action=Composite((Binary(3),)), sampling="softmax", hidden=[])
    stack = draw_members(policy, 1)
    stack[:], stack[0, -3:] = 0, np.log([0.2 / 0.8, 1, 9])
    drawn = act(policy, stack, np.zeros((4000, 1, 6), np.float32), seeds=[5])
    np.testing.assert_allclose(drawn.mean(axis=(0, 1)), [0.2, 0.5, 0.9], atol=0.03)
    assert act(policy, stack, np.zeros((1, 1, 6), np.float32)).tolist() == [[[0, 0, 1]]]  # the most likely


def test_every_box_has_deviations_of_its_own(build):
    wide = Continuous(np.full(2, -99, np.float32), np.full(2, 99, np.float32))
    policy = build("mlp", action=Composite((wide, Discrete(2), wide)), sampling="gaussian", hidden=[])
    assert policy.head.log_stds == (2, 2) and policy.initial(1)[-4:].tolist() == [-1] * 4
    stack = draw_members(policy, 1)
    stack[:], stack[0, -4:] = 0, np.log([0.5, 1, 2, 4])
    drawn = act(policy, stack, np.zeros((3000, 1, 6), np.float32), seeds=[5])[:, 0]
    np.testing.assert_allclose(drawn.std(axis=0), [0.5, 1, 0, 2, 4], rtol=0.1)


def test_noise_is_added_to_boxes_alone(build):
    policy = build("mlp", action=Composite((Binary(2), BOX)), action_noise=0.1, hidden=[])
    stack = draw_members(policy, 1)
    stack[:] = 0
    noisy = act(policy, stack, np.zeros((2000, 1, 6), np.float32), seeds=[5])[:, 0]
    np.testing.assert_allclose(noisy.std(axis=0), [0, 0, 0.1, 0.1], atol=0.01)


def test_numbers_of_boxes_take_the_values_of_bins(build):
    policy = build("mlp", action=Composite((BOX, Discrete(2))), bins="uniform:4")
    assert [head.width for head in policy.head.heads] == [8, 2] and isinstance(policy.head.heads[0], Head)
    actions = act(policy, draw_members(policy), draw_observations(policy, 40, 9)).reshape(-1, 3)
    values = np.linspace(BOX.low, BOX.high, 4, dtype=np.float32)
    for number in range(2):
        assert set(actions[:, number].tolist()) == set(values[:, number].tolist())


@pytest.mark.parametrize(
    ("action", "options", "message"),
    [
        (CHOICES, {"bins": "uniform:3"}, "policy.bins uniform:3 fits none of the 3 parts of the action; remove it"),
        (CHOICES, {"action_noise": 0.1}, "policy.action_noise 0.1 fits none of the 3 parts of the action; remove it"),
        (
            CHOICES,
            {"sampling": "gaussian"},
            "policy.sampling gaussian fits none of the 3 parts.*; use another, or none",
        ),
        (Composite((BOX, TALL)), {"sampling": "softmax"}, "policy.sampling softmax fits none of the 2 parts"),
        (MIXED, {"bins": "uniform:3"}, "needs bounded actions"),
        (MIXED, {"output": "scale"}, "policy.output scale needs bounded actions"),
        (MIXED, {"sampling": "gaussian", "bins": "custom:1,2"}, "use softmax"),
        (MIXED, {"sampling": "gaussian", "action_noise": 0.1}, "cannot be used together"),
    ],
)
def test_options_that_fit_no_part_are_refused(action, options, message, build):
    with pytest.raises(PolicyProblem, match=message) as caught:
        build("mlp", action=action, **options)
    assert "\n" not in str(caught.value)
