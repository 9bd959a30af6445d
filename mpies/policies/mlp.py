"""Multi-layer perceptrons, many members at a time: compiled, or in NumPy with the same bits."""

import itertools
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from mpies import kernels
from mpies.policies.base import Block, Policy
from mpies.policies.exported_mlp import ACTIVATIONS, dense
from mpies.policies.network import Network
from mpies.policies.options import PolicyOptions
from mpies.solvers.options import Count, Flag


class MLPOptions(PolicyOptions):
    """A multi-layer perceptron; hidden: [] is a linear policy."""

    kind: Literal["mlp"] = "mlp"
    hidden: list[Count] = Field([64, 64], description="units of each hidden layer")
    activation: Literal["tanh", "relu", "lrelu", "elu", "linear"] = Field("tanh", description="of the hidden layers")
    bias: Flag = Field(True, description="whether layers have a bias")


class MLP(Policy):
    """A perceptron.  layers: (inputs, outputs) of each."""

    Options = MLPOptions
    options: MLPOptions
    layers: list[tuple[int, int]]

    def layout(self) -> list[Block]:
        self.layers = list(itertools.pairwise([self.inputs, *self.options.hidden, self.outputs]))
        blocks = []
        for number, (rows, columns) in enumerate(self.layers):
            blocks.append(Block((rows, columns), 0.01 if number == len(self.layers) - 1 else 1.0))
            if self.options.bias:
                blocks.append(Block((columns,), 0.0))
        return blocks

    def network(self, views: Sequence[npt.NDArray[np.float32]]) -> Network:
        widths, has_biases = [self.inputs, *self.options.hidden, self.outputs], self.options.bias
        if kernels.compiled and kernels.compiled.Perceptrons.can_compute(views[0], widths):
            return kernels.compiled.Perceptrons(views[0], widths, has_biases, self.options.activation)
        if has_biases:
            return NumPyPerceptrons(views[::2], views[1::2], ACTIVATIONS[self.options.activation])
        return NumPyPerceptrons(views, [None] * len(views), ACTIVATIONS[self.options.activation])


class NumPyPerceptrons(Network):
    """What kernels.compiled.Perceptrons computes, where that is missing or its layers are too wide for it.

    weights: (n, in, out) of each layer.  biases: (n, out) of each, or None.
    activation: applied in place to the outputs of all layers but the last.
    """

    def __init__(
        self,
        weights: Sequence[npt.NDArray[np.float32]],
        biases: Sequence[npt.NDArray[np.float32] | None],
        activation: Callable[[npt.NDArray[np.float32]], None],
    ) -> None:
        self._activation = activation
        self._layers = list(zip(weights, biases, strict=True))

    def __call__(self, inputs: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        count, x = len(inputs), inputs
        for number, (weights, biases) in enumerate(self._layers):
            if number:
                self._activation(x)
            x = dense(x, weights[:count], None if biases is None else biases[:count])
        return x
