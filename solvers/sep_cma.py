"""CMA-ES with a diagonal covariance (Ros & Hansen 2008; constants of Hansen 2016, arXiv 1604.00772)."""

import math
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from solvers.base import Gaussian, Solver
from solvers.moments import Weights, norm
from solvers.options import Count, Population, Positive
from solvers.shaping import best_first


class SepCMAOptions(Population):
    """sep-CMA-ES: evolution paths and a variance per parameter, in time and memory that grow with d only."""

    kind: Literal["sep_cma"] = "sep_cma"
    population: Annotated[Count, Field(ge=4)] | None = Field(
        None, description="members per generation; default 4 + 3 ln(parameters)"
    )
    sigma: Positive = Field(0.1, description="first step size, in units of the parameters")


class SepCMA(Solver):
    """sep-CMA-ES on the noise table: x = mean + sigma sqrt(variance) z.  Equations numbered as in arXiv 1604.00772."""

    Options = SepCMAOptions
    remembers = ("mean", "sigma", "variance", "path_sigma", "path_c")

    def begin(self):
        self.sigma = self.options.sigma
        self.variance = np.ones(self.dimension, self.dtype)
        self.path_sigma = np.zeros(self.dimension, self.dtype)
        self.path_c = np.zeros(self.dimension, self.dtype)

    def propose(self):
        return Gaussian(self.mean, self.dtype(self.sigma) * np.sqrt(self.variance))

    def weigh(self, results, proposal):
        count = len(results.returns)
        ranked = np.maximum(0, math.log((count + 1) / 2) - np.log(np.arange(1, count + 1)))  # (eq. 49)
        weights = np.empty(count, self.dtype)
        weights[best_first(results.returns)] = ranked / ranked.sum()
        return Weights(weights[None], weights[None])

    def update(self, proposal, results, sums):
        d, weights = self.dimension, self.weigh(results, proposal).linear[0].astype(np.float64)
        mu_eff = 1 / float(np.sum(weights**2))
        c_sigma = (mu_eff + 2) / (d + mu_eff + 5)  # (eq. 55)
        damping = 1 + 2 * max(0, math.sqrt((mu_eff - 1) / (d + 1)) - 1) + c_sigma
        c_c = (4 + mu_eff / d) / (d + 4 + 2 * mu_eff / d)  # (eq. 56)
        # (eq. 57, 58), times (d + 2) / 3: fewer numbers to learn (Ros & Hansen 2008, section 3)
        c_1 = 2 / ((d + 1.3) ** 2 + mu_eff)
        c_mu = min(1 - c_1, 2 * (mu_eff - 2 + 1 / mu_eff) / ((d + 2) ** 2 + mu_eff))
        c_1, c_mu = (min(0.5, c * (d + 2) / 3) for c in (c_1, c_mu))
        chi = math.sqrt(d) * (1 - 1 / (4 * d) + 1 / (21 * d * d))
        gain = math.sqrt(c_sigma * (2 - c_sigma) * mu_eff)
        self.path_sigma = self.dtype(1 - c_sigma) * self.path_sigma + self.dtype(gain) * sums[0]  # (eq. 43)
        length = norm(self.path_sigma)
        settled = math.sqrt(1 - (1 - c_sigma) ** (2 * (self.generation + 1)))
        steady = length / settled < (1.4 + 2 / (d + 1)) * chi
        deviation = np.sqrt(self.variance)
        step = deviation * sums[0]
        self.mean += self.dtype(self.sigma) * step  # (eq. 42)
        self.path_c = self.dtype(1 - c_c) * self.path_c  # (eq. 45)
        if steady:
            self.path_c += self.dtype(math.sqrt(c_c * (2 - c_c) * mu_eff)) * step
        keep = 1 - c_1 - c_mu + (0 if steady else c_1 * c_c * (2 - c_c))
        self.variance = (  # (eq. 47), its diagonal
            self.dtype(keep) * self.variance
            + self.dtype(c_1) * self.path_c * self.path_c
            + self.dtype(c_mu) * self.variance * sums[1]
        )
        self.sigma *= math.exp(min(1, c_sigma / damping * (length / chi - 1)))  # (eq. 44)

    def report(self):
        return {"sigma": self.sigma, "parameter_norm": norm(self.mean)}
