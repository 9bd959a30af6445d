"""An environment whose steps sleep: `Sleeping-v0`, for measuring schedules without computing anything.

As `environment: {id: "sleeping:Sleeping-v0", backend: gymnasium}` with this folder on PYTHONPATH.  Its episodes have a
log-normal number of steps, a function of the seed and the first action, so that no two members are equal.
"""

import hashlib
import math
import os
import time
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np

RANK = int(os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ.get("PMI_RANK") or 0)

slept = 0.0  # seconds of this process
late = 0.0  # seconds of them after it should have woken up, since its core was busy


class Sleeping(gymnasium.Env):
    """step: seconds of a step.  mean, variation: of the number of steps.

    slow: the ranks whose steps take `slowness` times as long.
    """

    def __init__(
        self,
        step: float = 0.02,
        mean: float = 10.0,
        variation: float = 0.5,
        slow: Sequence[int] = (),
        slowness: float = 4.0,
    ) -> None:
        self.observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
        self.action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
        self.seconds = step * (slowness if RANK in slow else 1)
        self.spread = math.sqrt(math.log1p(variation**2))
        self.mean = mean
        self.observation = np.ones(2, np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict]:
        self.seed, self.left = seed, 0
        return self.observation, {}

    def step(self, action: Any) -> Any:
        global slept, late
        if not self.left:
            words = hashlib.sha256(np.float32(action).tobytes() + str(self.seed).encode()).digest()[:8]
            normal = np.random.default_rng(int.from_bytes(words, "little")).normal(-(self.spread**2) / 2, self.spread)
            self.left = max(1, round(self.mean * math.exp(normal)))
            self.reward = float(self.left)
        began = time.perf_counter()
        time.sleep(self.seconds)
        took = time.perf_counter() - began
        slept += took
        late += took - self.seconds
        self.left -= 1
        reward, self.reward = self.reward, 0.0
        return self.observation, reward, not self.left, False, {}


gymnasium.register("Sleeping-v0", entry_point=Sleeping)
