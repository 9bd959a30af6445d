"""The abstract Architecture of policies, and the Actor that acts with it for many members at once.

All parameters of a policy are one flat float32 vector.  The vectors of several members are the rows of a stack.  Each
row is computed by itself, so a member's actions have the same bits whichever other members are in the stack.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from mpies import kernels
from mpies.core.streams import INITIAL_MEAN, stream
from mpies.envs.base import Composite, Interface
from mpies.policies.exported import aligned_stack
from mpies.policies.heads import CompositeHead, Head
from mpies.policies.keys import PolicyOptions

if TYPE_CHECKING:
    from mpies.kernels.compiled import CompiledNetwork


@dataclass(frozen=True)
class Block:
    """Consecutive parameters with a meaning of their own: a matrix of weights, or a vector.

    shape: (rows, columns) or (k,).
    start: what they are at first: the norm of each column of a matrix, the value of each number of a vector.
    """

    shape: tuple[int, ...]
    start: float


class Network(Protocol):
    """From inputs to outputs, for the members of a stack; member number k has slot k.

    states: what episodes carry from step to step, arrays whose first axis is slots; () for none.
    """

    states: tuple[npt.NDArray[Any], ...] = ()

    def begin(self, slot: int) -> None:
        """Begin an episode in a slot.  The member's parameters are already in the stack."""
        return None

    @abstractmethod
    def __call__(self, inputs: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Outputs (m, outputs) of the first m members for inputs (m, inputs).  The caller may write to them."""


class Architecture(ABC):
    """The architecture of policies for environments with an Interface: how parameters and observations make actions.

    size: d, number of parameters.  inputs, outputs: widths of the network.
    blocks: the Blocks that the parameters consist of, in order.  network_blocks: how many of them, the first ones, are
    the network's; the others are log stds of actions.
    constants: arrays by name that are part of the policy, but are not trained.

    Raises ConfigError if the options do not fit the interface.
    """

    Options: ClassVar[type[PolicyOptions]]

    def __init__(
        self, options: PolicyOptions, interface: Interface, constants: Mapping[str, npt.NDArray[Any]] | None = None
    ) -> None:
        self.options, self.interface, self.constants = options, interface, constants or {}
        action = interface.action
        self.head = CompositeHead(options, action) if isinstance(action, Composite) else Head(options, action)
        self.inputs = interface.observation_size + (options.time_input is not None)
        self.outputs = self.head.width
        network = [*self.layout()]
        self.network_blocks = len(network)
        self.blocks = [*network, *(Block((count,), -1.0) for count in self.head.log_stds)]
        self.size = sum(math.prod(block.shape) for block in self.blocks)

    @abstractmethod
    def layout(self) -> Sequence[Block]:
        """The Blocks of the network, in order."""

    @abstractmethod
    def network(self, views: Sequence[npt.NDArray[np.float32]]) -> Network:
        """The Network of the members whose blocks are `views`, arrays (n, *shape)."""

    @property
    def matrices(self) -> tuple[tuple[int, int, int], ...]:
        """(first parameter, rows, columns) of each matrix of weights."""
        found, start = [], 0
        for block in self.blocks:
            if len(block.shape) == 2:
                found.append((start, *block.shape))
            start += math.prod(block.shape)
        return tuple(found)

    def initial(self, seed: int) -> npt.NDArray[np.float32]:
        """The first parameters (size,), a function of the run's seed."""
        parameters = aligned_stack(1, self.size)
        random = stream(seed, INITIAL_MEAN)
        for block, view in zip(self.blocks, self.views(parameters), strict=True):
            if len(block.shape) == 1:
                view[0] = block.start
            elif self.options.initial == "scaled":
                normals = random.standard_normal(block.shape)
                view[0] = block.start * normals / np.sqrt(np.sum(normals * normals, axis=0))
        return parameters[0].copy()

    def views(self, stack: npt.NDArray[np.float32]) -> list[npt.NDArray[np.float32]]:
        """The blocks of a stack (n, size): arrays (n, *shape) that share its memory."""
        views, start = [], 0
        for block in self.blocks:
            stop = start + math.prod(block.shape)
            views.append(stack[:, start:stop].reshape(len(stack), *block.shape))
            start = stop
        return views

    def bind(self, stack: npt.NDArray[np.float32]) -> "Actor":
        """An Actor for the members in `stack` (n, size).  The stack may be rewritten between calls."""
        return Actor(self, stack)


class Actor:
    """Acts for the members of a stack, each in its slot: the whole way from observations to actions.

    states: what episodes carry from step to step, arrays whose first axis is slots.  If a member moves to another slot,
    its rows of them must move along.
    memory: the part of `states` that is not noise: the network's own.
    wants_steps: whether calls need the steps of each episode so far.
    compiled: the compiled network if it does everything that a call does; else None.
    """

    states: tuple[npt.NDArray[Any], ...]
    memory: tuple[npt.NDArray[Any], ...]
    wants_steps: bool
    compiled: "CompiledNetwork | None"

    def __init__(self, policy: Architecture, stack: npt.NDArray[np.float32]) -> None:
        views, head = policy.views(stack), policy.head
        self._network = policy.network(views[: policy.network_blocks])
        self._finish = head.bind(len(stack), *views[policy.network_blocks :])
        compiled = None
        if kernels.compiled and isinstance(self._network, kernels.compiled.CompiledNetwork) and not head.is_random:
            compiled = self._network if head.delegate(self._network) else None
        self._returns_actions = compiled is not None
        self._horizon = policy.options.time_input
        self.wants_steps = self._horizon is not None
        self.compiled = None if self.wants_steps else compiled
        self._timed_inputs = np.zeros((len(stack), policy.inputs if self.wants_steps else 0), np.float32)
        self.memory = self._network.states
        self.states = (*self.memory, *self._finish.states)

    def begin(self, slot: int, seed: int | None = None) -> None:
        """Begin an episode in a slot.  seed: of what the policy leaves to chance; None takes the likeliest actions."""
        self._network.begin(slot)
        self.begin_noise(slot, seed)

    def begin_noise(self, slot: int, seed: int | None = None) -> None:
        """Begin what the policy leaves to chance in a slot; seed: as of `begin`."""
        self._finish.begin(slot, seed)

    def __call__(
        self, observations: npt.NDArray[np.float32], steps: npt.NDArray[np.int64] | None = None
    ) -> npt.NDArray[Any]:
        """Actions of the first m members, (m,) int32 if discrete, else (m, a) float32.

        The next call may overwrite them.
        observations: (m, o).  steps: (m,) steps of each episode so far, needed if `wants_steps`.
        """
        if self._horizon is not None:
            inputs = self._timed_inputs[: len(observations)]
            inputs[:, :-1] = observations
            assert steps is not None
            np.divide(steps, self._horizon, out=inputs[:, -1], casting="unsafe")
            observations = inputs
        outputs = self._network(observations)
        return outputs if self._returns_actions else self._finish(outputs)
