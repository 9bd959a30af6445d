"""CMA-ES with a diagonal covariance (Ros & Hansen 2008).

Equations are numbered as in Hansen's tutorial (2016, arXiv 1604.00772), whose constants are used.
"""

import math
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from mpies.core.arrays import FloatArray
from mpies.solvers.base import Gaussian, Results, Solver
from mpies.solvers.moments import Weights, norm
from mpies.solvers.options import Count, Population, Positive
from mpies.solvers.shaping import best_first


class SepCMAOptions(Population):
    """sep-CMA-ES: evolution paths and a variance per parameter, in time and memory that grow with d only."""

    kind: Literal["sep_cma"] = "sep_cma"
    population: Annotated[Count, Field(ge=4)] | None = Field(
        None, description="members per generation; default 4 + 3 ln(parameters)"
    )
    sigma: Positive = Field(0.1, description="first step size, in units of the parameters")


class SepCMA(Solver[SepCMAOptions, Gaussian]):
    """sep-CMA-ES on the noise table: x = mean + sigma sqrt(variance) z."""

    Options = SepCMAOptions
    state_fields = ("mean", "sigma", "variance", "path_sigma", "path_c")

    def begin(self) -> None:
        self.sigma = self.options.sigma
        self.variance: FloatArray = np.ones(self.dimension, self.dtype)  # (d,), the diagonal of C
        self.path_sigma: FloatArray = np.zeros(self.dimension, self.dtype)  # (d,), evolution paths
        self.path_c: FloatArray = np.zeros(self.dimension, self.dtype)

    def propose(self) -> Gaussian:
        return Gaussian(self.mean, self.dtype(self.sigma) * np.sqrt(self.variance))

    def compute_weights(self, results: Results, proposal: Gaussian) -> Weights:
        count = len(results.returns)
        ranked = np.maximum(0, math.log((count + 1) / 2) - np.log(np.arange(1, count + 1)))  # (eq. 49)
        weights = np.empty(count, self.dtype)
        weights[best_first(results.returns)] = ranked / ranked.sum()
        return Weights(weights[None], weights[None])

    def update(self, proposal: Gaussian, results: Results, moments: FloatArray) -> None:
        d, weights = self.dimension, self.compute_weights(results, proposal).linear[0].astype(np.float64)
        mu_eff = 1 / float(np.sum(weights**2))
        c_sigma = (mu_eff + 2) / (d + mu_eff + 5)  # (eq. 55)
        damping = 1 + 2 * max(0, math.sqrt((mu_eff - 1) / (d + 1)) - 1) + c_sigma  # (eq. 55)
        c_c = (4 + mu_eff / d) / (d + 4 + 2 * mu_eff / d)  # (eq. 56)
        c_1 = 2 / ((d + 1.3) ** 2 + mu_eff)  # (eq. 57)
        c_mu = min(1 - c_1, 2 * (mu_eff - 2 + 1 / mu_eff) / ((d + 2) ** 2 + mu_eff))  # (eq. 58)
        # times (d + 2) / 3, because there are only d variances to learn (Ros & Hansen 2008)
        c_1, c_mu = (min(0.5, c * (d + 2) / 3) for c in (c_1, c_mu))
        chi = math.sqrt(d) * (1 - 1 / (4 * d) + 1 / (21 * d * d))  # E|N(0, I)|
        gain = math.sqrt(c_sigma * (2 - c_sigma) * mu_eff)
        self.path_sigma = self.dtype(1 - c_sigma) * self.path_sigma + self.dtype(gain) * moments[0]  # (eq. 43)
        length = norm(self.path_sigma)
        start_up = math.sqrt(1 - (1 - c_sigma) ** (2 * (self.generation + 1)))  # the path begins at 0
        is_steady = length / start_up < (1.4 + 2 / (d + 1)) * chi  # h_sigma = 1
        deviation = np.sqrt(self.variance)
        step = deviation * moments[0]  # <y>_w (eq. 41)
        self.mean += self.dtype(self.sigma) * step  # (eq. 42)
        self.path_c = self.dtype(1 - c_c) * self.path_c  # (eq. 45)
        if is_steady:
            self.path_c += self.dtype(math.sqrt(c_c * (2 - c_c) * mu_eff)) * step
        keep = 1 - c_1 - c_mu + (0 if is_steady else c_1 * c_c * (2 - c_c))
        self.variance = (  # the diagonal of (eq. 47)
            self.dtype(keep) * self.variance
            + self.dtype(c_1) * self.path_c * self.path_c
            + self.dtype(c_mu) * self.variance * moments[1]
        )
        self.sigma *= math.exp(min(1, c_sigma / damping * (length / chi - 1)))  # (eq. 44)

    def report(self) -> dict[str, float]:
        return {"sigma": self.sigma, "parameter_norm": norm(self.mean)}
