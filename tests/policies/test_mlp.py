import numpy as np
import pytest

from mpies.envs.base import Continuous, Interface
from mpies.policies import make_policy
from mpies.policies.exported import ACTIVATIONS
from mpies.policies.mlp import MLPOptions
from tests.policies.examples import draw_members

BOX = Continuous(np.array([-1, -0.5, 0], np.float32), np.array([1, 2, 0.25], np.float32))
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
    policy = make_policy(options, Interface(6, BOX))
    stack = draw_members(policy, 50, scale=0.4)
    observations = np.random.default_rng(9).standard_normal((50, 6)).astype(np.float32)
    outputs = np.stack([reference(policy, *pair) for pair in zip(stack.astype(np.float64), observations, strict=True)])
    low, high = BOX.low.astype(np.float64), BOX.high.astype(np.float64)
    expected = np.clip(outputs, low, high)
    if output == "scale":
        expected = (low + high) / 2 + (high - low) / 2 * np.tanh(outputs)
    actions = policy.bind(stack)(observations)
    assert actions.dtype == np.float32
    np.testing.assert_allclose(actions, expected, atol=2e-5)
    assert (actions >= BOX.low).all() and (actions <= BOX.high).all()
