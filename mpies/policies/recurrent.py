"""Recurrent policies: one layer of LSTM, GRU or Elman units, followed by a dense layer.

Gates and their order are PyTorch's, so weights can be carried over.  The units are 0 when an episode begins.  The
networks are compiled, or in NumPy with the same bits.
"""

from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from mpies import kernels
from mpies.core.options import Count
from mpies.policies.base import Architecture, Block, Network
from mpies.policies.exported import ElmanNetwork, GRUNetwork, LSTMNetwork, RecurrentNetwork
from mpies.policies.keys import PolicyOptions

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


class _RecurrentPolicy(Architecture):
    """A layer of recurrent units.  gates: blocks of weights that each unit has.  more_biases: for the units' values."""

    options: RecurrentOptions
    gates: ClassVar[int]
    more_biases: ClassVar[int] = 0
    network_type: ClassVar[type[RecurrentNetwork]]

    def layout(self) -> list[Block]:
        units = self.options.hidden
        return [
            Block((self.inputs, self.gates * units), 1.0),
            Block((units, self.gates * units), 1.0),
            Block((self.gates * units,), 0.0),
            *[Block((units,), 0.0)] * self.more_biases,
            Block((units, self.outputs), 0.01),
            Block((self.outputs,), 0.0),
        ]

    def network(self, views: Sequence[Array]) -> Network:
        kind, units = self.Options.model_fields["kind"].default, self.options.hidden
        if kernels.compiled and kernels.compiled.Recurrent.can_compute(views[0], units):
            return kernels.compiled.Recurrent(views[0], kind, units, self.outputs)
        return self.network_type(*views)


class Elman(_RecurrentPolicy):
    """Elman units."""

    Options, network_type, gates = ElmanOptions, ElmanNetwork, 1


class LSTM(_RecurrentPolicy):
    """LSTM units; gates in the order input, forget, candidate, output."""

    Options, network_type, gates = LSTMOptions, LSTMNetwork, 4


class GRU(_RecurrentPolicy):
    """GRU units; gates in the order reset, update, candidate.  The last has biases for the units' values besides."""

    Options, network_type, gates, more_biases = GRUOptions, GRUNetwork, 3, 1
