"""An Atari game as few numbers: its memory, or how bright each block of pixels is in the two newest frames.

A linear policy of them has hundreds or thousands of parameters, where one of all pixels would have 100,000.
"""

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt

NO_OPS = 30  # an episode begins with 1 to so many of them, as in Mnih et al. (2015)


class AtariRam(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Observations (128,) float32: the memory of the console.

    env: a game of ale-py with obs_type ram, and without sticky actions of its own.
    frames: steps of `env` in a step.
    repeat_probability: that such a step repeats the action of the one before it: sticky actions, as in Machado et al.
    (2018), section 5.2.

    The game is loaded once, not for each seed, which would take 80 ms.  So the emulator has always the same seed and
    must draw no random numbers.  The seed of an episode decides the number of no-ops, and which actions are repeated.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], frames: int = 1, repeat_probability: float = 0.0) -> None:
        super().__init__(env)
        self._frames, self._repeat_probability = frames, repeat_probability
        env.reset(seed=0)
        self._random = np.random.default_rng()
        self.observation_space = gymnasium.spaces.Box(0.0, 255.0, (128,), np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[npt.NDArray[np.float32], dict[str, Any]]:
        if seed is not None:
            self._random = np.random.default_rng(seed)
        image, info = self.env.reset(options=options)
        for _ in range(self._random.integers(1, NO_OPS, endpoint=True)):
            image, _, ended, cut, info = self.env.step(0)
            if ended or cut:
                image, info = self.env.reset(options=options)
        self._action = 0
        return self._begin(image), info

    def step(self, action: Any) -> tuple[npt.NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        total = 0.0
        for draw in self._random.random(self._frames):
            if draw >= self._repeat_probability:
                self._action = action
            image, reward, ended, cut, info = self.env.step(self._action)
            total += float(reward)
            if ended or cut:
                break
        return self._observe(image), total, ended, cut, info

    def _begin(self, memory: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
        return self._observe(memory)

    def _observe(self, memory: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
        return memory.astype(np.float32)


class AtariBlocks(AtariRam):
    """Observations (2 r c,) float32: the mean of each block of the frame before, and then of the newest one.

    env: a game of ale-py with grey observations (height, width) and without sticky actions of its own.
    size: height and width of a block in pixels.
    rows: the first row of pixels that counts, and the first one after them; None for all, which are 210 x 160 pixels.
    Pixels at their bottom and on their right that fill no block are left out, so the r rows of c blocks are 26 x 20 for
    a size of 8.  frames, repeat_probability: as of AtariRam.
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        size: int,
        rows: Sequence[int] | None = None,
        frames: int = 1,
        repeat_probability: float = 0.0,
    ) -> None:
        super().__init__(env, frames, repeat_probability)
        height, width = env.observation_space.shape  # type: ignore[misc]  # an image has a shape
        self._first, last = rows or (0, height)
        self._rows, self._columns, self._size = (last - self._first) // size, width // size, size
        self.observation_space = gymnasium.spaces.Box(0.0, 255.0, (2 * self._rows * self._columns,), np.float32)

    def _begin(self, image: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
        self._newest = self._take_means(image)
        return np.concatenate([self._newest, self._newest])

    def _observe(self, image: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
        before, self._newest = self._newest, self._take_means(image)
        return np.concatenate([before, self._newest])

    def _take_means(self, image: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
        """The mean (r c,) of each block of an image."""
        rows, columns, size = self._rows, self._columns, self._size
        shown = image[self._first : self._first + rows * size, : columns * size]
        # Rows first, which are contiguous; 160 pixels of 255 fit in 16 bits.  Sums of whole numbers have no order.
        strips = shown.reshape(rows, size, columns * size).sum(1, dtype=np.uint16)
        sums = strips.reshape(rows, columns, size).sum(2, dtype=np.int64).ravel()
        return (sums / size**2).astype(np.float32)
