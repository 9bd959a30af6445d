"""Separable natural evolution strategy (Schaul, Glasmachers & Schmidhuber 2011; Wierstra et al. 2014)."""

import math
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from solvers.base import Gaussian, Solver
from solvers.moments import Weights, norm
from solvers.options import Population, Positive
from solvers.shaping import best_first


def utilities(count):
    """NES utilities (n,) float64 of the best to the worst: max(0, ln(n/2 + 1) - ln k) / sum - 1/n."""
    raw = np.maximum(0, math.log(count / 2 + 1) - np.log(np.arange(1, count + 1)))
    return raw / raw.sum() - 1 / count


class SNESOptions(Population):
    """SNES: the natural gradient of mean and one sigma per parameter; no learning rate to choose."""

    kind: Literal["snes"] = "snes"
    overlaps: ClassVar[bool] = True
    sigma: Positive = Field(0.1, description="first standard deviation of every parameter")
    sigma_learning_rate: Positive | None = Field(None, description="eta; default (3 + ln d) / (5 sqrt d)")


class SNES(Solver):
    """SNES on the noise table."""

    Options = SNESOptions
    remembers = ("mean", "sigma")

    def begin(self):
        self.sigma = np.full(self.dimension, self.options.sigma, self.dtype)

    def propose(self):
        return Gaussian(self.mean, self.sigma)

    def weigh(self, results, proposal):
        weights = np.empty(len(results.returns), self.dtype)
        weights[best_first(results.returns)] = utilities(len(weights))
        return Weights(weights[None], weights[None])

    def update(self, proposal, results, sums):
        d = self.dimension
        eta = self.options.sigma_learning_rate or (3 + math.log(d)) / (5 * math.sqrt(d))
        self.mean += proposal.scale * sums[0]
        # sum u (z^2 - 1) = sum u z^2, as the utilities sum to zero
        self.sigma = self.sigma * np.exp(self.dtype(eta / 2) * sums[1])

    def report(self):
        return {"sigma": float(self.sigma.mean()), "parameter_norm": norm(self.mean)}
