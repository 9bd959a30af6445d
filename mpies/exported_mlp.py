"""A trained multi-layer perceptron that needs NumPy alone.

    policy = Policy()                  # in a file that mpies exported; else Policy(numpy.load("policy.npz"))
    action = policy(observation)       # one observation (o,), or several (m, o)

It computes what training computed, in the same order, so that its actions are the same to the bit.
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
        aligned = np.zeros(len(parameters) + 16, np.float32)  # from a cache line on, as in training
        start = (-aligned.ctypes.data // 4) % 16
        flat = aligned[start : start + len(parameters)]
        flat[:] = parameters
        widths, self.layers, start = arrays["widths"].tolist(), [], 0
        for rows, columns in itertools.pairwise(widths):
            weights, start = flat[start : start + rows * columns].reshape(rows, columns), start + rows * columns
            bias = None
            if arrays["bias"]:
                bias, start = flat[start : start + columns], start + columns
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
            y = np.empty((1, weights.shape[1]), np.float32)
            np.matmul(x[:, None, :], weights[None], out=y[:, None, :])  # shapes decide which routine sums
            x = y
            if bias is not None:
                np.add(x, bias, out=x)
        if self.bounds is None:
            return x[0].argmax().astype(np.int32)
        low, high = self.bounds
        if self.output == "clip":
            return np.clip(x[0], low, high)
        return (low + high) / 2 + (high - low) / 2 * np.tanh(x[0])


def _relu(x):
    np.maximum(x, 0, out=x)


def _lrelu(x):
    np.maximum(x, x * np.float32(0.01), out=x)


def _elu(x):
    np.copyto(x, np.expm1(np.minimum(x, 0)), where=x < 0)


def _tanh(x):
    np.tanh(x, out=x)


def _linear(x):
    pass


ACTIVATIONS = {"tanh": _tanh, "relu": _relu, "lrelu": _lrelu, "elu": _elu, "linear": _linear}
