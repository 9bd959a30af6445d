"""Recurrent policies: one layer of LSTM, GRU or Elman units, followed by a dense layer.

Gates and their order are PyTorch's, so weights can be carried over.  The units are 0 when an episode begins.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from mpies.policies.base import Block, Policy
from mpies.policies.network import Network
from mpies.policies.options import PolicyOptions
from mpies.solvers.options import Count

Array = npt.NDArray[np.float32]


class RecurrentOptions(PolicyOptions):
    """A layer of recurrent units, then a dense one."""

    hidden: Count = Field(16, description="recurrent units")


class LSTMOptions(RecurrentOptions):
    """Long short-term memory (Hochreiter & Schmidhuber 1997, with forget gates)."""

    kind: Literal["lstm"] = "lstm"


class GRUOptions(RecurrentOptions):
    """Gated recurrent units (Cho et al. 2014)."""

    kind: Literal["gru"] = "gru"


class ElmanOptions(RecurrentOptions):
    """Elman's network (1990): tanh of the input and of its own last value."""

    kind: Literal["elman"] = "elman"


def _sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)), in place."""
    with np.errstate(over="ignore"):
        np.exp(-x, out=x)
    x += 1
    return np.divide(1, x, out=x)


class _RecurrentNetwork(Network):
    """A layer of u units with g gates, for n members.

    input_weights: (n, in, g u).  recurrent_weights: (n, u, g u).  biases: (n, g u).
    rest: what a subclass needs besides, then the weights (n, u, out) and biases (n, out) of the dense layer.
    """

    def __init__(self, input_weights: Array, recurrent_weights: Array, biases: Array, *rest: Array) -> None:
        *self._more, self._out_weights, self._out_biases = rest
        self._input_weights, self._recurrent_weights, self._biases = input_weights, recurrent_weights, biases
        self._units = np.zeros(recurrent_weights.shape[:2], np.float32)
        self.states = (self._units,)

    def begin(self, slot: int) -> None:
        for state in self.states:
            state[slot] = 0

    def __call__(self, inputs: Array) -> Array:
        count = len(inputs)
        from_inputs = np.matmul(inputs[:, None, :], self._input_weights[:count])[:, 0] + self._biases[:count]
        units = self._units[:count]
        self.step(count, from_inputs, np.matmul(units[:, None, :], self._recurrent_weights[:count])[:, 0], units)
        return np.matmul(units[:, None, :], self._out_weights[:count])[:, 0] + self._out_biases[:count]

    @abstractmethod
    def step(self, count: int, from_inputs: Array, from_units: Array, units: Array) -> None:
        """Replace `units` (count, u) by their next values.

        from_inputs: (count, g u) weighted inputs and biases.  from_units: (count, g u) weighted values of the units.
        """


class _ElmanNetwork(_RecurrentNetwork):
    def step(self, count: int, from_inputs: Array, from_units: Array, units: Array) -> None:
        np.tanh(from_inputs + from_units, out=units)


class _LSTMNetwork(_RecurrentNetwork):
    def __init__(self, *views: Array) -> None:
        super().__init__(*views)
        self._cells = np.zeros_like(self._units)
        self.states = (self._units, self._cells)

    def step(self, count: int, from_inputs: Array, from_units: Array, units: Array) -> None:
        input_gate, forget_gate, candidates, output_gate = np.split(from_inputs + from_units, 4, axis=1)
        cells = self._cells[:count]
        cells *= _sigmoid(forget_gate)
        cells += _sigmoid(input_gate) * np.tanh(candidates)
        np.multiply(_sigmoid(output_gate), np.tanh(cells), out=units)


class _GRUNetwork(_RecurrentNetwork):
    def step(self, count: int, from_inputs: Array, from_units: Array, units: Array) -> None:
        size = units.shape[1]
        from_units[:, 2 * size :] += self._more[0][:count]
        reset_gate = _sigmoid(from_inputs[:, :size] + from_units[:, :size])
        update_gate = _sigmoid(from_inputs[:, size : 2 * size] + from_units[:, size : 2 * size])
        candidates = np.tanh(from_inputs[:, 2 * size :] + reset_gate * from_units[:, 2 * size :])
        units *= update_gate
        units += (1 - update_gate) * candidates


class _RecurrentPolicy(Policy):
    """gates: blocks of weights that each unit has."""

    options: RecurrentOptions
    gates: ClassVar[int]
    network_type: ClassVar[type[_RecurrentNetwork]]

    def layout(self) -> list[Block]:
        units = self.options.hidden
        return [
            Block((self.inputs, self.gates * units), 1.0),
            Block((units, self.gates * units), 1.0),
            Block((self.gates * units,), 0.0),
            *self.more_blocks(units),
            Block((units, self.outputs), 0.01),
            Block((self.outputs,), 0.0),
        ]

    def more_blocks(self, units: int) -> list[Block]:
        """Blocks that this kind of unit has besides."""
        return []

    def network(self, views: Sequence[Array]) -> Network:
        return self.network_type(*views)


class Elman(_RecurrentPolicy):
    """Elman units."""

    Options, network_type, gates = ElmanOptions, _ElmanNetwork, 1


class LSTM(_RecurrentPolicy):
    """LSTM units; gates in the order input, forget, candidate, output."""

    Options, network_type, gates = LSTMOptions, _LSTMNetwork, 4


class GRU(_RecurrentPolicy):
    """GRU units; gates in the order reset, update, candidate.  The last has biases for the units' values besides."""

    Options, network_type, gates = GRUOptions, _GRUNetwork, 3

    def more_blocks(self, units: int) -> list[Block]:
        return [Block((units,), 0.0)]
