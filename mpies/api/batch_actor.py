"""A saved policy that acts on batches of observations in the environment's own form, episode by episode or in step."""

import contextlib
import threading
from typing import Any

import numpy as np
import numpy.typing as npt

from mpies.core.errors import ConfigError, UserError
from mpies.core.text import describe_value
from mpies.envs.spaces import action_maker, named_parts, observation_writer
from mpies.policies import PolicyProblem, aligned_stack, make_policy
from mpies.policies.convolutional import ConvolutionalOptions
from mpies.rollouts.player import normalize
from mpies.runs.hdf5 import Arrays
from mpies.runs.policy_file import PolicyFile
from mpies.training.task import Task, make_task_env

SLOTS = 32  # observations of a batch that are computed at a time
STACK = 1 << 22  # parameters that the copies for these may have together, unless one alone has more

State = tuple[npt.NDArray[Any], ...]  # what n episodes carry from step to step: arrays whose first axis is n


class BatchActor:
    """Acts with the mean of a policy file, in as many episodes as a call has observations.

    policy: the policy.  normalization: (2, o) float32 mean and standard deviation of observations, or None.
    initial: what an episode begins with: rows of a State; () where nothing is remembered.

    The environment is built once, for its spaces.  Raises EnvironmentProblem where that fails, ConfigError where the
    policy does not fit it, and UserError for a function, which has no observations.
    """

    def __init__(self, saved: PolicyFile) -> None:
        section, options = saved.config.environment, saved.config.policy
        if section.function is not None:
            raise UserError(f"{section.id} has no observations; `parameters` is the point that was found")
        env = make_task_env(section, rebuild=False)  # nobody plays in it, so its history need not be probed
        env.close()
        self._name, self._interface = section.id, env.interface
        try:
            self.policy = make_policy(options, env.interface, _find_constants(saved))
        except PolicyProblem as error:
            raise ConfigError(str(error)) from None
        parameters = saved.arrays["parameters"]
        if self.policy.size != parameters.size:
            raise ConfigError(
                f"{saved.path}: has {parameters.size:,} parameters, but this policy for {section.id} has "
                f"{self.policy.size:,}; is it the environment that the policy was trained in?"
            )
        self.normalization = saved.arrays["normalization"] if options.normalize_observations else None
        self.clip = np.float32(options.observation_clip)
        self.is_random = self.policy.head.is_random
        self._slots = max(1, min(SLOTS, STACK // max(parameters.size, 1)))
        stack = aligned_stack(self._slots, parameters.size)
        stack[:] = parameters
        self._actor = self.policy.bind(stack)
        self._actor.begin(0)
        self._lock = threading.Lock()  # the actor has one memory and one set of buffers
        self._has_noise = True  # whether `begin_noise` must be called before the next actions without noise
        steps = (np.zeros((), np.int64),) if self._actor.wants_steps else ()
        self.initial: State = (*(values[0].copy() for values in self._actor.memory), *steps)
        space = env.interface.observation_space
        self._shown = np.setdiff1d(np.arange(_count_numbers(space)), section.hide)
        self._write_observation = observation_writer(space)
        self._make_action = action_maker(env.interface.action_space)

    def read(self, observation: Any) -> tuple[npt.NDArray[np.float32], bool]:
        """Observations (n, o) as the policy sees them, before normalisation, and whether it was a single one.

        Raises UserError for an observation of another form.
        """
        space = self._interface.observation_space
        if _is_of_reset(space, observation):
            raise UserError(
                f"{self._name}: this is (observation, info), as reset returns it; give the observation alone"
            )
        try:
            size = _find_batch_size(space, observation)
            rows = np.zeros((1 if size is None else size, _count_numbers(space)), np.float32)
            for number, row in enumerate(rows):
                self._write_observation(observation if size is None else _pick(space, observation, number), row)
        except ValueError as error:
            raise UserError(f"{self._name}: {error}") from None
        if not len(rows):
            raise UserError(f"{self._name}: the batch holds no observation; give at least one")
        return rows[:, self._shown] if len(self._shown) < rows.shape[1] else rows, size is None

    def act(
        self, observations: npt.NDArray[np.float32], state: State, seeds: npt.NDArray[np.int64] | None = None
    ) -> npt.NDArray[Any]:
        """Actions (n,) int32 or (n, a) float32 for observations (n, o).  state: changed in place.

        Several threads may call it; they take turns.
        seeds: (n,) of what the policy draws; None takes the most likely actions.
        """
        actor, memory = self._actor, self._actor.memory
        inputs = observations
        actions = []
        with self._lock, np.errstate(all="ignore"):
            if self.normalization is not None:
                inputs = np.empty_like(observations)
                mean, deviation = self.normalization
                normalize(observations, mean, deviation, self.clip, inputs)
            for start in range(0, len(inputs), self._slots):
                part = inputs[start : start + self._slots]
                rows, count = slice(start, start + len(part)), len(part)
                self._begin_noise(count, None if seeds is None else seeds[rows])
                for values, kept in zip(memory, state, strict=False):
                    values[:count] = kept[rows]
                actions.append(np.array(actor(part, state[-1][rows] if actor.wants_steps else None)))
                for values, kept in zip(memory, state, strict=False):
                    kept[rows] = values[:count]
        if actor.wants_steps:
            state[-1][...] += 1
        return np.concatenate(actions)

    def _begin_noise(self, count: int, seeds: npt.NDArray[np.int64] | None) -> None:
        """Set what the next actions of the first `count` slots are drawn with."""
        if seeds is not None:
            for slot in range(count):
                self._actor.begin_noise(slot, int(seeds[slot]))
        elif self._has_noise:
            for slot in range(self._slots):
                self._actor.begin_noise(slot, None)
        self._has_noise = seeds is not None

    def write(self, actions: npt.NDArray[Any], is_single: bool) -> Any:
        """Actions as the environment takes them: one, or n of them.

        These are an array with a leading axis, but a list where the action space is a Dict or a Tuple.
        """
        made = [self._make_action(action) for action in actions]
        if is_single:
            return made[0]
        space = self._interface.action_space
        return np.array(made, space.dtype) if space.shape is not None else made


def _find_constants(saved: PolicyFile) -> Arrays:
    """The constants of the policy.  A replay of a run that had saved no policy has none: they are made of its seed."""
    if saved.constants or not isinstance(saved.config.policy, ConvolutionalOptions):
        return saved.constants
    with contextlib.closing(Task(saved.config)) as task:
        assert task.policy
        return dict(task.policy.constants)


def _count_numbers(space: Any) -> int:
    """How many numbers an observation has as a vector."""
    from gymnasium import spaces

    return int(spaces.flatdim(space))


def _is_of_reset(space: Any, observation: Any) -> bool:
    """Whether this is what an environment's `reset` returns, rather than an observation."""
    from gymnasium import spaces

    is_pair = isinstance(observation, tuple) and len(observation) == 2
    return is_pair and isinstance(observation[1], dict) and not isinstance(space, spaces.Tuple)


def _find_batch_size(space: Any, observation: Any, name: str = "an observation") -> int | None:
    """How many observations these are; None for a single one.  Raises ValueError where the shape is another.

    name: of the observation, for messages.
    """
    from gymnasium import spaces

    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        sizes = {}
        for key, part in named_parts(space):
            try:
                inner = observation[key]
            except (KeyError, IndexError, TypeError):
                raise ValueError(f"{name} has no {key!r}") from None
            sizes[key] = _find_batch_size(part, inner, f"{name}[{key!r}]")
        if len(observation) > len(sizes) and isinstance(space, spaces.Tuple):
            raise ValueError(f"{name} must be a tuple of {len(sizes)}, but is {describe_value(observation)}")
        if len(set(sizes.values())) > 1:
            raise ValueError(f"all parts of {name} must hold equally many, but hold {sizes}")
        return next(iter(sizes.values()))
    shape = tuple(space.shape)
    try:
        found = np.shape(observation)
    except ValueError:  # its parts have different shapes
        raise ValueError(f"{name} has shape {shape}, but this is {describe_value(observation)}") from None
    flat = () if shape == () else (int(np.prod(shape)),)
    for one in (shape, flat):
        if found == one:
            return None
    for one in (shape, flat):
        if found[1:] == one and len(found) == len(one) + 1:
            return found[0]
    batch = f"(n, {str(shape)[1:-1].rstrip(',')})" if shape else "(n,)"
    raise ValueError(f"{name} has shape {shape}, and a batch of n has {batch}, but this has {found}")


def _pick(space: Any, observations: Any, number: int) -> Any:
    """One observation of a batch; the parts of a Dict or Tuple are batches themselves."""
    from gymnasium import spaces

    if isinstance(space, spaces.Dict):
        return {key: _pick(part, observations[key], number) for key, part in named_parts(space)}
    if isinstance(space, spaces.Tuple):
        return tuple(_pick(part, observations[key], number) for key, part in named_parts(space))
    return np.asarray(observations[number])
