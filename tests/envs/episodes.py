"""Episodes for the tests: they are played without a policy, through the interface of VectorEnv alone."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mpies.envs import base
from mpies.envs.base import Discrete, EpisodeBatch, VectorEnv


@dataclass
class Episode:
    """What was seen of an episode.  observations: (t + 1, o).  rewards: (t,) float64."""

    observations: npt.NDArray
    rewards: npt.NDArray[np.float64]
    is_over: bool

    @property
    def bits(self) -> bytes:
        """Equal for equal episodes only."""
        return self.observations.tobytes() + self.rewards.tobytes()


def draw_actions(env: VectorEnv, seed: int, steps: int) -> npt.NDArray:
    """Random actions (steps,) int32 or (steps, a) float32."""
    return base.draw_actions(env.interface.action, steps, np.random.default_rng(seed))


def repeat_action(env: VectorEnv, value: float, steps: int) -> npt.NDArray:
    """The same action, or a box's action of the same numbers, for every step."""
    action = env.interface.action
    if isinstance(action, Discrete):
        return np.full(steps, value, np.int32)
    return np.full((steps, len(action.low)), value, np.float32)


def play(
    env: VectorEnv, seeds: Sequence[int], steps: int = 60, action: float | None = None, is_training: bool = False
) -> list[Episode]:
    """Play an episode of each seed side by side, for at most so many steps.

    action: taken in every step; None draws random actions from the episode's seed.
    """
    batch = env.open(seeds, is_training)
    episodes = step_all(env, batch, seeds, steps, action)
    batch.close()
    return episodes


def step_all(
    env: VectorEnv, batch: EpisodeBatch, seeds: Sequence[int], steps: int, action: float | None = None
) -> list[Episode]:
    """As `play`, in a batch that the caller opens and closes."""
    if action is None:
        actions = [draw_actions(env, seed, steps) for seed in seeds]
    else:
        actions = [repeat_action(env, action, steps)] * len(seeds)
    observations = [[np.array(row)] for row in batch.observations]
    rewards: list[list[float]] = [[] for _ in seeds]
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
    return [
        Episode(np.array(observations[place]), np.array(rewards[place]), place not in running)
        for place in range(len(seeds))
    ]
