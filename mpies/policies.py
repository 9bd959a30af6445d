"""Policies in NumPy, many members at a time.

All parameters of a policy are one flat float32 vector, and a row of a stack of such vectors is one
member.  One stacked matrix product per layer serves all members; it treats each row by itself, so a
member acts the same to the bit whatever the company.
"""

import itertools
from typing import Literal

import numpy as np
from pydantic import Field

from envs.base import Discrete
from mpies.exported_mlp import ACTIVATIONS
from solvers.options import Count, Flag, Fraction, Options, Positive
from solvers.streams import INITIAL_MEAN, stream

_LINE = 16  # float32 per cache line: members start on one, so all see the same alignment


def aligned_stack(count, size):
    """A (count, size) float32 array whose rows start on cache lines."""
    stride = -(-size // _LINE) * _LINE
    memory = np.zeros(count * stride + _LINE, np.float32)
    skip = (-memory.ctypes.data // 4) % _LINE
    return memory[skip : skip + count * stride].reshape(count, stride)[:, :size]


class MLPOptions(Options):
    """A multi-layer perceptron; hidden: [] is a linear policy."""

    kind: Literal["mlp"] = "mlp"
    hidden: list[Count] = Field([64, 64], description="units of each hidden layer")
    activation: Literal["tanh", "relu", "lrelu", "elu", "linear"] = Field("tanh", description="of the hidden layers")
    bias: Flag = Field(True, description="whether layers have a bias")
    output: Literal["clip", "scale"] = Field(
        "clip",
        description="continuous actions: clip the output to the bounds, or tanh and scale it to them; "
        "discrete actions take the largest output",
    )
    initial: Literal["scaled", "zeros"] = Field(
        "scaled", description="first parameters: rows of unit-norm normals (last layer 0.01), or zeros"
    )
    normalize_observations: Flag = Field(
        True, description="subtract the mean and divide by the standard deviation of the observations seen"
    )
    observation_clip: Positive = Field(5.0, description="normalised observations are clipped to +- this")
    statistics_fraction: Fraction = Field(
        0.1, description="share of training episodes that feed the statistics (OpenAI's calc_obstat_prob)"
    )


class NoPolicyOptions(Options):
    """For test functions: the parameters themselves are what is evaluated."""

    kind: Literal["none"] = "none"


class MLP:
    """A perceptron for an Interface.  size: number of parameters."""

    def __init__(self, options, interface):
        self.options = options
        self.action = interface.action
        outputs = self.action.count if isinstance(self.action, Discrete) else len(self.action.low)
        widths = [interface.observation_size, *options.hidden, outputs]
        self.layers = list(itertools.pairwise(widths))
        self.size = sum(rows * columns + options.bias * columns for rows, columns in self.layers)

    def initial(self, seed):
        """First parameters (size,) float32: columns of unit norm, the last layer's of norm 0.01; biases 0."""
        parameters = aligned_stack(1, self.size)
        if self.options.initial == "scaled":
            random = stream(seed, INITIAL_MEAN)
            for number, (weights, _) in enumerate(self._views(parameters)):
                normals = random.standard_normal(weights.shape[1:])
                gain = 0.01 if number == len(self.layers) - 1 else 1.0
                weights[0] = gain * normals / np.sqrt(np.sum(normals * normals, axis=0))
        return parameters[0].copy()

    def _views(self, stack):
        """Per layer the weights (n, in, out) and biases (n, out) or None, as views of stack (n, size)."""
        views, start = [], 0
        for rows, columns in self.layers:
            middle, stop = start + rows * columns, start + rows * columns + self.options.bias * columns
            weights = stack[:, start:middle].reshape(len(stack), rows, columns)
            views.append((weights, stack[:, middle:stop] if self.options.bias else None))
            start = stop
        return views

    def bind(self, stack):
        """A function from observations (m, o) float32 to actions of the first m members of `stack` (n, size).

        Actions are (m,) int32 or (m, a) float32.  The stack may be rewritten between calls.
        """
        views = self._views(stack)
        buffers = [np.empty((len(stack), columns), np.float32) for _, columns in self.layers]
        activation = ACTIVATIONS[self.options.activation]
        finish = self._finish()

        def act(observations):
            count = len(observations)
            x = observations
            for (weights, biases), buffer in zip(views, buffers, strict=True):
                if x is not observations:
                    activation(x)
                y = buffer[:count]
                np.matmul(x[:, None, :], weights[:count], out=y[:, None, :])
                if biases is not None:
                    np.add(y, biases[:count], out=y)
                x = y
            return finish(x)

        return act

    def _finish(self):
        if isinstance(self.action, Discrete):
            return lambda x: x.argmax(axis=1).astype(np.int32)
        low, high = self.action.low, self.action.high
        if self.options.output == "clip":
            return lambda x: np.clip(x, low, high, out=x)
        middle, half = (low + high) / 2, (high - low) / 2
        return lambda x: middle + half * np.tanh(x)


def make_policy(options, interface):
    """The policy that `options` asks for."""
    return MLP(options, interface)
