"""The compiled recurrent and convolutional networks give the bits of NumPy, whatever vectors the processor has."""

import numpy as np
import pytest

from mpies import kernels
from mpies.envs.base import Discrete, Interface
from mpies.policies import POLICIES, make_policy
from mpies.policies.exported import ACTIVATIONS, aligned_stack
from tests.kernels.conftest import EXTREMES, compiled, in_numpy
from tests.policies.examples import box, draw_images

pytestmark = compiled
RECURRENT = ["lstm", "gru", "elman"]
IMAGE = (3, 14, 11)


def build_networks(policy, members=5, scale=1.0):
    """The compiled network of some members, the one in NumPy, and their stack."""
    random = np.random.default_rng(policy.size)
    stack = aligned_stack(members, policy.size)
    stack[:] = scale * random.standard_normal(stack.shape)
    fast = policy.network(policy.views(stack))
    with in_numpy():
        plain = policy.network(policy.views(stack))
    assert isinstance(fast, kernels.compiled.CompiledNetwork)
    assert not isinstance(plain, kernels.compiled.CompiledNetwork)
    return fast, plain, stack


def compare(fast, plain, inputs, steps=1):
    """Step both from the beginning of an episode and compare outputs and states."""
    for slot in range(len(inputs)):
        fast.begin(slot)
        plain.begin(slot)
    for _ in range(steps):
        with np.errstate(all="ignore"):
            results = (*zip([fast(inputs)], [plain(inputs)], strict=True), *zip(fast.states, plain.states, strict=True))
        for one, other in results:
            np.testing.assert_array_equal(one, other)
            assert (np.isnan(one) | (np.signbit(one) == np.signbit(other))).all()


def policy_of(kind, inputs, units, outputs, **options):
    """units: of a layer, or a list with those of each layer of an mlp."""
    hidden = [units] if kind == "mlp" and not isinstance(units, list) else units
    return make_policy(POLICIES[kind].Options(hidden=hidden, **options), Interface(inputs, box(-1e9, 1e9, outputs)))


def draw_inputs(size, members=5):
    return np.random.default_rng(size).standard_normal((members, size)).astype(np.float32)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_any_activation_gives_the_bits_of_numpy(activation, bias, vectors):
    fast, plain, _ = build_networks(policy_of("mlp", 24, [40, 40], 4, activation=activation, bias=bias))
    inputs = draw_inputs(24)
    inputs[3:] *= 100
    for count in (1, 3, 5):
        compare(fast, plain, inputs[:count])
    inputs[:, :8] = EXTREMES
    compare(fast, plain, inputs)


def test_layers_that_follow_one_another_and_do_not_fit_into_registers_give_the_bits_of_numpy(vectors):
    """Their outputs are not written over the inputs that are still to be read."""
    compare(*build_networks(policy_of("mlp", 3, [300, 290, 280], 2))[:2], draw_inputs(3))


@pytest.mark.parametrize("kind", ["mlp", *RECURRENT])
def test_any_number_of_units_gives_the_bits_of_numpy(kind, vectors):
    for units in (*range(1, 70), 127, 128, 129, 200, 1024) if kind == "mlp" else (*range(1, 20), 31, 32, 33, 64, 130):
        fast, plain, _ = build_networks(policy_of(kind, 1 + units % 7, units, 1 + units % 21), scale=0.5)
        compare(fast, plain, draw_inputs(1 + units % 7), 4)


@pytest.mark.parametrize("kind", RECURRENT)
def test_recurrent_units_of_extreme_inputs_give_those_of_numpy(kind, vectors):
    fast, plain, _ = build_networks(policy_of(kind, len(EXTREMES), 10, 2), scale=3)
    inputs = np.zeros((5, len(EXTREMES)), np.float32)
    inputs[0], inputs[1, 3], inputs[2, 4], inputs[3, 5], inputs[4] = EXTREMES, 1e30, -1e30, np.inf, 100
    compare(fast, plain, inputs, 3)


@pytest.mark.parametrize("kind", RECURRENT)
def test_slots_that_are_not_called_keep_their_units(kind):
    fast, _, _ = build_networks(policy_of(kind, 3, 6, 2))
    inputs = np.ones((5, 3), np.float32)
    fast(inputs)
    before = [state.copy() for state in fast.states]
    fast(inputs[:2])
    for state, old in zip(fast.states, before, strict=True):
        assert np.array_equal(state[2:], old[2:]) and (state[:2] != old[:2]).any()
    fast.begin(3)
    for state in fast.states:
        assert not state[3].any() and state[4].any()


