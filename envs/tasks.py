"""Changes of an environment's task: what is observed, how long an action lasts, what is rewarded in training.

They work on the arrays of a batch, so they serve every backend.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from mpies.core.errors import EnvironmentProblem
from mpies.envs.base import EpisodeBatch, VectorEnv

ChangeRewards = Callable[[npt.NDArray[np.float64]], npt.NDArray[np.float64]]


def change_task(
    env: VectorEnv,
    name: str,
    hide: Sequence[int] = (),
    action_repeat: int = 1,
    ignored_rewards: Sequence[float] = (),
    reward_shift: float = 0.0,
) -> VectorEnv:
    """A TaskEnv with these changes, or `env` itself if there are none."""
    if hide or ignored_rewards or reward_shift or action_repeat > 1:
        return TaskEnv(env, name, hide, action_repeat, ignored_rewards, reward_shift)
    return env


def shown_numbers(seen: int, hide: Sequence[int]) -> npt.NDArray[np.intp] | None:
    """Indices of an observation's numbers that are not hidden; None if no number is hidden.

    seen: how many numbers are not hidden.
    """
    return np.setdiff1d(np.arange(seen + len(set(hide))), hide) if hide else None


class TaskEnv(VectorEnv):
    """A VectorEnv with another task.

    name: of the environment, for messages.  hide: indices of the observation's numbers that are left out.
    action_repeat: how many steps an action lasts; their rewards are summed.
    ignored_rewards: in training, a step's reward that equals one of these, in float64 or float32, counts as 0.
    reward_shift: in training, subtracted from each step's reward after that.
    Raises EnvironmentProblem if `hide` leaves no observation or does not fit the environment.
    """

    def __init__(
        self,
        env: VectorEnv,
        name: str,
        hide: Sequence[int],
        action_repeat: int,
        ignored_rewards: Sequence[float],
        reward_shift: float,
    ) -> None:
        size = env.interface.observation_size
        if hide and env.interface.shape:
            raise EnvironmentProblem(f"{name} has images for observations; leave environment.hide out")
        if hide and (max(hide) >= size or len(set(hide)) == size):
            raise EnvironmentProblem(
                f"environment.hide must leave out some of the observations 0 to {size - 1} of {name}, "
                f"but is {list(hide)}"
            )
        self._env, self._action_repeat = env, action_repeat
        self._shown = np.setdiff1d(np.arange(size), hide) if hide else slice(None)
        # EnvPool's rewards are float32, and -0.1 in float32 is not -0.1 in float64.
        ignored = np.array(ignored_rewards, np.float64)
        self._ignored = np.concatenate([ignored, ignored.astype(np.float32)])
        self._shift = reward_shift
        self.interface = dataclasses.replace(env.interface, observation_size=size - len(set(hide)))
        self.slots, self.smallest, self.largest = env.slots, env.smallest, env.largest
        self.low_water, self.divisor = env.low_water, env.divisor
        self.timeout, self.backend, self.instances = env.timeout, env.backend, env.instances
        self.max_steps = env.max_steps if action_repeat == 1 else None  # else the environment inside counts
        self.numbers_episodes, self.ignores_seed = env.numbers_episodes, env.ignores_seed

    def open(self, seeds: Sequence[int], is_training: bool = False) -> _TaskBatch:
        batch = self._env.open(seeds, is_training)
        if is_training and (len(self._ignored) or self._shift):
            return _TaskBatch(batch, self._shown, self._action_repeat, self._change_rewards)
        return _TaskBatch(batch, self._shown, self._action_repeat)

    def measure_behaviour(self, names: Sequence[str]) -> int:
        self.behaviour, self.behaviour_size = tuple(names), self._env.measure_behaviour(names)
        return self.behaviour_size

    def try_out(self) -> None:
        self._env.try_out()

    def try_second(self) -> None:
        self._env.try_second()

    def _change_rewards(self, rewards: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        if len(self._ignored):
            rewards = np.where(np.isin(rewards, self._ignored), 0.0, rewards)
        return rewards - self._shift

    def close(self) -> None:
        self._env.close()

    @property
    def watch(self) -> Callable[[Any], None] | None:
        """That of the environment inside."""
        return self._env.watch

    @watch.setter
    def watch(self, function: Callable[[Any], None] | None) -> None:
        self._env.watch = function


class _TaskBatch(EpisodeBatch):
    """A batch of the environment inside, changed.

    shown: which of the observation's numbers are kept.  change_rewards: from the rewards (m,) of a step to the new
    ones; None leaves them as they are.  The compiled loop can hide numbers, but neither repeat actions nor change
    rewards.
    """

    def __init__(
        self,
        batch: EpisodeBatch,
        shown: npt.NDArray[np.intp] | slice,
        action_repeat: int,
        change_rewards: ChangeRewards | None = None,
    ) -> None:
        self._batch, self._shown = batch, shown
        self._action_repeat, self._change_rewards = action_repeat, change_rewards
        self.failures, self.behaviours = batch.failures, batch.behaviours
        self.observations = batch.observations[:, shown]
        if batch.calls and batch.calls.shown is None and action_repeat == 1 and change_rewards is None:
            kept = np.zeros(batch.observations.shape[1], bool)
            kept[shown] = True
            self.calls = dataclasses.replace(batch.calls, shown=kept)

    def send(self, places: npt.NDArray[np.int32], actions: npt.NDArray[Any]) -> None:
        self._sent = places, actions
        self._batch.send(places, actions)

    def receive(self) -> tuple[npt.NDArray[Any], npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
        observations, rewards, over = self._receive_once()
        places, actions = self._sent
        for _ in range(self._action_repeat - 1):
            running = np.flatnonzero(~over)
            if not len(running):
                break
            self._batch.send(places[running], actions[running])
            observations[running], more, over[running] = self._receive_once()
            rewards[running] += more
        return observations, rewards, over

    def _receive_once(self) -> tuple[npt.NDArray[Any], npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
        """The changed outcome of one step of the environment inside, in arrays of its own."""
        observations, rewards, over = self._batch.receive()
        rewards = np.array(rewards, np.float64)
        if self._change_rewards:
            rewards = self._change_rewards(rewards)
        return np.array(observations[:, self._shown]), rewards, np.array(over)

    def close(self) -> None:
        self._batch.close()
        self.calls = None
