"""A trained multi-layer perceptron that needs only NumPy.

    policy = Policy()                  # in a file that `mpies export` wrote; else Policy(numpy.load("policy.npz"))
    action = policy(observation)       # of one observation (o,), or of several (m, o)

It computes what training computed, in the same order, so its actions have the same bits.  This file defines that
arithmetic; tests compare the compiled perceptrons of mpies with it.
`mpies export` writes this file with the parameters in DATA.
"""

import base64
import io
import itertools
from collections.abc import Mapping

import numpy as np

DATA = ""  # an .npz file in base 85


class Policy:
    """From observations to actions.

    arrays: a mapping that has `parameters` (d,), `widths` (layers + 1,) and what else `mpies export` writes to an .npz
    file.  The default is what this file holds in DATA.
    """

    def __init__(self, arrays: Mapping[str, np.ndarray] | None = None) -> None:
        if arrays is None:
            arrays = np.load(io.BytesIO(base64.b85decode(DATA)), allow_pickle=False)
        self.about = str(arrays["about"])
        self.activation = ACTIVATIONS[str(arrays["activation"])]
        self.output = str(arrays["output"])
        self.clip = np.float32(arrays["observation_clip"])
        self.normalization = arrays.get("normalization")  # (2, o) mean and standard deviation, or None
        self.bounds = arrays.get("bounds")  # (2, a) of continuous actions; None for discrete ones
        parameters = np.asarray(arrays["parameters"], np.float32)
        widths, self.layers, start = arrays["widths"].tolist(), [], 0
        for rows, columns in itertools.pairwise(widths):
            weights, start = parameters[start : start + rows * columns].reshape(rows, columns), start + rows * columns
            bias = None
            if arrays["bias"]:
                bias, start = parameters[start : start + columns], start + columns
            self.layers.append((weights, bias))

    def __call__(self, observation: np.ndarray) -> int | np.ndarray:
        """The action of an observation (o,): an int or (a,) float32.  Of several (m, o): an array of m actions."""
        observation = np.asarray(observation, np.float32)
        if observation.ndim == 1:
            action = self._act(observation)
            return int(action) if self.bounds is None else action
        return np.array([self._act(one) for one in observation])

    def _act(self, x: np.ndarray) -> np.ndarray:
        if self.normalization is not None:
            x = np.divide(np.subtract(x, self.normalization[0]), self.normalization[1])
            x = np.maximum(np.minimum(x, self.clip), -self.clip)
        x = x[None]
        for number, (weights, bias) in enumerate(self.layers):
            if number:
                self.activation(x)
            x = dense(x, weights[None], bias)
        if self.bounds is None:
            return x[0].argmax().astype(np.int32)
        low, high = self.bounds
        if self.output == "clip":
            return np.clip(x[0], low, high)
        return (low + high) / 2 + (high - low) / 2 * np.tanh(x[0])


def dense(x: np.ndarray, weights: np.ndarray, biases: np.ndarray | None = None) -> np.ndarray:
    """Outputs (m, out) of a layer with inputs (m, in), weights (m, in, out) and biases (m, out), all float32.

    Each output is its bias plus the products of inputs and weights, added one after the other in the inputs' order.
    """
    y = np.zeros((len(x), weights.shape[2]), np.float32)
    if biases is not None:
        y[:] = biases  # a bias of -0.0 added to 0.0 would become 0.0
    for number in range(weights.shape[1]):
        y += x[:, number, None] * weights[:, number]
    return y


def tanh(x: np.ndarray) -> np.ndarray:
    """Hyperbolic tangent of x (float32), with an error of at most 4.5e-7.

    It is x P(x^2) / Q(x^2) with P and Q of degree 4, fitted to [-9, 9].  np.tanh differs between processors; this does
    not.
    """
    x = np.maximum(np.minimum(x, 9), -9)
    u = x * x
    numerator = (((1.3355054e-08 * u + 2.06093973e-05) * u + 0.00349560869) * u + 0.133810431) * u + 1
    denominator = (((7.77672824e-07 * u + 0.000328566763) * u + 0.0258770622) * u + 0.467143595) * u + 1
    return x * numerator / denominator


# The activations work in place.


def _relu(x: np.ndarray) -> None:
    np.copyto(x, 0, where=x < 0)


def _lrelu(x: np.ndarray) -> None:
    np.copyto(x, x * 0.01, where=x < 0)


def _elu(x: np.ndarray) -> None:
    t = tanh(np.minimum(x, 0) * 0.5)
    np.copyto(x, (t + t) / (1 - t), where=x < 0)  # exp(x) - 1


def _tanh(x: np.ndarray) -> None:
    x[...] = tanh(x)


def _linear(x: np.ndarray) -> None:
    pass


ACTIVATIONS = {"tanh": _tanh, "relu": _relu, "lrelu": _lrelu, "elu": _elu, "linear": _linear}
