"""Pools of EnvPool whose environments begin one episode after the other.

EnvPool seeds an environment when it builds it, and building takes as long as tens of steps.  In gymnasium's MuJoCo
tasks the k-th episode of an environment is a function of (seed, k) and its actions, whatever was done in the episodes
before: only a reset draws random numbers, and it overwrites the whole state.  A reset takes a twentieth of building.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(eq=False)
class SeededPool:
    """A pool of EnvPool's.  seeds: (m,) int64 of its environments.  begun: (m,) how many episodes each has begun."""

    pool: Any
    seeds: npt.NDArray[np.int64]
    begun: npt.NDArray[np.int64]

    def begin(self, numbers: npt.NDArray[np.int64]) -> Iterator[list[npt.NDArray[Any]]]:
        """Begin the numbers[i]-th episode, counted from 1, of environment i for each i below n.

        numbers: (n,), more than the environment has begun.  Yields a state of the environments that were reset, until
        each has got there: the last state with an environment holds its first observation.
        """
        begun = self.begun[: len(numbers)]
        while len(behind := np.flatnonzero(begun < numbers)):
            self.pool._reset(behind.astype(np.int32))
            begun[behind] += 1
            yield self.pool._recv()


class PoolStore:
    """Pools that wait for episodes of their environments.

    build: makes a pool with an environment for each seed.  limit: how many environments may wait.
    """

    def __init__(self, build: Callable[[Sequence[int]], Any], limit: int) -> None:
        self._build, self._limit = build, limit
        self._waiting: list[SeededPool] = []

    def make(self, seeds: npt.NDArray[np.int64]) -> SeededPool:
        """A new pool with an environment for each of the seeds (m,)."""
        return SeededPool(self._build(seeds.tolist()), seeds, np.zeros(len(seeds), np.int64))

    def take(self, seeds: npt.NDArray[np.int64], numbers: npt.NDArray[np.int64]) -> SeededPool:
        """A pool whose first n environments have these seeds (n,) and have begun fewer episodes than numbers (n,)."""
        count = len(seeds)
        fitting = [
            pool
            for pool in self._waiting
            if np.array_equal(pool.seeds[:count], seeds) and (pool.begun[:count] < numbers).all()
        ]
        if fitting:
            smallest = min(fitting, key=lambda pool: len(pool.seeds))
            self._waiting.remove(smallest)
            return smallest
        # The next batch may be larger.  Sizes that are powers of two serve many batches.
        return self.make(np.resize(seeds, 1 << (count - 1).bit_length()))

    def give_back(self, pool: SeededPool) -> None:
        """Keep a pool for other episodes; those that have waited longest are closed where too many wait."""
        self._waiting.append(pool)
        while sum(len(pool.seeds) for pool in self._waiting) > self._limit:
            self._waiting.pop(0).pool.close()

    def close(self) -> None:
        """Close the pools that wait."""
        for waiting in self._waiting:
            waiting.pool.close()
        self._waiting = []
