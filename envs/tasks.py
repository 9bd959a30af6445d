"""What makes another task of a world: what is seen, how long an action lasts, what is rewarded in training.

All of it works on the arrays of a batch, so it serves every backend alike.
"""

import dataclasses

import numpy as np

from envs.base import Batch, EnvironmentProblem, World


def change_task(world, name, hide=(), action_repeat=1, ignored_rewards=(), reward_shift=0.0):
    """A TaskWorld, or the world itself where nothing is to change.  name: of the world, for messages."""
    if hide or ignored_rewards or reward_shift or action_repeat > 1:
        return TaskWorld(world, name, hide, action_repeat, ignored_rewards, reward_shift)
    return world


class TaskWorld(World):
    """A world with another task.

    hide: indices of the observations that are left out.  action_repeat: steps that an action lasts, their rewards
    summed.  In training only, a reward that is one of `ignored_rewards` counts as 0, and then `reward_shift` is
    subtracted from it; both of every step of the world's own.
    """

    def __init__(self, world, name, hide, action_repeat, ignored_rewards, reward_shift):
        size = world.interface.observation_size
        if hide and world.interface.shape:
            raise EnvironmentProblem(f"{name} has images for observations; leave environment.hide out")
        if hide and (max(hide) >= size or len(set(hide)) == size):
            raise EnvironmentProblem(
                f"environment.hide must leave out some of the observations 0 to {size - 1} of {name}, "
                f"but is {list(hide)}"
            )
        self._world, self._action_repeat = world, action_repeat
        self._seen = np.setdiff1d(np.arange(size), hide) if hide else slice(None)
        self._ignored, self._shift = np.array(ignored_rewards), reward_shift
        self.interface = dataclasses.replace(world.interface, observation_size=size - len(set(hide)))
        self.lanes, self.smallest, self.largest = world.lanes, world.smallest, world.largest
        self.low_water, self.divisor = world.low_water, world.divisor
        self.timeout, self.backend = world.timeout, world.backend

    def open(self, seeds, training=False):
        reward = self._reward if training else lambda rewards: rewards
        return _TaskBatch(self._world.open(seeds, training), self._seen, self._action_repeat, reward)

    def measure_behaviour(self, names):
        return self._world.measure_behaviour(names)

    def _reward(self, rewards):
        rewards = np.where(np.isin(rewards, self._ignored), 0.0, rewards) if len(self._ignored) else rewards
        return rewards - self._shift

    def close(self):
        self._world.close()

    @property
    def watch(self):
        """As of the world inside."""
        return self._world.watch

    @watch.setter
    def watch(self, function):
        self._world.watch = function


class _TaskBatch(Batch):
    def __init__(self, batch, seen, action_repeat, reward):
        self._batch, self._seen, self._action_repeat, self._reward = batch, seen, action_repeat, reward
        self.failures, self.behaviours = batch.failures, batch.behaviours
        self.observations = batch.observations[:, seen]

    def send(self, places, actions):
        self._sent = places, actions
        self._batch.send(places, actions)

    def receive(self):
        observations, rewards, over = self._receive()
        places, actions = self._sent
        for _ in range(self._action_repeat - 1):
            going = np.flatnonzero(~over)
            if not len(going):
                break
            self._batch.send(places[going], actions[going])
            observations[going], more, over[going] = self._receive()
            rewards[going] += more
        return observations, rewards, over

    def _receive(self):
        observations, rewards, over = self._batch.receive()
        return np.array(observations[:, self._seen]), self._reward(np.asarray(rewards, np.float64)), np.array(over)

    def close(self):
        self._batch.close()
