"""Policies for images: convolutions with virtual batch normalisation (Salimans et al. 2016, 2017).

The units of each layer are normalised with the mean and standard deviation that they have on a reference batch of
images.  Random actions lead to these images; they are drawn once from the run's seed, are the same on every rank and
are saved with the policy.  A member's units on them are computed when an episode begins.
"""

from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from mpies.policies.base import Block, Policy, PolicyProblem
from mpies.policies.mlp import ACTIVATIONS
from mpies.policies.network import Network
from mpies.policies.options import PolicyOptions
from mpies.solvers.options import Count, Flag

_FRAMES = 16  # reference images that are computed at a time
_EPSILON = np.float32(1e-5)  # added to variances

Array = npt.NDArray[np.float32]

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
    """Convolutions and dense layers, both computed as matrix products.

    A convolution multiplies the patches of its images, one in each row, by its weights.  Dense layers have one patch.

    images: (height, width, channels) of what each convolution sees.  patches: number of patches of each hidden layer.
    """

    Options = ConvolutionalOptions
    options: ConvolutionalOptions
    images: list[tuple[int, int, int]]
    patches: list[int]

    def layout(self) -> list[Block]:
        if self.interface.shape is None or self.options.time_input:
            raise PolicyProblem(
                "policy.kind conv is for images of shape (channels, height, width) and no time_input, but "
                f"observations have shape {self.interface.shape or (self.interface.observation_size,)}; use kind: mlp"
            )
        channels, height, width = self.interface.shape
        self.images, self.patches, matrices = [], [], []
        for filters, size, stride in self.options.convolutions:
            self.images.append((height, width, channels))
            matrices.append((channels * size * size, filters))
            channels, height, width = filters, (height - size) // stride + 1, (width - size) // stride + 1
            if min(height, width) < 1:
                raise PolicyProblem(
                    f"policy.convolutions: size {size} does not fit into {self.images[-1][0]} x {self.images[-1][1]} "
                    "pixels; use a smaller one"
                )
            self.patches.append(height * width)
        inputs = channels * height * width
        for units in self.options.hidden:
            matrices.append((inputs, units))
            self.patches.append(1)
            inputs = units
        blocks = []
        for rows, columns in matrices:
            blocks += [Block((rows, columns), 1.0), Block((columns,), 0.0)]
            if self.options.batch_normalization:
                blocks.append(Block((columns,), 1.0))
        return [*blocks, Block((inputs, self.outputs), 0.01), Block((self.outputs,), 0.0)]

    def network(self, views: Sequence[Array]) -> Network:
        return _ImageNetwork(self, views)


class _ImageNetwork(Network):
    """Convolutions and dense layers of many members.

    Images are laid out as (height, width, channels), and so are the weights of a patch, so that copies run long.

    states: with virtual batch normalisation, for each hidden layer an array (n, 2, patches * units): the factors and
    the offsets that normalise the layer's outputs; else ().
    """

    def __init__(self, policy: Convolutional, views: Sequence[Array]) -> None:
        self._policy, options = policy, policy.options
        self._activation = ACTIVATIONS[options.activation]
        self._is_normalized = options.batch_normalization
        per_layer = 3 if self._is_normalized else 2  # weights, shifts, and scales
        hidden, (self._out_weights, self._out_biases) = views[:-2], views[-2:]
        self._layers = [hidden[k : k + per_layer] for k in range(0, len(hidden), per_layer)]
        if self._is_normalized:
            self._reference = policy.constants["reference"]
            self.states = tuple(
                np.zeros((len(weights), 2, patches * weights.shape[2]), np.float32)
                for (weights, *_), patches in zip(self._layers, policy.patches, strict=True)
            )

    def _images(self, observations: npt.NDArray[np.float32 | np.uint8]) -> Array:
        """Images (k, height, width, channels) from 0 to 1, of observations (k, o) that have channels first."""
        height, width, channels = self._policy.images[0]
        images = np.empty((len(observations), height, width, channels), np.float32)
        for channel, plane in enumerate(observations.reshape(-1, channels, height, width).swapaxes(0, 1)):
            np.divide(plane, np.float32(255), out=images[..., channel])
        return images

    def _patches(self, number: int, x: Array) -> Array:
        """The rows (k, patches, in) that layer `number` multiplies, of the outputs x (k, ...) of the layer before."""
        if number >= len(self._policy.images):
            return x.reshape(len(x), 1, -1)
        _, size, stride = self._policy.options.convolutions[number]
        images = x.reshape(len(x), *self._policy.images[number])
        windows = np.lib.stride_tricks.sliding_window_view(images, (size, size), axis=(1, 2))[:, ::stride, ::stride]
        _, rows, columns, channels, _, _ = windows.shape
        patches = np.ascontiguousarray(windows.transpose(0, 1, 2, 4, 5, 3))
        return patches.reshape(len(x), rows * columns, size * size * channels)

    def begin(self, slot: int) -> None:
        """Find the factors and offsets that normalise each layer of the slot's member on the reference batch."""
        if not self._is_normalized:
            return
        x = self._reference
        for number, (weights, shifts, scales) in enumerate(self._layers):
            parts = []
            for start in range(0, len(x), _FRAMES):
                part = x[start : start + _FRAMES]
                parts.append(np.matmul(self._patches(number, part if number else self._images(part)), weights[slot]))
            x = np.concatenate(parts)
            mean, variance = (of(axis=(0, 1), dtype=np.float64) for of in (x.mean, x.var))
            factors = (scales[slot] / np.sqrt(variance + _EPSILON)).astype(np.float32)
            offsets = (shifts[slot] - mean * factors).astype(np.float32)
            state = self.states[number][slot].reshape(2, -1, len(factors))
            state[0], state[1] = factors, offsets
            x *= factors
            x += offsets
            self._activation(x)

    def __call__(self, inputs: Array) -> Array:
        count = len(inputs)
        x = self._images(inputs)
        for number, (weights, shifts, *_) in enumerate(self._layers):
            x = np.matmul(self._patches(number, x), weights[:count])
            if self._is_normalized:
                x, state = x.reshape(count, -1), self.states[number]
                x *= state[:count, 0]
                x += state[:count, 1]
            else:
                x += shifts[:count, None]
            self._activation(x)
        return np.matmul(x.reshape(count, 1, -1), self._out_weights[:count])[:, 0] + self._out_biases[:count]
