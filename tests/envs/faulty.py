"""Environments that fail on purpose: tests.envs.faulty:Faulty and tests.envs.faulty:Slow."""

import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Faulty(gymnasium.Env):
    """Ten steps of reward 1.  With an odd seed it fails, in `reset` or in the third step, in the way of `fault`."""

    observation_space, action_space = spaces.Box(-np.inf, np.inf, (2,), np.float32), spaces.Discrete(2)

    def __init__(self, fault: str) -> None:
        self.fault = fault
        self.is_broken = False

    def reset(self, seed: int, options: Any = None) -> tuple[Any, dict]:
        assert not self.is_broken, "it was used again after it failed"
        self.seed, self.steps = seed, 0
        if self.fault == "reset" and seed % 2:
            self.is_broken = True
            raise RuntimeError("no reset\ntoday")
        return np.zeros(2, np.float32), {}

    def step(self, action: int) -> Any:
        self.steps += 1
        observation, reward, terminated = np.full(2, self.steps, np.float32), 1.0, self.steps == 10
        if self.seed % 2 and self.steps == 3:
            self.is_broken = self.fault in ("step", "shape", "tuple")
            if self.fault == "step":
                raise ZeroDivisionError("in step 3")
            if self.fault == "shape":
                observation = np.zeros(3, np.float32)
            if self.fault == "tuple":
                return observation, reward, terminated
            reward = {"no reward": None, "NaN": float("nan"), "infinite": float("-inf")}.get(self.fault, reward)
        return observation, reward, terminated, False, {}

    def close(self) -> None:
        if self.is_broken:
            raise RuntimeError("it cannot even be closed")


class Slow(gymnasium.Env):
    """Five steps of reward 1.  With an odd seed `reset` or the third step hangs, or each step is slow."""

    observation_space, action_space = spaces.Box(-np.inf, np.inf, (2,), np.float32), spaces.Discrete(2)

    def __init__(self, fault: str) -> None:
        self.fault = fault

    def reset(self, seed: int, options: Any = None) -> tuple[Any, dict]:
        self.seed, self.steps = seed, 0
        if seed % 2 and self.fault == "reset hangs":
            time.sleep(60)
        return np.zeros(2, np.float32), {}

    def step(self, action: int) -> Any:
        self.steps += 1
        if self.seed % 2 and self.fault == "step hangs" and self.steps == 3:
            time.sleep(60)
        if self.seed % 2 and self.fault == "slow steps":
            time.sleep(0.15)
        return np.full(2, self.steps, np.float32), 1.0, self.steps == 5, False, {}


class Dawdling(gymnasium.Env):
    """Steps of 20 ms and a reward of 1 that never end an episode."""

    observation_space, action_space = spaces.Box(-np.inf, np.inf, (2,), np.float32), spaces.Discrete(2)

    def reset(self, seed: int, options: Any = None) -> tuple[Any, dict]:
        return np.full(2, seed % 3, np.float32), {}

    def step(self, action: int) -> Any:
        time.sleep(0.02)
        return np.zeros(2, np.float32), 1.0 + action, False, False, {}
