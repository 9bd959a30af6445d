"""Observation statistics: what the policy subtracts and divides by.

Each sampled episode sums its own observations in step order, in float64; rank 0 adds the episodes in
member order.  So the statistics are the same on any number of ranks.
"""

import numpy as np


class Normalizer:
    """Running mean and standard deviation of observations of `size` numbers.

    Starts as (0, 1) until two observations have been seen.  Variances below 1e-4 count as 1e-4,
    so that an input that never moves is not blown up.
    """

    def __init__(self, size):
        self.count = np.zeros(1)
        self.total = np.zeros(size)
        self.squares = np.zeros(size)

    def add(self, counts, totals, squares):
        """Merge episodes in the order given.  counts: (k,), totals and squares: (k, size) float64."""
        for count, total, square in zip(counts, totals, squares, strict=True):
            self.count += count
            self.total += total
            self.squares += square

    def mean_and_deviation(self):
        """(2, size) float32."""
        if self.count[0] < 2:
            return np.stack([np.zeros_like(self.total), np.ones_like(self.total)]).astype(np.float32)
        mean = self.total / self.count
        variance = np.maximum(self.squares / self.count - mean * mean, 1e-4)
        return np.stack([mean, np.sqrt(variance)]).astype(np.float32)

    def state(self):
        return {"count": self.count, "total": self.total, "squares": self.squares}

    def restore(self, state):
        self.count[:], self.total[:], self.squares[:] = state["count"], state["total"], state["squares"]
