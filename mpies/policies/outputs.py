"""From the outputs of a network to actions: bounds, bins, and what is left to chance."""

import numpy as np

from mpies.envs.base import Discrete
from mpies.kernels import Perceptrons

_STEPS = 64  # of noise that a slot draws at a time


def parse_bins(text):
    """The number of uniform bins, or an array of custom values, of `uniform:N` or `custom:v1,v2,...`."""
    form, _, rest = text.partition(":")
    try:
        if form == "uniform" and int(rest) >= 2:
            return int(rest)
        if form == "custom":
            values = np.array([float(value) for value in rest.split(",")], np.float32)
            if len(values) >= 2 and np.isfinite(values).all():
                return values
    except ValueError:
        pass
    raise ValueError(f"must be uniform:N or custom:v1,v2,... with at least two values, but is {text!r}")


class Head:
    """What an action takes.  width: outputs of the network.  deviations: () or (a,), learnt besides.

    Raises ValueError where the options do not fit the action.
    """

    def __init__(self, options, action):
        self.options, self.action = options, action
        self.is_choice = isinstance(action, Discrete) or options.bins is not None
        wrong = {"gaussian": self.is_choice, "softmax": not self.is_choice}.get(options.sampling, False)
        if wrong:
            other = "softmax" if self.is_choice else "gaussian, or bins"
            raise ValueError(
                f"policy.sampling {options.sampling} is not for {'discrete' if self.is_choice else 'continuous'} "
                f"actions; use {other}, or none"
            )
        if options.action_noise and isinstance(action, Discrete):
            raise ValueError("policy.action_noise is for continuous actions, but these are discrete; remove it")
        if options.action_noise and options.sampling != "none":
            raise ValueError(f"policy.action_noise and sampling {options.sampling} exclude each other; remove one")
        self.deviations = ()
        if isinstance(action, Discrete):
            if options.bins:
                raise ValueError("policy.bins is for continuous actions, but these are discrete; remove it")
            self.shape = (action.count,)
        elif options.bins is None:
            self.shape = action.low.shape
            self.deviations = (len(action.low),) if options.sampling == "gaussian" else ()
        else:
            self.values = self._values(parse_bins(options.bins))  # (a, bins)
            self.shape = self.values.shape
        self.width = int(np.prod(self.shape))
        self.is_random = options.sampling != "none" or options.action_noise > 0

    def _values(self, bins):
        low, high = self.action.low, self.action.high
        if not isinstance(bins, int):
            return np.tile(bins, (len(low), 1))
        if not (np.isfinite(low).all() and np.isfinite(high).all()):
            raise ValueError("policy.bins uniform:N needs bounded actions, and these have none; use custom:v1,v2,...")
        return np.linspace(low, high, bins, axis=1, dtype=np.float32)

    def leave_to(self, network):
        """Let a compiled network end in actions by itself; returns whether it can."""
        if self.is_random or self.options.bins or not isinstance(network, Perceptrons):
            return False
        if self.is_choice:
            network.choose()
        elif self.options.output == "clip":
            network.clip(self.action.low, self.action.high)
        return self.is_choice or self.options.output == "clip"

    def bind(self, slots, log_deviations=None):
        """A function from outputs (m, width) to actions, for up to `slots` slots; see Noise for its states."""
        noise = NoNoise()
        if self.options.sampling != "none":
            noise = Noise(slots, self.shape, gumbel=self.is_choice)
        elif self.options.action_noise:
            noise = Noise(slots, self.action.low.shape)
        if self.is_choice:
            return _Choice(self, noise)
        return _Numbers(self, noise, slots, log_deviations)


class NoNoise:
    """Where nothing is left to chance."""

    states: tuple = ()

    def begin(self, slot, seed):
        pass

    def __call__(self, count):
        return None


class Noise:
    """Normals, or Gumbel numbers, for each slot and step: a function of the slot's seed and the step alone."""

    def __init__(self, slots, shape, gumbel=False):
        self._gumbel = gumbel
        self._block = np.zeros((slots, _STEPS, *shape), np.float32)
        self._next = np.zeros(slots, np.int64)
        self._generators = np.empty(slots, object)
        self._slots = np.arange(slots)
        self.states = (self._block, self._next, self._generators)

    def begin(self, slot, seed):
        """Begin an episode; without a seed its noise is 0."""
        self._generators[slot] = None if seed is None else np.random.Generator(np.random.Philox(int(seed)))
        self._next[slot] = _STEPS

    def __call__(self, count):
        """The next numbers (count, *shape) of the first `count` slots."""
        steps = self._next[:count]
        for slot in np.flatnonzero(steps == _STEPS):
            self._fill(self._block[slot], self._generators[slot])
        steps %= _STEPS
        found = self._block[self._slots[:count], steps]
        steps += 1
        return found

    def _fill(self, block, generator):
        if generator is None:
            block[:] = 0
        elif self._gumbel:
            block[:] = generator.gumbel(size=block.shape)
        else:
            generator.standard_normal(out=block, dtype=np.float32)


class _Choice:
    """The largest output, or a draw by their softmax (the largest after adding Gumbel numbers); and noise on values."""

    def __init__(self, head, noise):
        self._head, self._noise = head, noise
        self.states, self.begin = noise.states, noise.begin
        self._draws = head.options.sampling == "softmax"
        self._numbers = None if isinstance(head.action, Discrete) else np.arange(len(head.action.low))

    def __call__(self, outputs):
        head, noise = self._head, self._noise(len(outputs))
        if self._numbers is not None:
            outputs = outputs.reshape(len(outputs), *head.shape)
        best = (outputs + noise if self._draws else outputs).argmax(axis=-1)
        if self._numbers is None:
            return best.astype(np.int32)
        values = head.values[self._numbers, best]
        if noise is None or self._draws:
            return values
        return np.clip(values + np.float32(head.options.action_noise) * noise, head.action.low, head.action.high)


class _Numbers:
    """Outputs clipped or scaled to the bounds, and noise on them."""

    def __init__(self, head, noise, slots, log_deviations):
        self._head, self._noise, self._log_deviations = head, noise, log_deviations
        self.states, self.begin = noise.states, noise.begin
        low, high = head.action.low, head.action.high
        self._middle, self._half = (low + high) / 2, (high - low) / 2
        self._low, self._high = (np.tile(bound, (slots, 1)) for bound in (low, high))  # one pass over all slots

    def __call__(self, outputs):
        noise = self._noise(len(outputs))
        if noise is not None and self._log_deviations is not None:
            outputs = outputs + np.exp(self._log_deviations[: len(outputs)]) * noise
        if self._head.options.output == "scale":
            outputs = self._middle + self._half * np.tanh(outputs)
        if noise is not None and self._log_deviations is None:
            outputs = outputs + np.float32(self._head.options.action_noise) * noise
        elif self._head.options.output == "scale":
            return outputs
        return outputs.clip(self._low[: len(outputs)], self._high[: len(outputs)], outputs)
