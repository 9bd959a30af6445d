"""A trained multi-layer perceptron that needs NumPy alone.

    policy = Policy()                  # in a file that mpies exported; else Policy(numpy.load("policy.npz"))
    action = policy(observation)       # one observation (o,), or several (m, o)

It computes what training computed, in the same order, so that its actions are the same to the bit: this file is the
definition of that arithmetic, and the compiled layers of mpies are held against it.
`mpies export` writes this file with the parameters at its end.
"""

import base64
import io
import itertools

import numpy as np

DATA = ""  # an .npz, in base 64


class Policy:
    """observation -> action.

    arrays: a mapping with parameters (d,) float32, widths (layers + 1,), and what else `mpies export` writes
    into an .npz; default those in this file.
    """

    def __init__(self, arrays=None):
        if arrays is None:
            arrays = np.load(io.BytesIO(base64.b85decode(DATA)), allow_pickle=False)
        self.about = str(arrays["about"])
        self.activation = ACTIVATIONS[str(arrays["activation"])]
        self.output = str(arrays["output"])
        self.clip = np.float32(arrays["observation_clip"])
        self.normalization = arrays.get("normalization")
        self.bounds = arrays.get("bounds")  # (2, a) of continuous actions
        parameters = np.asarray(arrays["parameters"], np.float32)
        widths, self.layers, start = arrays["widths"].tolist(), [], 0
        for rows, columns in itertools.pairwise(widths):
            weights, start = parameters[start : start + rows * columns].reshape(rows, columns), start + rows * columns
            bias = None
            if arrays["bias"]:
                bias, start = parameters[start : start + columns], start + columns
            self.layers.append((weights, bias))

    def __call__(self, observation):
        """The action, an int or (a,) float32, of an observation (o,); of several (m, o), m of them."""
        observation = np.asarray(observation, np.float32)
        if observation.ndim == 1:
            action = self._act(observation)
            return int(action) if self.bounds is None else action
        return np.array([self._act(one) for one in observation])

    def _act(self, x):
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


def dense(x, weights, biases=None):
    """Outputs (m, out) of inputs (m, in), weights (m, in, out) and biases (m, out): float32, summed input by input."""
    y = np.zeros((len(x), weights.shape[2]), np.float32)
    if biases is not None:
        y[:] = biases  # added to zeros, -0.0 would become 0.0
    for number in range(weights.shape[1]):
        y += x[:, number, None] * weights[:, number]
    return y


def tanh(x):
    """Hyperbolic tangent of x, float32, to 4.5e-7: x P(x^2) / Q(x^2), both of degree 4 and fitted to [-9, 9]."""
    x = np.maximum(np.minimum(x, 9), -9)
    u = x * x
    above = (((1.3355054e-08 * u + 2.06093973e-05) * u + 0.00349560869) * u + 0.133810431) * u + 1
    below = (((7.77672824e-07 * u + 0.000328566763) * u + 0.0258770622) * u + 0.467143595) * u + 1
    return x * above / below


def _relu(x):
    np.copyto(x, 0, where=x < 0)


def _lrelu(x):
    np.copyto(x, x * 0.01, where=x < 0)


def _elu(x):
    t = tanh(np.minimum(x, 0) * 0.5)
    np.copyto(x, (t + t) / (1 - t), where=x < 0)  # exp(x) - 1


def _tanh(x):
    x[...] = tanh(x)


def _linear(x):
    pass


ACTIVATIONS = {"tanh": _tanh, "relu": _relu, "lrelu": _lrelu, "elu": _elu, "linear": _linear}
