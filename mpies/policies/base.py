"""What all policies share: keys, flat parameters, and how a rank acts for many members at a time.

All parameters of a policy are one flat float32 vector, and a row of a stack of such vectors is one member.  A member
acts the same to the bit whatever the company: each row of a stack is computed by itself.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

import numpy as np
from pydantic import Field, field_validator

from mpies.policies.outputs import Head, parse_bins
from mpies.solvers.options import Flag, Fraction, NonNegative, Options, Positive, Text
from mpies.solvers.streams import INITIAL_MEAN, stream

_LINE = 16  # float32 per cache line: members start on one, so all see the same alignment


class PolicyProblem(ValueError):
    """The policy cannot serve the environment, or not be loaded; the message says why and how to mend it."""


class PolicyOptions(Options):
    """Keys of every policy."""

    output: Literal["clip", "scale"] = Field(
        "clip",
        description="continuous actions: clip the output to the bounds, or tanh and scale it to them; "
        "discrete actions take the largest output",
    )
    bins: Text | None = Field(
        None,
        description="continuous actions as a choice of values, the same for each number of an action: uniform:N from "
        "bound to bound, or custom:v1,v2,... (OpenAI's ac_bins)",
    )
    sampling: Literal["none", "gaussian", "softmax"] = Field(
        "none",
        description="in training: gaussian draws continuous actions around the output, with one learnt log deviation "
        "for each number, softmax draws discrete ones or bins; evaluations take the most likely",
    )
    action_noise: NonNegative = Field(
        0.0, description="standard deviation of normals added to continuous actions in training (OpenAI's ac_noise_std)"
    )
    time_input: Positive | None = Field(
        None, description="one more input: the steps of the episode so far, divided by this number"
    )
    init_from: Text | None = Field(
        None, description="start from this run or policy file, observation statistics included, whatever `initial` says"
    )
    initial: Literal["scaled", "zeros"] = Field(
        "scaled", description="first parameters: columns of unit-norm normals (last layer 0.01), or zeros"
    )
    normalize_observations: Flag = Field(
        True, description="subtract the mean and divide by the standard deviation of the observations seen"
    )
    observation_clip: Positive = Field(5.0, description="normalised observations are clipped to +- this")
    statistics_fraction: Fraction = Field(
        0.1, description="share of training episodes that feed the statistics (OpenAI's calc_obstat_prob)"
    )

    @field_validator("bins")
    @classmethod
    def _bins_are_known(cls, bins):
        if bins is not None:
            parse_bins(bins)
        return bins


@dataclass(frozen=True)
class Block:
    """A part of the parameters: weights (rows, columns), each column of norm `start`, or (k,) that begin at it."""

    shape: tuple
    start: float


def aligned_stack(count, size):
    """A (count, size) float32 array whose rows start on cache lines."""
    stride = -(-size // _LINE) * _LINE
    memory = np.zeros(count * stride + _LINE, np.float32)
    skip = (-memory.ctypes.data // 4) % _LINE
    return memory[skip : skip + count * stride].reshape(count, stride)[:, :size]


class Policy(ABC):
    """A policy for an Interface.  size: number of parameters.  inputs, outputs: widths of the network.

    constants: names to arrays that are no parameters, but part of the policy all the same.
    Raises PolicyProblem where the two do not fit.
    """

    Options: type[PolicyOptions]

    def __init__(self, options, interface, constants=None):
        self.options, self.interface, self.constants = options, interface, constants or {}
        try:
            self.head = Head(options, interface.action)
        except ValueError as error:
            raise PolicyProblem(str(error)) from None
        self.inputs = interface.observation_size + (options.time_input is not None)
        self.outputs = self.head.width
        self.blocks = [*self.layout(), *(Block((count,), -1.0) for count in self.head.deviations)]
        self.size = sum(math.prod(block.shape) for block in self.blocks)

    @abstractmethod
    def layout(self):
        """The Blocks of the network, in order."""

    @abstractmethod
    def network(self, views):
        """The Network of members whose blocks are `views`, arrays (n, *shape)."""

    def initial(self, seed):
        """First parameters (size,) float32, a function of the run's seed."""
        parameters = aligned_stack(1, self.size)
        random = stream(seed, INITIAL_MEAN)
        for block, view in zip(self.blocks, self.views(parameters), strict=True):
            if len(block.shape) == 1:
                view[0] = block.start
            elif self.options.initial == "scaled":
                normals = random.standard_normal(block.shape)
                view[0] = block.start * normals / np.sqrt(np.sum(normals * normals, axis=0))
        return parameters[0].copy()

    def views(self, stack):
        """The blocks of a stack (n, size) of members: arrays (n, *shape) that share its memory."""
        views, start = [], 0
        for block in self.blocks:
            stop = start + math.prod(block.shape)
            views.append(stack[:, start:stop].reshape(len(stack), *block.shape))
            start = stop
        return views

    def bind(self, stack):
        """An Actor for the members in `stack` (n, size), which may be rewritten between calls."""
        return Actor(self, stack)


class Network:
    """The network of many members.  states: arrays whose first axis is slots, what an episode carries along."""

    states: tuple = ()

    def begin(self, slot):
        """Get ready for an episode on a slot whose parameters are in the stack."""

    def __call__(self, inputs):
        """Outputs (m, outputs) float32 of the first m members for inputs (m, inputs); may be written to."""
        raise NotImplementedError


class Actor:
    """Acts for a stack of members, each on a slot.  states: arrays to move along when a slot moves.

    compiled: the kernels.Perceptrons that do all of it; None where there is more to do.
    """

    def __init__(self, policy, stack):
        views = policy.views(stack)
        networks = views[: len(views) - len(policy.head.deviations)]
        self._horizon = policy.options.time_input
        self._network = policy.network(networks)
        self._finish = policy.head.bind(len(stack), *views[len(networks) :])
        self._is_whole = policy.head.leave_to(self._network)
        self.compiled = self._network if self._is_whole and not self._horizon else None
        self._timed = np.zeros((len(stack), policy.inputs), np.float32) if self._horizon else None
        self.wants_steps = self._horizon is not None
        self.states = (*self._network.states, *self._finish.states)

    def begin(self, slot, seed=None):
        """Begin an episode.  seed: of its action noise; None for none, as in evaluations."""
        self._network.begin(slot)
        self._finish.begin(slot, seed)

    def __call__(self, observations, steps=None):
        """Actions of the first m members, (m,) int32 or (m, a) float32.

        observations: (m, o) float32.  steps: (m,) of each slot's episode so far, where `wants_steps`.
        """
        if self._timed is not None:
            inputs = self._timed[: len(observations)]
            inputs[:, :-1] = observations
            np.divide(steps, self._horizon, out=inputs[:, -1], casting="unsafe")
            observations = inputs
        outputs = self._network(observations)
        return outputs if self._is_whole else self._finish(outputs)
