"""Policies for images: convolutions with virtual batch normalisation (Salimans et al. 2016, 2017).

The units of each layer are normalised with the mean and standard deviation that they have on a reference batch of
images.  Random actions lead to these images; they are drawn once from the run's seed, are the same on every rank and
are saved with the policy.  A member's units on them are computed when an episode begins.

The network is compiled, or in NumPy with the same bits.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from mpies import kernels
from mpies.core.errors import ConfigError
from mpies.core.options import Count, Flag
from mpies.policies.base import Architecture, Block, Network
from mpies.policies.exported import ACTIVATIONS, ImageNetwork, dense
from mpies.policies.keys import Activation, PolicyOptions

_FRAMES = 16  # reference images that are computed at a time
_MOST_CHANNELS = 4  # of images that have them last
_EPSILON = np.float32(1e-5)  # added to variances

Array = npt.NDArray[np.float32]

Convolution = Annotated[list[Count], Field(min_length=3, max_length=3)]


class ConvolutionalOptions(PolicyOptions):
    """Convolutions, then dense layers; the defaults are those of Mnih et al. 2013 for Atari."""

    kind: Literal["conv"] = "conv"
    convolutions: Annotated[list[Convolution], Field(min_length=1)] = Field(
        [[16, 8, 4], [32, 4, 2]], description="each layer: number of filters, their size and their stride in pixels"
    )
    hidden: list[Count] = Field([256], description="units of each dense hidden layer")
    activation: Activation = Field("relu", description="activation of the hidden layers")
    batch_normalization: Flag = Field(True, description="virtual batch normalisation of the hidden layers")
    reference: Count = Field(64, description="number of images in the reference batch")
    normalize_observations: Flag = Field(
        False, description="must be false: pixels are divided by 255, and batch_normalization serves the layers"
    )


class Convolutional(Architecture):
    """Convolutions and dense layers.

    images: (height, width, channels) of what each convolution sees.  patches: number of patches of each hidden layer.
    """

    Options = ConvolutionalOptions
    options: ConvolutionalOptions
    images: list[tuple[int, int, int]]
    patches: list[int]

    def layout(self) -> list[Block]:
        if self.interface.shape is None:
            raise ConfigError(
                "policy.kind conv is for images, a Box of uint8 with shape (channels, height, width), but observations "
                f"are {self.interface.observation_size} numbers of another space; use kind: mlp"
            )
        if self.options.time_input:
            raise ConfigError("policy.time_input is not for kind: conv, whose inputs are images; leave it out")
        channels, height, width = shape = self.interface.shape
        if width <= _MOST_CHANNELS < min(channels, height):
            raise ConfigError(
                f"policy.kind conv is for images of shape (channels, height, width), but these are {shape}, with the "
                "channels last; put them first in your environment, as np.moveaxis(image, -1, 0) does"
            )
        self.images, self.patches, matrices = [], [], []
        for filters, size, stride in self.options.convolutions:
            self.images.append((height, width, channels))
            matrices.append((channels * size * size, filters))
            channels, height, width = filters, (height - size) // stride + 1, (width - size) // stride + 1
            if min(height, width) < 1:
                raise ConfigError(
                    f"policy.convolutions: size {size} does not fit into {self.images[-1][0]} x {self.images[-1][1]} "
                    "pixels; use a smaller one"
                )
            self.patches.append(height * width)
        if self.options.normalize_observations:
            raise ConfigError(
                "policy.normalize_observations must be false for kind: conv, which divides pixels by 255 itself; "
                "leave it out"
            )
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
        options = self.options
        reference = self.constants["reference"] if options.batch_normalization else None
        if kernels.compiled and kernels.compiled.Convolutions.can_compute(views[0]):
            layers = self.images, options.convolutions, options.hidden
            return kernels.compiled.Convolutions(views[0], *layers, self.outputs, options.activation, reference)
        activation = ACTIVATIONS[options.activation]
        arguments = views, self.images, options.convolutions, self.patches, activation, reference is not None
        return ImageNetwork(*arguments) if reference is None else _ReferencedNetwork(reference, *arguments)


class _ReferencedNetwork(ImageNetwork):
    """Hidden layers are normalised with their mean and deviation on the images reference (k, o)."""

    def __init__(self, reference: npt.NDArray[Any], *arguments: Any) -> None:
        super().__init__(*arguments)
        self._reference = reference

    def begin(self, slot: int) -> None:
        """Find the factors and offsets that normalise each layer of the slot's member on the reference batch."""
        x = self._reference
        for number, (weights, shifts, scales) in enumerate(self.layers):
            parts = []
            for start in range(0, len(x), _FRAMES):
                part = x[start : start + _FRAMES]
                rows = self.take_patches(number, part if number else self.scale_pixels(part))
                parts.append(dense(rows, weights[slot]))
            x = np.concatenate(parts)
            values = x.reshape(-1, x.shape[-1])
            mean = _add_up(values) / len(values)
            deviations = values - mean
            variance = _add_up(deviations * deviations) / len(values)
            factors = (scales[slot] / np.sqrt(variance + _EPSILON)).astype(np.float32)
            offsets = (shifts[slot] - mean * factors).astype(np.float32)
            state = self.states[number][slot].reshape(2, -1, len(factors))
            state[0], state[1] = factors, offsets
            x *= factors
            x += offsets
            self.activation(x)


def _add_up(rows: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """The sum (k,) of the rows (n, k), added one after the other; np.sum may choose another order."""
    return np.add.accumulate(rows, axis=0, dtype=np.float64)[-1]
