"""Parameters and outputs of perceptrons and recurrent networks, against computations in float64."""

import numpy as np
import pytest

from mpies.envs.base import Interface
from mpies.policies import make_policy
from mpies.policies.exported import ACTIVATIONS, aligned_stack
from mpies.policies.mlp import MLPOptions
from tests.policies.examples import BOX, WIDE, act, box, draw_members, draw_observations

THREE = box([-1, -0.5, 0], [1, 2, 0.25], 3)
FORWARD = {
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0),
    "lrelu": lambda x: np.where(x > 0, x, 0.01 * x),
    "elu": lambda x: np.where(x > 0, x, np.exp(x) - 1),
    "linear": lambda x: x,
}


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
    policy = make_policy(options, Interface(6, THREE))
    stack = draw_members(policy, 50, scale=0.4)
    observations = np.random.default_rng(9).standard_normal((50, 6)).astype(np.float32)
    outputs = np.stack([reference(policy, *pair) for pair in zip(stack.astype(np.float64), observations, strict=True)])
    low, high = THREE.low.astype(np.float64), THREE.high.astype(np.float64)
    expected = np.clip(outputs, low, high)
    if output == "scale":
        expected = (low + high) / 2 + (high - low) / 2 * np.tanh(outputs)
    actions = policy.bind(stack)(observations)
    assert actions.dtype == np.float32
    np.testing.assert_allclose(actions, expected, atol=2e-5)
    assert (actions >= THREE.low).all() and (actions <= THREE.high).all()


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def step_elman(x, h, c, recurrent, _):
    return np.tanh(x + h @ recurrent), c


def step_lstm(x, h, c, recurrent, _):
    i, f, g, o = np.split(x + h @ recurrent, 4)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


def step_gru(x, h, c, recurrent, more):
    (r, z, n), (hr, hz, hn) = np.split(x, 3), np.split(h @ recurrent, 3)
    n = np.tanh(n + sigmoid(r + hr) * (hn + more[0]))
    return (1 - sigmoid(z + hz)) * n + sigmoid(z + hz) * h, c


@pytest.mark.parametrize(("kind", "step"), [("elman", step_elman), ("lstm", step_lstm), ("gru", step_gru)])
def test_units_follow_their_published_equations(kind, step, build):
    policy = build(kind, action=WIDE)
    stack, observations = draw_members(policy, 1), draw_observations(policy, 30, 1)
    weights, recurrent, bias, *more, out, out_bias = (view[0].astype(np.float64) for view in policy.views(stack))
    h, c, expected = np.zeros(5), np.zeros(5), []
    for x in observations[:, 0].astype(np.float64) @ weights + bias:
        h, c = step(x, h, c, recurrent, more)
        expected.append(h @ out + out_bias)
    np.testing.assert_allclose(act(policy, stack, observations)[:, 0], expected, atol=1e-5)


def test_parameters_are_the_weights_and_biases_of_one_layer_after_the_other():
    policy = make_policy(MLPOptions(hidden=[3], sampling="gaussian"), Interface(4, BOX))
    assert policy.size == 4 * 3 + 3 + 3 * 2 + 2 + 2 and policy.matrices == ((0, 4, 3), (15, 3, 2))
    stack = aligned_stack(2, policy.size)
    stack[1] = np.arange(policy.size)
    views = policy.views(stack)
    assert [view.shape for view in views] == [(2, 4, 3), (2, 3), (2, 3, 2), (2, 2), (2, 2)]
    assert np.array_equal(np.concatenate([view[1].ravel() for view in views]), stack[1])
    views[2][0, 1, 1] = 5
    assert stack[0, 4 * 3 + 3 + 3] == 5


@pytest.mark.parametrize(("inputs", "hidden"), [(1, [8, 8]), (3, [8, 8]), (4, [])])
def test_hidden_layers_of_null_depend_on_the_number_of_inputs(inputs, hidden):
    policy, named = (make_policy(MLPOptions(hidden=each), Interface(inputs, BOX)) for each in (None, hidden))
    assert policy.widths == [inputs, *hidden, 2] and policy.layers == named.layers and policy.size == named.size


def test_first_weights_have_columns_of_the_documented_norm():
    policy = make_policy(MLPOptions(hidden=[7]), Interface(5, BOX))
    parameters = policy.initial(1)
    first, first_biases, last, last_biases = np.split(parameters, [35, 42, 56])
    np.testing.assert_allclose(np.linalg.norm(first.reshape(5, 7), axis=0), 1, rtol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(last.reshape(7, 2), axis=0), 0.01, rtol=1e-6)
    assert not first_biases.any() and not last_biases.any() and len(last_biases) == 2
    assert not make_policy(MLPOptions(initial="zeros"), Interface(5, BOX)).initial(1).any()


def test_time_is_the_steps_divided_by_the_key_and_comes_after_the_observation():
    policy = make_policy(MLPOptions(hidden=[], time_input=50), Interface(1, BOX))
    stack = aligned_stack(2, policy.size)
    policy.views(stack)[0][:] = [[1.0, 0.0], [0.0, 1.0]]  # the observation, and the time, as they are
    actions = policy.bind(stack)(np.array([[0.25], [-0.5]], np.float32), np.array([5, 25]))
    np.testing.assert_array_equal(actions, np.array([[0.25, 0.1], [-0.5, 0.5]], np.float32))
