import numpy as np
import pytest

from mpies.envs.base import Continuous, Discrete, Interface
from mpies.policies import ACTIVATIONS, MLPOptions, aligned_stack, make_policy

BOX = Continuous(np.array([-1, -0.5, 0], np.float32), np.array([1, 2, 0.25], np.float32))
FORWARD = {
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0),
    "lrelu": lambda x: np.where(x > 0, x, 0.01 * x),
    "elu": lambda x: np.where(x > 0, x, np.exp(x) - 1),
    "linear": lambda x: x,
}
SHAPES = [(24, [40, 40]), (8, [32, 32]), (4, []), (5, [1]), (17, [64, 64, 7]), (3, [130])]


def members(policy, count, seed=0):
    stack = aligned_stack(count, policy.size)
    stack[:] = np.random.default_rng(seed).standard_normal(stack.shape)
    return stack


def reference(policy, parameters, observation):
    """One member's outputs in float64, layer by layer."""
    x, start = observation.astype(np.float64), 0
    for number, (rows, columns) in enumerate(policy.layers):
        weights = parameters[start : start + rows * columns].reshape(rows, columns)
        start += rows * columns
        x = (FORWARD[policy.options.activation](x) if number else x) @ weights
        if policy.options.bias:
            x = x + parameters[start : start + columns]
            start += columns
    assert start == len(parameters)
    return x


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("output", ["clip", "scale"])
def test_continuous_actions_are_those_of_a_float64_forward_pass(activation, output, bias):
    options = MLPOptions(hidden=[16, 9], activation=activation, output=output, bias=bias)
    policy = make_policy(options, Interface(6, BOX))
    stack, observations = members(policy, 50), np.random.default_rng(9).standard_normal((50, 6)).astype(np.float32)
    stack *= 0.4
    outputs = np.stack([reference(policy, *pair) for pair in zip(stack.astype(np.float64), observations, strict=True)])
    low, high = BOX.low.astype(np.float64), BOX.high.astype(np.float64)
    expected = np.clip(outputs, low, high)
    if output == "scale":
        expected = (low + high) / 2 + (high - low) / 2 * np.tanh(outputs)
    actions = policy.bind(stack)(observations)
    assert actions.dtype == np.float32
    np.testing.assert_allclose(actions, expected, atol=2e-5)
    assert (actions >= BOX.low).all() and (actions <= BOX.high).all()


def test_discrete_actions_take_the_largest_output():
    policy = make_policy(MLPOptions(hidden=[8]), Interface(3, Discrete(5)))
    stack, observations = members(policy, 200), np.random.default_rng(2).standard_normal((200, 3)).astype(np.float32)
    expected = [np.argmax(reference(policy, *pair)) for pair in zip(stack, observations, strict=True)]
    actions = policy.bind(stack)(observations)
    assert actions.dtype == np.int32
    assert actions.tolist() == expected
    assert len(set(expected)) == 5


@pytest.mark.parametrize(("size", "hidden"), SHAPES)
@pytest.mark.parametrize("output", ["clip", "scale"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_a_member_acts_the_same_to_the_bit_whatever_the_company(size, hidden, output, activation):
    wide = Continuous(np.full(3, -1e3, np.float32), np.full(3, 1e3, np.float32))
    policy = make_policy(MLPOptions(hidden=hidden, output=output, activation=activation), Interface(size, wide))
    stack, random = members(policy, 64), np.random.default_rng(4)
    observations = random.standard_normal((64, size)).astype(np.float32)
    together = policy.bind(stack)(observations).copy()
    for count in (1, 2, 3, 7, 63):
        chosen = random.permutation(64)[:count]
        slots = aligned_stack(64, policy.size)
        slots[:count] = stack[chosen]
        apart = policy.bind(slots)(observations[chosen])
        assert apart.tobytes() == together[chosen].tobytes(), f"{count} members"


def test_a_stack_may_be_rewritten_between_calls():
    policy = make_policy(MLPOptions(hidden=[4]), Interface(2, BOX))
    stack, other = members(policy, 3), members(policy, 3, seed=1)
    observations = np.ones((3, 2), np.float32)
    expected = policy.bind(other)(observations).copy()
    act = policy.bind(stack)
    act(observations)
    stack[:] = other
    assert act(observations).tobytes() == expected.tobytes()


def test_acting_leaves_the_observations_as_they_are():
    policy = make_policy(MLPOptions(hidden=[]), Interface(3, BOX))
    observations = np.full((2, 3), 0.7, np.float32)
    policy.bind(members(policy, 2))(observations)
    assert (observations == np.float32(0.7)).all()


def test_rows_of_a_stack_begin_on_cache_lines():
    stack = aligned_stack(5, 37)
    assert stack.shape == (5, 37)
    assert [row.ctypes.data % 64 for row in stack] == [0] * 5


def test_first_parameters_belong_to_the_seed_and_have_columns_of_the_norm_said():
    policy = make_policy(MLPOptions(hidden=[7]), Interface(5, BOX))
    one, same, other = policy.initial(1), policy.initial(1), policy.initial(2)
    assert one.tobytes() == same.tobytes() != other.tobytes()
    first, last = one[:35].reshape(5, 7), one[42:63].reshape(7, 3)
    np.testing.assert_allclose(np.linalg.norm(first, axis=0), 1, rtol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(last, axis=0), 0.01, rtol=1e-6)
    np.testing.assert_array_equal(np.r_[one[35:42], one[63:]], 0)
    assert not make_policy(MLPOptions(initial="zeros"), Interface(5, BOX)).initial(1).any()
