import numpy as np
import pytest

from mpies.policies import exported
from tests.policies.examples import WIDE, act, draw_members, draw_observations


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def run_elman(inputs, weights, recurrent, bias, _):
    h, outputs = np.zeros(5), []
    for x in inputs:
        h = np.tanh(x @ weights + bias + h @ recurrent)
        outputs.append(h)
    return np.array(outputs)


def run_lstm(inputs, weights, recurrent, bias, _):
    h, c, outputs = np.zeros(5), np.zeros(5), []
    for x in inputs:
        i, f, g, o = np.split(x @ weights + bias + h @ recurrent, 4)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        outputs.append(h)
    return np.array(outputs)


def run_gru(inputs, weights, recurrent, bias, more):
    h, outputs = np.zeros(5), []
    for x in inputs:
        (r, z, n), (hr, hz, hn) = np.split(x @ weights + bias, 3), np.split(h @ recurrent, 3)
        n = np.tanh(n + sigmoid(r + hr) * (hn + more[0]))
        h = (1 - sigmoid(z + hz)) * n + sigmoid(z + hz) * h
        outputs.append(h)
    return np.array(outputs)


@pytest.mark.parametrize(("kind", "run"), [("elman", run_elman), ("lstm", run_lstm), ("gru", run_gru)])
def test_units_follow_their_published_equations(kind, run, build):
    policy = build(kind, action=WIDE)
    stack, observations = draw_members(policy, 1), draw_observations(policy, 30, 1)
    weights, recurrent, bias, *more, out, out_bias = (view[0].astype(np.float64) for view in policy.views(stack))
    expected = run(observations[:, 0].astype(np.float64), weights, recurrent, bias, more) @ out + out_bias
    np.testing.assert_allclose(act(policy, stack, observations)[:, 0], expected, atol=1e-5)


def test_the_sigmoid_is_close_to_the_true_one():
    x = np.linspace(-40, 40, 1_000_001).astype(np.float32)
    values = exported.sigmoid(x)
    assert np.abs(values - sigmoid(x.astype(np.float64))).max() < 2.3e-7
    assert exported.sigmoid(np.array([-np.inf, 0, np.inf], np.float32)).tolist() == pytest.approx([0, 0.5, 1], abs=1e-7)