@pytest.mark.parametrize("kind", ["mlp", "elman"])
def test_more_units_than_it_has_room_for_are_left_to_numpy(kind):
    policy = policy_of(kind, 1, 1025, 1)
    network = policy.network(policy.views(aligned_stack(1, policy.size)))
    assert not isinstance(network, kernels.compiled.CompiledNetwork)


def test_negative_zeros_keep_their_sign():
    fast, plain, stack = build_networks(policy_of("mlp", 3, [], 2, activation="linear"))
    inputs = np.full((5, 3), -1, np.float32)
    stack[:, :6], stack[:, 6:] = 0, -0.0  # products and biases are -0.0
    assert np.signbit(fast(inputs)).all() and fast(inputs).tobytes() == plain(inputs).tobytes()


def test_inputs_may_have_any_layout_and_type_but_not_another_shape():
    fast, plain, _ = build_networks(policy_of("mlp", 6, 4, 2))
    inputs = draw_inputs(6)
    strided = np.repeat(inputs, 2, axis=1)[:, ::2]
    assert not strided.flags.c_contiguous
    assert fast(strided).tobytes() == fast(inputs.astype(np.float64)).tobytes() == plain(inputs).tobytes()
    assert fast(inputs[:0]).shape == (0, 2)
    for wrong in (inputs[:, :5], np.tile(inputs, (2, 1))):
        with pytest.raises(ValueError, match="must have 6 columns and at most 5 rows"):
            fast(wrong)


def image_policy(action=None, shape=IMAGE, **options):
    """A policy for images.  Its reference, 20 images, is computed in two parts by NumPy."""
    reference = draw_images(20, 1, shape).astype(np.uint8)
    interface = Interface(reference.shape[1], action or box(-1e9, 1e9, 2), shape)
    return make_policy(POLICIES["conv"].Options(**options), interface, {"reference": reference})


@pytest.mark.parametrize("batch_normalization", [True, False])
def test_any_number_of_filters_and_units_gives_the_bits_of_numpy(batch_normalization, vectors):
    for filters, units in zip([1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 33], [1, 3, 4, 5, 9, 12, 16, 17, 33, 2, 7], strict=True):
        options = {"convolutions": [[filters, 4, 2], [units, 2, 1]], "hidden": [units, filters]}
        policy = image_policy(batch_normalization=batch_normalization, **options)
        compare(*build_networks(policy, 2, 0.3)[:2], draw_images(2, 2, IMAGE))


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_any_activation_of_images_gives_the_bits_of_numpy(activation, vectors):
    policy = image_policy(activation=activation, convolutions=[[6, 3, 1]], hidden=[10])
    compare(*build_networks(policy, 3, 0.3)[:2], draw_images(3, 2, IMAGE))


@pytest.mark.parametrize(
    ("shape", "options"),
    [
        ((4, 20, 20), {"convolutions": [[8, 8, 4], [8, 2, 1]]}),
        ((1, 9, 9), {"convolutions": [[3, 9, 1]], "hidden": []}),
        ((2, 8, 30), {"convolutions": [[5, 3, 2]], "hidden": []}),
        ((4, 10, 10), {"convolutions": [[5, 1, 3]], "hidden": [4, 3]}),
        ((90, 1, 1), {"convolutions": [[5, 1, 1]], "hidden": [300, 170]}),
    ],
    ids=["four channels", "one patch", "no dense layer", "patches of a pixel", "images of a pixel"],
)
def test_any_shape_of_images_gives_the_bits_of_numpy(shape, options, vectors):
    compare(*build_networks(image_policy(shape=shape, **options), 2, 0.3)[:2], draw_images(2, 2, shape))


def test_images_whose_numbers_overflow_give_those_of_numpy():
    fast, plain, stack = build_networks(image_policy(convolutions=[[6, 3, 1]], hidden=[10]), 3)
    stack[0], stack[1, ::7] = 1e30, np.nan
    with np.errstate(all="ignore"):
        compare(fast, plain, draw_images(3, 2, IMAGE))


def test_the_default_layers_give_the_bits_of_numpy_and_choose_its_actions():
    policy = image_policy(Discrete(6), (4, 84, 84))
    fast, plain, stack = build_networks(policy, 2, 0.05)
    images = draw_images(2, 2, (4, 84, 84))
    compare(fast, plain, images)
    actor = policy.bind(stack)
    assert actor.compiled
    actor.begin(0)
    actor.begin(1)
    actions = actor(images)
    assert actions.dtype == np.int32 and actions.tolist() == plain(images).argmax(axis=1).tolist()
