"""Policies for images: convolutions with virtual batch normalisation (Salimans et al. 2016, 2017).

Each layer's units are normalised with the mean and deviation that they have on a reference batch: images that random
actions lead to, drawn once from the run's seed, the same on every rank and saved with the policy.  What a member's
units are on it is worked out when an episode begins.
"""

import math
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from mpies.policies.base import Block, Network, Policy, PolicyOptions, PolicyProblem
from mpies.policies.mlp import ACTIVATIONS
from solvers.options import Count, Flag

_FRAMES = 16  # reference images at a time
_EPSILON = np.float32(1e-5)  # added to variances

Convolution = Annotated[list[Count], Field(min_length=3, max_length=3)]


class ConvolutionalOptions(PolicyOptions):
    """Convolutions, then dense layers; the defaults are those of Mnih et al. 2013 for Atari."""

    kind: Literal["conv"] = "conv"
    convolutions: Annotated[list[Convolution], Field(min_length=1)] = Field(
        [[16, 8, 4], [32, 4, 2]], description="of each layer: filters, size and stride in pixels"
    )
    hidden: list[Count] = Field([256], description="units of each dense hidden layer")
    activation: Literal["tanh", "relu", "lrelu", "elu", "linear"] = Field("relu", description="of the hidden layers")
    batch_normalization: Flag = Field(True, description="virtual batch normalisation of the hidden layers")
    reference: Count = Field(64, description="images of the reference batch")
    normalize_observations: Flag = Field(False, description="of single pixels; the layers are normalised instead")


class Convolutional(Policy):
    """Layers as matrix products: a convolution's rows are its patches of the image."""

    Options = ConvolutionalOptions

    def layout(self):
        if self.interface.shape is None or self.options.time_input:
            raise PolicyProblem(
                "policy.kind conv is for images of shape (channels, height, width) and no time_input, but "
                f"observations have shape {self.interface.shape or (self.interface.observation_size,)}; use kind: mlp"
            )
        channels, height, width = self.interface.shape
        self.patches, widths = [], []  # (size, stride, rows, columns of patches) of each convolution
        for filters, size, stride in self.options.convolutions:
            rows, columns = (height - size) // stride + 1, (width - size) // stride + 1
            if min(rows, columns) < 1:
                raise PolicyProblem(
                    f"policy.convolutions: size {size} does not fit into {height} x {width} pixels; use a smaller one"
                )
            self.patches.append((size, stride, rows, columns))
            widths.append((channels * size * size, filters))
            channels, height, width = filters, rows, columns
        inputs = channels * height * width
        for units in self.options.hidden:
            widths.append((inputs, units))
            inputs = units
        offsets = 2 if self.options.batch_normalization else 1
        blocks = []
        for rows, columns in widths:
            blocks += [Block((rows, columns), 1.0), Block((columns,), 0.0), Block((columns,), 1.0)][: 1 + offsets]
        return [*blocks, Block((inputs, self.outputs), 0.01), Block((self.outputs,), 0.0)]

    def network(self, views):
        return _Images(self, views)


class _Images(Network):
    def __init__(self, policy, views):
        self._policy, options = policy, policy.options
        self._activation = ACTIVATIONS[options.activation]
        per_layer = 3 if options.batch_normalization else 2
        hidden, (self._out, self._out_bias) = views[:-2], views[-2:]
        self._layers = [hidden[k : k + per_layer] for k in range(0, len(hidden), per_layer)]
        self._normal = options.batch_normalization
        if self._normal:
            self._reference = policy.constants["reference"]
            self.states = tuple(
                np.zeros((len(weights), 2, weights.shape[2]), np.float32) for weights, *_ in self._layers
            )

    def _rows(self, number, x):
        """What layer `number` multiplies: (k, rows, in) of the values x (k, ...) of the one before."""
        if number >= len(self._policy.patches):
            return x.reshape(len(x), 1, -1)
        size, stride, rows, columns = self._policy.patches[number]
        if number == 0:
            images = x.reshape(len(x), *self._policy.interface.shape)
        else:
            before = self._policy.patches[number - 1]
            images = x.reshape(len(x), before[2], before[3], -1).transpose(0, 3, 1, 2)
        windows = np.lib.stride_tricks.sliding_window_view(images, (size, size), axis=(2, 3))[:, :, ::stride, ::stride]
        return np.ascontiguousarray(windows.transpose(0, 2, 3, 1, 4, 5)).reshape(len(x), rows * columns, -1)

    def _flat(self, number, x):
        """Values of a layer as the next one wants them: a dense one takes channels first, as PyTorch does."""
        last = number == len(self._policy.patches) - 1
        return x.transpose(0, 2, 1).reshape(len(x), -1) if last else x

    def begin(self, lane):
        """Normalise by the reference batch, seen through the lane's own parameters."""
        if not self._normal:
            return
        x = self._reference
        for number, (weights, shift, scale) in enumerate(self._layers):
            parts = []
            for start in range(0, len(x), _FRAMES):
                part = x[start : start + _FRAMES]
                if number == 0:
                    part = part.astype(np.float32) / np.float32(255)
                parts.append(np.matmul(self._rows(number, part), weights[lane]))
            y = np.concatenate(parts)
            axes = tuple(range(y.ndim - 1))
            mean, variance = y.mean(axis=axes, dtype=np.float64), y.var(axis=axes, dtype=np.float64)
            state = self.states[number][lane]
            state[0], state[1] = mean, 1 / np.sqrt(variance + _EPSILON)
            y = (y - state[0]) * (state[1] * scale[lane]) + shift[lane]
            self._activation(y)
            x = self._flat(number, y)

    def __call__(self, inputs):
        count = len(inputs)
        x = inputs / np.float32(255)
        for number, (weights, shift, *scale) in enumerate(self._layers):
            y = np.matmul(self._rows(number, x), weights[:count])
            if self._normal:
                state = self.states[number][:count]
                y -= state[:, None, 0]
                y *= state[:, None, 1] * scale[0][:count, None]
            y += shift[:count, None]
            self._activation(y)
            x = self._flat(number, y)
        x = x.reshape(count, 1, math.prod(x.shape[1:]))
        return np.matmul(x, self._out[:count])[:, 0] + self._out_bias[:count]
