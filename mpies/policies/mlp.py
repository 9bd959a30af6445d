"""Perceptrons: one stacked matrix product per layer serves all members."""

import itertools
import math
from typing import Literal

import numpy as np
from pydantic import Field

from mpies.exported_mlp import ACTIVATIONS
from mpies.policies.base import Block, Network, Policy, PolicyOptions
from solvers.options import Count, Flag


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
        step = 2 if self.options.bias else 1
        biases = views[1::2] if self.options.bias else [None] * len(self.layers)
        return Layers(views[::step], biases, ACTIVATIONS[self.options.activation])


class Layers(Network):
    """Dense layers.  weights: (n, in, out) of each.  biases: (n, out) or None.  activation: of all but the last."""

    def __init__(self, weights, biases, activation):
        self._activation = activation
        outputs = [np.empty((len(w), w.shape[2]), np.float32) for w in weights]
        self._arrays = list(zip(weights, biases, outputs, strict=True))
        self._cuts = {}

    def _cut(self, count):
        """The arrays of the first `count` members, each (count, 1, width) but the weights: kept for the next step."""
        cut = [
            (weights[:count], None if biases is None else biases[:count, None], outputs[:count, None])
            for weights, biases, outputs in self._arrays
        ]
        self._cuts[count] = found = (*cut, self._arrays[-1][2][:count])
        return found

    def __call__(self, inputs):
        *layers, outputs = self._cuts.get(len(inputs)) or self._cut(len(inputs))
        x = first = inputs[:, None]
        for weights, biases, y in layers:
            if x is not first:
                self._activation(x)
            np.matmul(x, weights, y)
            if biases is not None:
                np.add(y, biases, y)
            x = y
        return outputs
