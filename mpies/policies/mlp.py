"""Perceptrons, many members at a time: compiled, or in NumPy to the same bits."""

import itertools
import math
from typing import Literal

from pydantic import Field

from mpies.policies.exported_mlp import ACTIVATIONS, dense
from mpies.kernels import Perceptrons
from mpies.policies.base import Block, Network, Policy, PolicyOptions
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

    def layout(self):
        self.layers = list(itertools.pairwise([self.inputs, *self.options.hidden, self.outputs]))
        blocks = []
        for number, (rows, columns) in enumerate(self.layers):
            blocks.append(Block((rows, columns), 0.01 if number == len(self.layers) - 1 else 1.0))
            if self.options.bias:
                blocks.append(Block((columns,), 0.0))
        return blocks

    @property
    def matrices(self):
        """(first parameter, rows, columns) of the weights of each layer."""
        starts = itertools.accumulate((math.prod(block.shape) for block in self.blocks), initial=0)
        placed = zip(starts, self.blocks, strict=False)
        return tuple((start, *block.shape) for start, block in placed if len(block.shape) == 2)

    def network(self, views):
        widths = [self.inputs, *self.options.hidden, self.outputs]
        if Perceptrons.serve(views[0], widths):
            return Perceptrons(views[0], widths, self.options.bias, self.options.activation)
        step = 2 if self.options.bias else 1
        biases = views[1::2] if self.options.bias else [None] * len(self.layers)
        return Layers(views[::step], biases, ACTIVATIONS[self.options.activation])


class Layers(Network):
    """Dense layers in NumPy.  weights: (n, in, out) of each.  biases: (n, out) or None.  activation: but the last's."""

    def __init__(self, weights, biases, activation):
        self._activation = activation
        self._arrays = list(zip(weights, biases, strict=True))

    def __call__(self, inputs):
        count, x = len(inputs), inputs
        for number, (weights, biases) in enumerate(self._arrays):
            if number:
                self._activation(x)
            x = dense(x, weights[:count], None if biases is None else biases[:count])
        return x
