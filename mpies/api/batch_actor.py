"""A saved policy that acts on batches of observations in the environment's own form, episode by episode or in step."""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from mpies.core.errors import EnvironmentProblem, RunError, UserError
from mpies.core.text import describe_value
from mpies.envs.spaces import action_maker, named_parts, observation_writer, with_plain_spaces
from mpies.policies import make_policy
from mpies.policies.convolutional import ConvolutionalOptions
from mpies.policies.exported import aligned_stack
from mpies.rollouts.player import normalize
from mpies.runs.formats.hdf5 import Arrays
from mpies.runs.formats.policy_file import PolicyFile
from mpies.training.task import Task, make_task_env

State = tuple[npt.NDArray[Any], ...]  # what n episodes carry from step to step: arrays whose first axis is n


class BatchActor:
    """Acts with the mean of a policy file, in as many episodes as a call has observations.

    policy: the policy.  normalization: (2, o) float32 mean and standard deviation of observations, or None.
    initial: what an episode begins with: rows of a State; () where nothing is remembered.

    The environment is built once, for its spaces.  Where that fails, or its code is not trusted, observations and
    actions are vectors, since the policy file has their sizes and bounds.  Raises EnvironmentProblem or RunError where
    an older file has not, ConfigError where the policy does not fit, and UserError for a function.
    """

    def __init__(self, saved: PolicyFile) -> None:
        from gymnasium.spaces import flatdim

        section, options = saved.config.environment, saved.config.policy
        if section.function is not None:
            raise UserError(f"{section.id} has no observations; `parameters` is the point that was found")
        try:
            saved.config.require_trust()
            env = make_task_env(section, rebuild=False)  # nobody plays in it, so its history need not be probed
            env.close()
            interface = env.interface
        except (EnvironmentProblem, RunError):
            if saved.interface is None or hasattr(options, "module"):  # a network in somebody's file
                raise
            interface = with_plain_spaces(saved.interface, len({*section.hide}))
        self._name, self._interface = section.id, interface
        self.policy = make_policy(options, interface, _find_constants(saved))
        parameters = saved.arrays["parameters"]
        saved.require_size(self.policy)
        self.normalization = saved.arrays["normalization"] if options.normalize_observations else None
        self.clip = np.float32(options.observation_clip)
        self.is_random = self.policy.head.is_random
        stack = aligned_stack(1, parameters.size)
        stack[0] = parameters
        self._actor = self.policy.bind(stack)
        self._actor.begin(0)
        self._lock = threading.Lock()  # the actor has one memory and one set of buffers
        steps = (np.zeros((), np.int64),) if self._actor.wants_steps else ()
        self.initial: State = (*(values[0].copy() for values in self._actor.memory), *steps)
        space = interface.observation_space
        self._size = int(flatdim(space))  # numbers of an observation as a vector
        self._shown = np.setdiff1d(np.arange(self._size), section.hide)
        self._write_observation = observation_writer(space)
        self._make_action = action_maker(interface.action_space)

    def read(self, observation: Any) -> tuple[npt.NDArray[np.float32], bool]:
        """Observations (n, o) before normalisation, and whether it is a single one.  Raises UserError."""
        from gymnasium.vector.utils import batch_space, iterate

        space = self._interface.observation_space
        try:
            size = _find_batch_size(space, observation)
            singles = [observation] if size is None else iterate(batch_space(space, size), observation)
            rows = np.zeros((1 if size is None else size, self._size), np.float32)
            for single, row in zip(singles, rows, strict=True):
                self._write_observation(single, row)
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
        actor, actions = self._actor, []
        with self._lock, np.errstate(all="ignore"):
            inputs = observations
            if self.normalization is not None:
                inputs = np.empty_like(observations)
                mean, std = self.normalization
                normalize(observations, mean, std, self.clip, inputs)
            steps = state[-1] if actor.wants_steps else None
            for row in range(len(inputs)):
                actor.begin_noise(0, None if seeds is None else int(seeds[row]))
                for values, kept in zip(actor.memory, state, strict=False):
                    values[0] = kept[row]
                actions.append(
                    np.array(actor(inputs[row : row + 1], state[-1][row : row + 1] if actor.wants_steps else None))
                )
                for values, kept in zip(actor.memory, state, strict=False):
                    kept[row] = values[0]
            if steps is not None:
                steps += 1
        return np.concatenate(actions)

    def write(self, actions: npt.NDArray[Any], is_single: bool) -> Any:
        """One action as the environment takes it, or n: an array, but a list where the space is a Dict or a Tuple."""
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


def _find_batch_size(space: Any, observation: Any) -> int | None:
    """How many observations these are; None for a single one.  Raises ValueError where the shape is another."""
    sizes = {}
    for name, part, value in _list_parts(space, observation, "an observation"):
        try:
            found = np.shape(value)
        except ValueError:  # its parts have different shapes
            raise ValueError(f"{name} has shape {part.shape}, but this is {describe_value(value)}") from None
        if found != part.shape and (not found or found[1:] != part.shape):
            batch = ", ".join(map(str, ("n", *part.shape)))
            raise ValueError(f"{name} has shape {part.shape}, and a batch of n has ({batch}), but this has {found}")
        sizes[name] = None if found == part.shape else found[0]
    if len(set(sizes.values())) > 1:
        raise ValueError(f"all parts of an observation must hold equally many, but hold {sizes}")
    return next(iter(sizes.values()))


def _list_parts(space: Any, value: Any, name: str) -> Iterator[tuple[str, Any, Any]]:
    """The name, the space and the value of each part of an observation; of itself where it has none."""
    from gymnasium import spaces

    if not isinstance(space, (spaces.Dict, spaces.Tuple)):
        yield name, space, value
        return
    if isinstance(space, spaces.Tuple) and len(value) != len(space.spaces):
        raise ValueError(f"{name} must be a tuple of {len(space.spaces)}, but is {describe_value(value)}")
    for key, part in named_parts(space):
        try:
            inner = value[key]
        except (KeyError, TypeError):
            raise ValueError(f"{name} has no {key!r}") from None
        yield from _list_parts(part, inner, f"{name}[{key!r}]")
