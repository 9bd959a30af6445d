"""Separable natural evolution strategy (Schaul, Glasmachers & Schmidhuber 2011; Wierstra et al. 2014, JMLR 15)."""

import math
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from mpies.core.arrays import Float64s, FloatArray
from mpies.solvers.base import Gaussian, Results, Solver
from mpies.solvers.moments import Weights, norm
from mpies.solvers.options import Count, Population, Positive
from mpies.solvers.shaping import best_first


def utilities(count: int) -> Float64s:
    """NES utilities (n,) from the best member to the worst: max(0, ln(n/2 + 1) - ln k) / sum - 1/n.

    Wierstra et al. 2014, section on fitness shaping.
    """
    unscaled = np.maximum(0, math.log(count / 2 + 1) - np.log(np.arange(1, count + 1)))
    return unscaled / unscaled.sum() - 1 / count


class SNESOptions(Population):
    """SNES: the natural gradient of mean and one sigma per parameter; no learning rate to choose."""

    kind: Literal["snes"] = "snes"
    overlaps: ClassVar[bool] = True
    computed = {"sigma_learning_rate": "eta"}
    population: Annotated[Count, Field(ge=2)] | None = Field(
        None, description="members per generation; default 4 + 3 ln(parameters)"
    )
    sigma: Positive = Field(0.1, description="first standard deviation of every parameter")
    sigma_learning_rate: Positive | None = Field(None, description="eta; default (3 + ln d) / (5 sqrt d)")

    def eta(self, dimension: int) -> float:
        """The learning rate of d sigmas."""
        return self.sigma_learning_rate or (3 + math.log(dimension)) / (5 * math.sqrt(dimension))


class SNES(Solver[SNESOptions, Gaussian]):
    """SNES on the noise table: x = mean + sigma z."""

    Options = SNESOptions
    state_fields = ("mean", "sigma")

    def begin(self) -> None:
        self.sigma: FloatArray = np.full(self.dimension, self.options.sigma, self.dtype)  # (d,)

    def propose(self) -> Gaussian:
        return Gaussian(self.mean, self.sigma)

    def compute_weights(self, results: Results, proposal: Gaussian) -> Weights:
        weights = np.empty(len(results.returns), self.dtype)
        weights[best_first(results.returns)] = utilities(len(weights))
        return Weights(weights[None], weights[None])

    def update(self, proposal: Gaussian, results: Results, moments: FloatArray) -> None:
        self.mean += proposal.scale * moments[0]  # mean + sigma sum u z
        # sigma exp(eta / 2 sum u (z^2 - 1)); the utilities u sum to zero, so the -1 drops out
        self.sigma = self.sigma * np.exp(self.dtype(self.options.eta(self.dimension) / 2) * moments[1])

    def report(self) -> dict[str, float]:
        return {"sigma": float(self.sigma.mean()), "parameter_norm": norm(self.mean)}
