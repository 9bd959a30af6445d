"""Episodes for the tests: they are played without a policy, through the interface of VectorEnv alone."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mpies.envs import base


@dataclass
class Episode:
    """What was seen of an episode.  observations: (t + 1, o).  rewards: (t,) float64."""

    observations: npt.NDArray
    rewards: npt.NDArray[np.float64]
    is_over: bool

    @property
    def bits(self):
        """Equal for equal episodes only."""
        return self.observations.tobytes() + self.rewards.tobytes()


def draw_actions(env, seed, steps):
    """Random actions (steps,) int32 or (steps, a) float32."""
    return base.draw_actions(env.interface.action, steps, np.random.default_rng(seed))


def play(env, seeds, steps=60, action=None, is_training=False):
    """An Episode of each seed, played side by side for at most so many steps.  None of them may fail.

    action: every number of the action of every step; None draws random actions from the episode's seed.
    """
    batch = env.open(seeds, is_training)
    episodes = step_all(env, batch, seeds, steps, action)
    assert not batch.failures
    batch.close()
    return episodes


def step_all(env, batch, seeds, steps, action=None):
    """As `play`, in a batch that the caller opens and closes."""
    actions = [draw_actions(env, seed, steps) for seed in seeds]
    if action is not None:
        actions = [np.full_like(each, action) for each in actions]
    observations = [[np.array(row)] for row in batch.observations]
    rewards = [[] for _ in seeds]
    running = np.arange(len(seeds), dtype=np.int32)
    for step in range(steps):
        batch.send(running, np.stack([actions[place][step] for place in running]))
        rows, received, over = batch.receive()
        for place, row, reward in zip(running, rows, received, strict=True):
            observations[place].append(np.array(row))
            rewards[place].append(float(reward))
        running = running[~over]
        if not len(running):
            break
    found = zip(observations, rewards, strict=True)
    return [Episode(np.array(seen), np.array(got), place not in running) for place, (seen, got) in enumerate(found)]
