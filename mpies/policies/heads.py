"""The heads of policies, which turn a network's outputs into actions: bounds, bins, sampling and noise.

Composite actions have a head for each of their parts, and outputs of its own for each head.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from mpies.core.errors import ConfigError
from mpies.envs.base import Binary, Composite, Continuous, Discrete, bounds_of
from mpies.policies.exported import DECIDE
from mpies.policies.keys import PolicyOptions, parse_bins

if TYPE_CHECKING:
    from mpies.kernels.compiled import CompiledNetwork

_STEPS = 64  # steps whose noise a slot draws at a time

Array = npt.NDArray[np.float32]
ActionPart = Discrete | Continuous | Binary


class Head:
    """The last part of a policy, which turns outputs into actions, or into a part of composite actions.

    width: number of outputs.
    log_stds: (a,) if each of the a numbers of an action has a log std that is trained, else ().
    kind, data: how outputs become actions in an evaluation, as an exported policy has them.
    is_random: whether actions are drawn in training.

    number: of the part; each draws other random numbers.
    Raises ConfigError if the options do not fit the action.
    """

    def __init__(self, options: PolicyOptions, action: ActionPart, number: int = 0) -> None:
        self.options, self.action, self.number = options, action, number
        is_choice = not isinstance(action, Continuous) or options.bins is not None
        if options.sampling == ("gaussian" if is_choice else "softmax"):
            what = "continuous actions" if not is_choice else "bins" if options.bins else "discrete actions"
            other = "softmax" if is_choice else "gaussian, or bins"
            raise ConfigError(f"policy.sampling {options.sampling} is not for {what}; use {other}, or none")
        if options.action_noise and not isinstance(action, Continuous):
            raise ConfigError("policy.action_noise is for continuous actions, but these are discrete; remove it")
        if options.action_noise and options.sampling != "none":
            raise ConfigError(
                f"policy.action_noise and sampling {options.sampling} cannot be used together; remove one"
            )
        self.log_stds: tuple[int, ...] = ()
        self.kind: str
        self.data: npt.NDArray[Any]
        if not isinstance(action, Continuous):
            if options.bins:
                raise ConfigError("policy.bins is for continuous actions, but these are discrete; remove it")
            self.kind, self.data = "choice" if isinstance(action, Discrete) else "signs", np.array(action.count)
            self.shape: tuple[int, ...] = (action.count,)  # of a member's outputs
        elif options.bins is None:
            if options.output != "clip" and not _are_bounded(action):
                raise ConfigError(
                    f"policy.output {options.output} needs bounded actions, and some of these are not; use clip"
                )
            self.kind, self.data, self.shape = options.output, np.stack([action.low, action.high]), action.low.shape
            self.log_stds = (len(action.low),) if options.sampling == "gaussian" else ()
        else:
            self._bins = self.data = _bin_values(parse_bins(options.bins), action)
            if options.action_noise:  # what it is added to is clipped afterwards
                self.data = np.clip(self._bins, action.low[:, None], action.high[:, None])
            self.kind, self.shape = "bins", self.data.shape
        self.width = int(np.prod(self.shape))
        self.is_random = options.sampling != "none" or options.action_noise > 0

    def delegate(self, network: "CompiledNetwork") -> bool:
        """Have a compiled network return actions itself, which must not be random.  Returns whether it can."""
        if self.kind == "choice":
            network.choose_largest()
        elif self.kind == "clip":
            network.clip_outputs(*self.data)
        return self.kind in ("choice", "clip")

    def bind(self, slots: int, *log_stds: Array) -> "ActionRule":
        """The ActionRule for members in so many slots.  log_stds: (slots, a) parameters where there are any."""
        return ActionRule(self, slots, *log_stds)

    def decide(self, outputs: Array) -> npt.NDArray[Any]:
        """Actions (m,) int32 or (m, a) float32 of outputs (m, width): the most likely ones, not clipped with bins."""
        actions = DECIDE[self.kind](outputs, self._bins if self.kind == "bins" else self.data)
        return actions.astype(np.int32 if self.kind == "choice" else np.float32, copy=False)


class CompositeHead:
    """What a Head is, for actions of several parts.  heads: that of each part, in order.

    An option counts for the parts that it is for: output, bins, action_noise and gaussian sampling for continuous ones,
    softmax for discrete ones, 0s and 1s, and bins.  Raises ConfigError for an option that is for none of the parts.
    """

    def __init__(self, options: PolicyOptions, action: Composite) -> None:
        self.options, self.action = options, action
        self.heads = [Head(_options_of(part, options), part, number) for number, part in enumerate(action.parts)]
        for name, cure in (("bins", "remove it"), ("action_noise", "remove it"), ("sampling", "use another, or none")):
            given = getattr(options, name)
            if given and given != "none" and all(getattr(head.options, name) != given for head in self.heads):
                raise ConfigError(
                    f"policy.{name} {given} fits none of the {len(self.heads)} parts of the action; {cure}"
                )
        self.width = sum(head.width for head in self.heads)
        self.log_stds = tuple(count for head in self.heads for count in head.log_stds)
        self.is_random = any(head.is_random for head in self.heads)

    def delegate(self, network: "CompiledNetwork") -> bool:
        """As Head.delegate."""
        if any(head.kind not in ("clip", "choice", "signs") for head in self.heads):
            return False
        bounds = [head.data if head.kind == "clip" else np.zeros((2, head.width)) for head in self.heads]
        low, high = np.concatenate(bounds, axis=1, dtype=np.float32)
        network.choose_parts([(type(head.action).__name__, head.width) for head in self.heads], low, high)
        return True

    def bind(self, slots: int, *log_stds: Array) -> "CompositeRule":
        """The rule for members in so many slots.  log_stds: (slots, a) parameters of each part that has them."""
        return CompositeRule(self, slots, log_stds)


def _options_of(part: ActionPart, options: PolicyOptions) -> PolicyOptions:
    """The options, without what is for other parts."""
    if isinstance(part, Continuous):
        is_other = options.sampling == "softmax" and options.bins is None
        return options.model_copy(update={"sampling": "none"}) if is_other else options
    sampling = "none" if options.sampling == "gaussian" else options.sampling
    return options.model_copy(update={"bins": None, "action_noise": 0.0, "sampling": sampling})


def _are_bounded(action: Continuous) -> bool:
    """Whether all numbers of an action have bounds, and float32 can hold the distance between them."""
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(action.high - action.low).all())


def _bin_values(bins: int | Array, action: Continuous) -> Array:
    """The values (a, k) that each number of an action may take."""
    low, high = action.low, action.high
    if not isinstance(bins, int):
        return np.tile(bins, (len(low), 1))
    if not _are_bounded(action):
        raise ConfigError("policy.bins uniform:N needs bounded actions, and these have none; use custom:v1,v2,...")
    return np.linspace(low, high, bins, axis=1, dtype=np.float32)


class Noise:
    """Standard normal, or Gumbel, numbers for each slot and step: a function of the episode's seed and the step alone.

    shape: of the numbers of a step.  number: of the part of composite actions; each has other numbers.
    """

    def __init__(self, slots: int, shape: tuple[int, ...], is_gumbel: bool = False, number: int = 0) -> None:
        self._is_gumbel, self._number = is_gumbel, number
        self._drawn = np.zeros((slots, _STEPS, *shape), np.float32)
        self._next = np.zeros(slots, np.int64)  # index of the next step in `_drawn`
        self._generators = np.empty(slots, object)
        self._slots = np.arange(slots)
        self.states: tuple[npt.NDArray[Any], ...] = (self._drawn, self._next, self._generators)

    def begin(self, slot: int, seed: int | None) -> None:
        """Begin an episode.  Without a seed its numbers are 0."""
        self._generators[slot] = None
        if seed is not None:
            bits = np.random.Philox(int(seed))
            self._generators[slot] = np.random.Generator(bits.jumped(self._number) if self._number else bits)
        self._next[slot] = _STEPS

    def __call__(self, count: int) -> Array:
        """The next numbers (count, *shape) of the first `count` slots."""
        steps = self._next[:count]
        for slot in np.flatnonzero(steps == _STEPS):
            out, generator = self._drawn[slot], self._generators[slot]
            if generator is None:
                out[:] = 0
            elif self._is_gumbel:
                out[:] = generator.gumbel(size=out.shape)
            else:
                generator.standard_normal(out=out, dtype=np.float32)
        steps %= _STEPS
        numbers = self._drawn[self._slots[:count], steps]
        steps += 1
        return numbers


class ActionRule:
    """How outputs become actions, or a part of composite ones, in each slot.  states: as of Network.

    log_stds: (slots, a) parameters where actions are drawn around the outputs.
    """

    def __init__(self, head: Head, slots: int, log_stds: Array | None = None) -> None:
        self._head, self._log_stds, options = head, log_stds, head.options
        self._noise: Noise | None = None  # what is added to outputs or actions in training
        if options.sampling != "none":
            pairs = (2,) if head.kind == "signs" else ()  # of a 0 and a 1
            self._noise = Noise(slots, (*head.shape, *pairs), options.sampling == "softmax", head.number)
        elif options.action_noise:
            self._noise = Noise(slots, bounds_of(head.action).shape[1:], number=head.number)
        self.states: tuple[npt.NDArray[Any], ...] = self._noise.states if self._noise else ()

    def begin(self, slot: int, seed: int | None) -> None:
        """Begin an episode in a slot.  seed: as of Actor.begin."""
        if self._noise:
            self._noise.begin(slot, seed)

    def __call__(self, outputs: Array) -> npt.NDArray[Any]:
        """Actions of the first m slots, (m,) int32 or (m, a) float32, for outputs (m, width)."""
        head = self._head
        if self._noise is None:
            return head.decide(outputs)
        noise = self._noise(len(outputs))
        if not isinstance(head.action, Continuous) or head.options.sampling != "none":
            if self._log_stds is not None:
                noise = np.exp(self._log_stds[: len(outputs)]) * noise
            elif head.kind == "signs":  # a 1 has the probability that the softmax of 0 and the output gives it
                noise = noise[..., 1] - noise[..., 0]
            # The largest of outputs and Gumbel numbers is a draw from the softmax of the outputs.
            return head.decide(outputs.reshape(noise.shape) + noise)
        noise = np.float32(head.options.action_noise) * noise
        if head.kind == "clip":
            return head.decide(outputs + noise)
        return np.clip(head.decide(outputs) + noise, head.action.low, head.action.high)


class CompositeRule:
    """How outputs become composite actions, in each slot: each part by the ActionRule of its head.

    states: as of Network.
    """

    def __init__(self, head: CompositeHead, slots: int, log_stds: tuple[Array, ...]) -> None:
        left, start = list(log_stds), 0
        self._rules = []  # with the outputs that each takes
        for part in head.heads:
            rule = part.bind(slots, *[left.pop(0) for _ in part.log_stds])
            self._rules.append((rule, slice(start, start + part.width)))
            start += part.width
        self.states: tuple[npt.NDArray[Any], ...] = tuple(state for rule, _ in self._rules for state in rule.states)

    def begin(self, slot: int, seed: int | None) -> None:
        """Begin an episode in a slot.  seed: as of Actor.begin."""
        for rule, _ in self._rules:
            rule.begin(slot, seed)

    def __call__(self, outputs: Array) -> Array:
        """Actions (m, a) of the first m slots for outputs (m, width), which it may change."""
        parts = [rule(outputs[:, place]).reshape(len(outputs), -1) for rule, place in self._rules]
        return np.concatenate(parts, axis=1, dtype=np.float32)
