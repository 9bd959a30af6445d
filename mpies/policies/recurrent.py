"""Recurrent policies: one layer of LSTM, GRU or Elman units, and a dense layer behind it.

Gates and their order are PyTorch's, so weights can be carried over.  The state begins at 0 with each episode.
"""

from typing import Literal

import numpy as np
from pydantic import Field

from mpies.policies.base import Block, Network, Policy, PolicyOptions
from mpies.solvers.options import Count


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


def _sigmoid(x):
    with np.errstate(over="ignore"):
        np.exp(-x, out=x)
    x += 1
    return np.divide(1, x, out=x)


class _Recurrent(Policy):
    gates: int

    def layout(self):
        units = self.options.hidden
        return [
            Block((self.inputs, self.gates * units), 1.0),
            Block((units, self.gates * units), 1.0),
            Block((self.gates * units,), 0.0),
            *self.more(units),
            Block((units, self.outputs), 0.01),
            Block((self.outputs,), 0.0),
        ]

    def more(self, units):
        """Blocks that a kind of unit has besides."""
        return []

    def network(self, views):
        return self.Cell(*views)


class _Cell(Network):
    """Units of many members.  last: (n, units), their newest values."""

    def __init__(self, across, along, bias, *rest):
        *self.more, self._out, self._out_bias = rest
        self._across, self._along, self._bias = across, along, bias
        self.last = np.zeros((len(along), along.shape[1]), np.float32)
        self.states = (self.last,)

    def begin(self, slot):
        for state in self.states:
            state[slot] = 0

    def __call__(self, inputs):
        count = len(inputs)
        from_input = np.matmul(inputs[:, None, :], self._across[:count])[:, 0] + self._bias[:count]
        last = self.last[:count]
        self.step(count, from_input, np.matmul(last[:, None, :], self._along[:count])[:, 0], last)
        return np.matmul(last[:, None, :], self._out[:count])[:, 0] + self._out_bias[:count]

    def step(self, count, from_input, from_last, last):
        """Write the units' next values into `last` (m, units); the other two are (m, gates * units)."""
        raise NotImplementedError


class _ElmanCell(_Cell):
    def step(self, count, from_input, from_last, last):
        np.tanh(from_input + from_last, out=last)


class _LSTMCell(_Cell):
    def __init__(self, *views):
        super().__init__(*views)
        self._memory = np.zeros_like(self.last)
        self.states = (self.last, self._memory)

    def step(self, count, from_input, from_last, last):
        enter, forget, new, leave = np.split(from_input + from_last, 4, axis=1)
        memory = self._memory[:count]
        memory *= _sigmoid(forget)
        memory += _sigmoid(enter) * np.tanh(new)
        np.multiply(_sigmoid(leave), np.tanh(memory), out=last)


class _GRUCell(_Cell):
    def step(self, count, from_input, from_last, last):
        units = last.shape[1]
        from_last[:, 2 * units :] += self.more[0][:count]
        reset = _sigmoid(from_input[:, :units] + from_last[:, :units])
        keep = _sigmoid(from_input[:, units : 2 * units] + from_last[:, units : 2 * units])
        new = np.tanh(from_input[:, 2 * units :] + reset * from_last[:, 2 * units :])
        last *= keep
        last += (1 - keep) * new


class Elman(_Recurrent):
    """Elman units."""

    Options, Cell, gates = ElmanOptions, _ElmanCell, 1


class LSTM(_Recurrent):
    """LSTM units; gates in the order input, forget, cell, output."""

    Options, Cell, gates = LSTMOptions, _LSTMCell, 4


class GRU(_Recurrent):
    """GRU units; gates in the order reset, update, new, the last with a bias of its own for the units' values."""

    Options, Cell, gates = GRUOptions, _GRUCell, 3

    def more(self, units):
        return [Block((units,), 0.0)]
