"""An environment that takes licences, counted in files of the folder that the variable LICENCES names.

Each object holds one from its construction until it is closed, or until its process ends.  Without a licence left the
constructor raises.  `peak` records the largest number of objects in this process at a time.
"""

import fcntl
import os
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces


class Licensed(gymnasium.Env):
    """Episodes of 3 to 12 steps.  licences: how many there are on this machine; 0 for no limit."""

    observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = spaces.Discrete(2)
    held: ClassVar[int] = 0
    peak: ClassVar[int] = 0

    def __init__(self, licences: int = 0) -> None:
        self.licence = take_licence(licences) if licences else None
        Licensed.held += 1
        Licensed.peak = max(Licensed.peak, Licensed.held)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.left = int(self.np_random.integers(3, 13))
        return self.np_random.random(2).astype(np.float32), {}

    def step(self, action: int) -> Any:
        self.left -= 1
        observation = self.np_random.random(2).astype(np.float32)
        return observation, float(observation[action]), self.left == 0, False, {}

    def close(self) -> None:
        Licensed.held -= 1
        if self.licence is not None:
            os.close(self.licence)
            self.licence = None


def take_licence(count: int) -> int:
    """The descriptor of one of so many files, locked.  Raises RuntimeError where others hold them all."""
    folder = Path(os.environ["LICENCES"])
    folder.mkdir(exist_ok=True)
    for number in range(count):
        descriptor = os.open(folder / f"licence-{number}", os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            continue
        with open(folder / "users", "a") as file:
            file.write(f"{os.getpid()}\n")
        return descriptor
    raise RuntimeError("no licence left")
