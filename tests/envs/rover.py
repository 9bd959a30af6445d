"""Environments with every kind of space, for the tests; they refuse actions that are not of their action_space."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

OBSERVATION = spaces.Dict(
    {
        "sight": spaces.Tuple([spaces.Box(-2, 2, (2, 2), np.float64), spaces.Discrete(3, start=-1)]),
        "lamps": spaces.MultiBinary([2, 2]),
        "gears": spaces.MultiDiscrete(np.array([[2, 3], [4, 2]]), start=np.array([[1, 0], [0, 5]])),
        "charge": spaces.Box(0, 255, (1,), np.uint8),
    }
)
ACTIONS = {
    "mixed": spaces.Dict(
        {
            "gear": spaces.Discrete(3, start=5),
            "arm": spaces.Tuple([spaces.Box(-1, np.array([[1.0], [3.0]]), (2, 1), np.float64), spaces.MultiBinary(3)]),
            "wheels": spaces.MultiDiscrete([2, 4], start=[1, -2]),
        }
    ),
    "choices": spaces.MultiDiscrete(np.array([[3, 2], [2, 5]])),
    "lamps": spaces.MultiBinary((2, 2)),
    "two boxes": spaces.Tuple([spaces.Box(-1, 1, (1,), np.float32), spaces.Box(-5, 5, (2,), np.float32)]),
    "one choice": spaces.Tuple([spaces.Discrete(4)]),
    "gears": spaces.Discrete(3, start=5),
}


class Rover(gymnasium.Env[Any, Any]):
    """Random observations; the reward is higher the larger the numbers of an action are.

    actions: key of ACTIONS.
    """

    observation_space = OBSERVATION
    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}

    def __init__(self, actions: str = "mixed", render_mode: str | None = None) -> None:
        self.action_space, self.render_mode = ACTIONS[actions], render_mode

    def render(self) -> Any:
        return np.full((32, 32, 3), 30 * self.steps, np.uint8)

    def _observe(self) -> dict[str, Any]:
        """Drawn by hand: a space's own sample would depend on the one before."""
        draw = self.np_random.integers
        return {
            "sight": (self.np_random.uniform(-2, 2, (2, 2)), int(draw(-1, 2))),
            "lamps": draw(0, 2, (2, 2)).astype(np.int8),
            "gears": np.array([[draw(1, 3), draw(0, 3)], [draw(0, 4), draw(5, 7)]]),
            "charge": draw(0, 256, 1).astype(np.uint8),
        }

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if not self.action_space.contains(action):
            raise ValueError(f"{action!r} is not in {self.action_space}")
        self.steps += 1
        reward = float(np.mean(spaces.flatten(self.action_space, action)[::2]))
        return self._observe(), reward, self.steps == 7, False, {"total": self.steps}


class Images(Rover):
    """As Rover, but it sees random images."""

    observation_space = spaces.Box(0, 255, (2, 14, 12), np.uint8)

    def _observe(self) -> Any:
        return self.np_random.integers(0, 256, (2, 14, 12)).astype(np.uint8)
