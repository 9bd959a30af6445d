"""Policies for images: convolutions with virtual batch normalisation (Salimans et al. 2016, 2017).

Each layer's units are normalised with the mean and deviation that they have on a reference batch: images that random
actions lead to, drawn once from the run's seed, the same on every rank and saved with the policy.  What a member's
units are on it is worked out when an episode begins.
"""

from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from mpies.policies.base import Block, Network, Policy, PolicyOptions, PolicyProblem
from mpies.policies.mlp import ACTIVATIONS
from mpies.solvers.options import Count, Flag

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
        self.images, widths = [], []  # (height, width, channels) of what each convolution sees
        self.places = []  # of each layer, where its units are applied: pixels, or 1
        for filters, size, stride in self.options.convolutions:
            self.images.append((height, width, channels))
            widths.append((channels * size * size, filters))
            channels, height, width = filters, (height - size) // stride + 1, (width - size) // stride + 1
            if min(height, width) < 1:
                raise PolicyProblem(
                    f"policy.convolutions: size {size} does not fit into {self.images[-1][0]} x {self.images[-1][1]} "
                    "pixels; use a smaller one"
                )
            self.places.append(height * width)
        inputs = channels * height * width
        for units in self.options.hidden:
            widths.append((inputs, units))
            self.places.append(1)
            inputs = units
        offsets = 2 if self.options.batch_normalization else 1
        blocks = []
        for rows, columns in widths:
            blocks += [Block((rows, columns), 1.0), Block((columns,), 0.0), Block((columns,), 1.0)][: 1 + offsets]
        return [*blocks, Block((inputs, self.outputs), 0.01), Block((self.outputs,), 0.0)]

    def network(self, views):
        return _Images(self, views)


class _Images(Network):
    """Images are laid out as (height, width, channels), and so are the weights of a patch: copies run long that way.

    states: for each layer (n, 2, places x units), what virtual batch normalisation multiplies by and adds.
    """

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
                np.zeros((len(weights), 2, places * weights.shape[2]), np.float32)
                for (weights, *_), places in zip(self._layers, policy.places, strict=True)
            )

    def _pixels(self, observations):
        """Observations (k, o), channels first, as images (k, height, width, channels) from 0 to 1."""
        height, width, channels = self._policy.images[0]
        images = np.empty((len(observations), height, width, channels), np.float32)
        for channel, plane in enumerate(observations.reshape(-1, channels, height, width).swapaxes(0, 1)):
            np.divide(plane, np.float32(255), out=images[..., channel])
        return images

    def _rows(self, number, x):
        """What layer `number` multiplies: (k, rows, in) of the values x (k, ...) of the one before."""
        if number >= len(self._policy.images):
            return x.reshape(len(x), 1, -1)
        _, size, stride = self._policy.options.convolutions[number]
        images = x.reshape(len(x), *self._policy.images[number])
        windows = np.lib.stride_tricks.sliding_window_view(images, (size, size), axis=(1, 2))[:, ::stride, ::stride]
        _, rows, columns, channels, _, _ = windows.shape
        patches = np.ascontiguousarray(windows.transpose(0, 1, 2, 4, 5, 3))
        return patches.reshape(len(x), rows * columns, size * size * channels)

    def begin(self, slot):
        """Normalise by the reference batch, seen through the slot's own parameters."""
        if not self._normal:
            return
        x = self._reference
        for number, (weights, shift, scale) in enumerate(self._layers):
            parts = []
            for start in range(0, len(x), _FRAMES):
                part = x[start : start + _FRAMES]
                parts.append(np.matmul(self._rows(number, part if number else self._pixels(part)), weights[slot]))
            x = np.concatenate(parts)
            mean, variance = (of(axis=(0, 1), dtype=np.float64) for of in (x.mean, x.var))
            factor = (scale[slot] / np.sqrt(variance + _EPSILON)).astype(np.float32)
            offset = (shift[slot] - mean * factor).astype(np.float32)
            state = self.states[number][slot].reshape(2, -1, len(factor))
            state[0], state[1] = factor, offset
            x *= factor
            x += offset
            self._activation(x)

    def __call__(self, inputs):
        count = len(inputs)
        x = self._pixels(inputs)
        for number, (weights, shift, *_) in enumerate(self._layers):
            x = np.matmul(self._rows(number, x), weights[:count])
            if self._normal:
                x, state = x.reshape(count, -1), self.states[number]
                x *= state[:count, 0]
                x += state[:count, 1]
            else:
                x += shift[:count, None]
            self._activation(x)
        return np.matmul(x.reshape(count, 1, -1), self._out[:count])[:, 0] + self._out_bias[:count]
