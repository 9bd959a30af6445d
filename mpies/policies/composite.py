"""The heads of composite actions: each part has one of its own, and outputs of its own."""

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from mpies import kernels
from mpies.envs.base import Composite, Continuous
from mpies.policies.network import Network
from mpies.policies.options import PolicyOptions
from mpies.policies.outputs import Array, Head, Part

if TYPE_CHECKING:
    from mpies.kernels.compiled import CompiledNetwork


class CompositeHead:
    """What a Head is, for actions of several parts.  heads: that of each part, in order.

    An option counts for the parts that it is for: output, bins, action_noise and gaussian sampling for continuous ones,
    softmax for discrete ones, 0s and 1s, and bins.  Raises ValueError for an option that is for none of the parts.
    """

    def __init__(self, options: PolicyOptions, action: Composite) -> None:
        self.options, self.action = options, action
        self.heads = [Head(_options_of(part, options), part, number) for number, part in enumerate(action.parts)]
        for name, cure in (("bins", "remove it"), ("action_noise", "remove it"), ("sampling", "use another, or none")):
            given = getattr(options, name)
            if given and given != "none" and all(getattr(head.options, name) != given for head in self.heads):
                raise ValueError(
                    f"policy.{name} {given} fits none of the {len(self.heads)} parts of the action; {cure}"
                )
        self.width = sum(head.width for head in self.heads)
        self.deviations = tuple(count for head in self.heads for count in head.deviations)
        self.is_random = any(head.is_random for head in self.heads)

    def delegate(self, network: Network) -> "CompiledNetwork | None":
        """Let a compiled network return actions itself.  Returns that network, or None if it cannot."""
        if not kernels.compiled or not isinstance(network, kernels.compiled.CompiledNetwork) or self.is_random:
            return None
        low, high = np.zeros((2, self.width), np.float32)
        start = 0
        for head in self.heads:
            if isinstance(head.action, Continuous):
                if head.options.output != "clip" or head.is_choice:
                    return None
                place = slice(start, start + head.width)
                low[place], high[place] = head.action.low, head.action.high
            start += head.width
        network.choose_parts([(type(head.action).__name__, head.width) for head in self.heads], low, high)
        return network

    def bind(self, slots: int, *log_deviations: Array) -> "CompositeRule":
        """The rule for members in so many slots.  log_deviations: (slots, a) parameters of each part that has them."""
        return CompositeRule(self, slots, log_deviations)


def _options_of(part: Part, options: PolicyOptions) -> PolicyOptions:
    """The options, without what is for other parts."""
    if isinstance(part, Continuous):
        is_other = options.sampling == "softmax" and options.bins is None
        return options.model_copy(update={"sampling": "none"}) if is_other else options
    sampling = "none" if options.sampling == "gaussian" else options.sampling
    return options.model_copy(update={"bins": None, "action_noise": 0.0, "sampling": sampling})


class CompositeRule:
    """How outputs become composite actions, in each slot: each part by the ActionRule of its head.

    states: as of Network.
    """

    def __init__(self, head: CompositeHead, slots: int, log_deviations: tuple[Array, ...]) -> None:
        left, start, at = list(log_deviations), 0, 0
        self._rules = []  # with the outputs that each takes, and the numbers of the action that it gives
        for part in head.heads:
            rule = part.bind(slots, *[left.pop(0) for _ in part.deviations])
            stop, end = start + part.width, at + part.action.numbers
            self._rules.append((rule, slice(start, stop), slice(at, end)))
            start, at = stop, end
        self._actions = np.zeros((slots, at), np.float32)
        self.states: tuple[npt.NDArray[Any], ...] = tuple(state for rule, *_ in self._rules for state in rule.states)

    def begin(self, slot: int, seed: int | None) -> None:
        """Begin an episode in a slot.  seed: as of Actor.begin."""
        for rule, *_ in self._rules:
            rule.begin(slot, seed)

    def __call__(self, outputs: Array) -> Array:
        """Actions (m, a) of the first m slots for outputs (m, width), which it may change."""
        actions = self._actions[: len(outputs)]
        for rule, place, numbers in self._rules:
            values = rule(outputs[:, place])
            actions[:, numbers] = values if values.ndim == 2 else values[:, None]
        return actions
