"""Observation statistics: what the policy subtracts from observations and divides them by.

Each sampled episode sums its own observations in step order, in float64; rank 0 adds the episodes in member order.
So the statistics are the same on any number of ranks.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]


class Normalizer:
    """Running mean and standard deviation of observations of `size` numbers.

    They are (0, 1) until two observations have been seen.  Variances below 1e-4 count as 1e-4, so that a number that
    never changes is not magnified.
    """

    def __init__(self, size: int) -> None:
        self.count: Vector = np.zeros(1)
        self.total: Vector = np.zeros(size)
        self.squares: Vector = np.zeros(size)

    def add(self, counts: Vector, totals: Vector, squares: Vector) -> None:
        """Add episodes in the order given.  counts: (k,), totals and squares: (k, size)."""
        for count, total, square in zip(counts, totals, squares, strict=True):
            self.count += count
            self.total += total
            self.squares += square

    def mean_and_deviation(self) -> npt.NDArray[np.float32]:
        """Mean and standard deviation (2, size) float32."""
        if self.count[0] < 2:
            return np.stack([np.zeros_like(self.total), np.ones_like(self.total)]).astype(np.float32)
        mean = self.total / self.count
        variance = np.maximum(self.squares / self.count - mean * mean, 1e-4)
        return np.stack([mean, np.sqrt(variance)]).astype(np.float32)

    def state(self) -> dict[str, Vector]:
        """Names to copies of the arrays, for `restore`."""
        return {"count": self.count.copy(), "total": self.total.copy(), "squares": self.squares.copy()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state` returned."""
        self.count[:], self.total[:], self.squares[:] = state["count"], state["total"], state["squares"]
