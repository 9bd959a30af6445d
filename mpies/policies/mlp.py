"""Multi-layer perceptrons, many members at a time: compiled, or in NumPy with the same bits."""

import itertools
from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from mpies import kernels
from mpies.core.options import Count, Flag
from mpies.policies.base import Architecture, Block, Network
from mpies.policies.exported import ACTIVATIONS, PerceptronNetwork
from mpies.policies.keys import Activation, PolicyOptions

FEW = 3  # inputs with which a linear policy is too simple, for instance to swing a pendulum up


class MLPOptions(PolicyOptions):
    """A multi-layer perceptron; hidden: [] is a linear policy."""

    kind: Literal["mlp"] = "mlp"
    hidden: list[Count] | None = Field(
        [64, 64], description=f"units of each hidden layer; null: [] for more than {FEW} inputs, else [8, 8]"
    )
    activation: Activation = Field("tanh", description="activation of the hidden layers")
    bias: Flag = Field(True, description="whether layers have a bias")


class MLP(Architecture):
    """A perceptron.  layers: (inputs, outputs) of each."""

    Options = MLPOptions
    options: MLPOptions
    layers: list[tuple[int, int]]

    @property
    def widths(self) -> list[int]:
        """The inputs, the units of each hidden layer, the outputs."""
        hidden = self.options.hidden
        if hidden is None:
            hidden = [] if self.inputs > FEW else [8, 8]
        return [self.inputs, *hidden, self.outputs]

    def layout(self) -> list[Block]:
        self.layers = list(itertools.pairwise(self.widths))
        blocks = []
        for number, (rows, columns) in enumerate(self.layers):
            blocks.append(Block((rows, columns), 0.01 if number == len(self.layers) - 1 else 1.0))
            if self.options.bias:
                blocks.append(Block((columns,), 0.0))
        return blocks

    def network(self, views: Sequence[npt.NDArray[np.float32]]) -> Network:
        widths, has_biases = self.widths, self.options.bias
        if kernels.compiled and kernels.compiled.Perceptrons.can_compute(views[0], widths):
            return kernels.compiled.Perceptrons(views[0], widths, has_biases, self.options.activation)
        return PerceptronNetwork(views, has_biases, ACTIVATIONS[self.options.activation])
