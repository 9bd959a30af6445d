"""CR-FM-NES (Nomura & Ono 2022, arXiv 2201.11422), written with moments of the noise.

The covariance is sigma^2 D (I + v v^T) D, where D is diagonal: the scales of the parameters and one direction v, in
O(d) numbers.  The paper updates it with the members y = z + (sqrt(1 + |v|^2) - 1) (z.vbar) vbar, where vbar = v / |v|.
So sums over y follow from sum w z, sum w (z.vbar) z and sum w z^2, and from |z|^2 and z.vbar of each member.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from mpies.core.arrays import Float64s, FloatArray
from mpies.core.streams import SOLVER, stream
from mpies.solvers.base import Gaussian, Results, Solver
from mpies.solvers.moments import Weights, dot, fold_pairs, norm, summed
from mpies.solvers.options import Count, Pairs, Positive
from mpies.solvers.snes import utilities


class CRFMNESOptions(Pairs):
    """CR-FM-NES: learns scales and one dependency between all parameters; for ill-conditioned tasks of any size."""

    kind: Literal["cr_fm_nes"] = "cr_fm_nes"
    population: Annotated[Count, Field(ge=4)] | None = Field(
        None, description="members per generation; must be even; default 4 + 3 ln(parameters)"
    )
    sigma: Positive = Field(0.1, description="first step size, in units of the parameters")

    def memory(self, dimension: int) -> int:
        return 24 * 4 * dimension


@dataclass(frozen=True)
class Tilted(Gaussian):
    """Members are x = mean + scale * (z + stretch (z.direction) direction).

    direction: (d,) vbar, of length 1.  stretch: (1,) sqrt(1 + |v|^2) - 1.
    """

    direction: FloatArray
    stretch: FloatArray


@functools.cache
def distance_base(dimension: int) -> float:
    """The root h of (1 + h^2) exp(h^2 / 2) / 0.24 = 10 + d, by bisection.

    It scales the distance weights (Nomura & Ono 2021, FM-NES, arXiv 2108.09455).
    """
    low, high = 0.0, 50.0
    for _ in range(200):
        middle = (low + high) / 2
        if (1 + middle**2) * math.exp(middle**2 / 2) / 0.24 > 10 + dimension:
            high = middle
        else:
            low = middle
    return (low + high) / 2


class CRFMNES(Solver[CRFMNESOptions, Tilted]):
    """CR-FM-NES on the noise table, with antithetic pairs."""

    Options = CRFMNESOptions
    Proposal = Tilted
    state_fields = ("mean", "sigma", "deviation", "v", "path_sigma", "path_c")
    payload_size = 2  # |z|^2, z.vbar

    def begin(self) -> None:
        d = self.dimension
        self.sigma = self.options.sigma
        self.deviation: FloatArray = np.ones(d, self.dtype)  # (d,), the diagonal of D
        self.v: FloatArray = (stream(self.seed, SOLVER).standard_normal(d) / math.sqrt(d)).astype(self.dtype)
        self.path_sigma: FloatArray = np.zeros(d, self.dtype)  # (d,), evolution paths
        self.path_c: FloatArray = np.zeros(d, self.dtype)

    def propose(self) -> Tilted:
        length = norm(self.v)
        stretch = math.sqrt(1 + length**2) - 1
        scale = self.dtype(self.sigma) * self.deviation
        return Tilted(self.mean, scale, self.v / self.dtype(length), np.array([stretch], self.dtype))

    def sample(self, proposal: Tilted, noise: FloatArray, sign: int, out: FloatArray) -> Sequence[float]:
        along = dot(noise, proposal.direction)
        np.multiply(proposal.direction, proposal.stretch * self.dtype(along), out=out)
        np.add(out, noise, out=out)
        np.multiply(out, proposal.scale if sign > 0 else -proposal.scale, out=out)
        np.add(out, proposal.mean, out=out)
        return dot(noise, noise), sign * along

    def _weights(self, results: Results) -> tuple[Float64s, Float64s, int]:
        """Weights by rank, and by rank and distance, both (n,); and the number of members with a finite return."""
        count, feasible = len(results.returns), int(np.isfinite(results.returns).sum())
        distance = np.sqrt(results.payload[:, 0])
        failed = np.isnan(results.returns)
        # failed members come last, ordered by distance
        order = np.lexsort((np.where(failed, distance, -results.returns), failed))
        by_rank = np.empty(count)
        by_rank[order] = utilities(count)
        alpha = distance_base(self.dimension) * math.sqrt(min(1, count / self.dimension) * feasible / count)
        pull = (by_rank + 1 / count) * np.exp(alpha * (distance - distance.max()))
        by_distance = pull / pull.sum() - 1 / count
        return by_rank, by_distance, feasible

    def compute_weights(self, results: Results, proposal: Tilted) -> Weights:
        by_rank, by_distance, _ = self._weights(results)
        along = results.payload[:, 1]
        # Which weights apply depends on the path, which only rank 0 has.  So the moments are summed for both.
        linear = np.stack([by_rank, by_distance, by_rank * along, by_distance * along])
        return fold_pairs(linear.astype(self.dtype), np.stack([by_rank, by_distance]).astype(self.dtype))

    def update(self, proposal: Tilted, results: Results, moments: FloatArray) -> None:
        d, count, real = self.dimension, len(results.returns), self.dtype
        by_rank, by_distance, feasible = self._weights(results)
        mu_eff = 1 / float(np.sum((by_rank + 1 / count) ** 2))
        c_sigma = (mu_eff + 2) / (d + mu_eff + 5)
        c_c = (4 + mu_eff / d) / (d + 4 + 2 * mu_eff / d)
        c_1 = max(0.0, 2 / ((d + 1.3) ** 2 + mu_eff) * (d - 5) / 6 * feasible / count)
        eta_b = math.tanh((min(0.02 * feasible, 3 * math.log(d)) + 5) / (0.23 * d + 25))
        chi = math.sqrt(d) * (1 - 1 / (4 * d) + 1 / (21 * d * d))

        # the length of the path selects weights and learning rate: moving, stagnating or converging
        gain = math.sqrt(c_sigma * (2 - c_sigma) * mu_eff)
        self.path_sigma = real(1 - c_sigma) * self.path_sigma + real(gain) * moments[0]
        length = norm(self.path_sigma)
        moving = length >= chi
        weights = by_distance if moving else by_rank
        if moving:
            eta_sigma = 1.0
        elif length >= 0.1 * chi:
            eta_sigma = math.tanh((0.024 * feasible + 0.7 * d + 20) / (d + 12))
        else:
            eta_sigma = 2 * math.tanh((0.025 * feasible + 0.75 * d + 10) / (d + 4))
        a, b, c = moments[0 + moving], moments[2 + moving], moments[4 + moving]  # sum w z, w (z.vbar) z, w z^2

        # the same sums over y = z + k (z.vbar) vbar
        bar, k = proposal.direction, float(proposal.stretch[0])
        along = results.payload[:, 1]
        s1, s2 = float(np.sum(weights * along)), float(np.sum(weights * along**2))
        y = a + real(k * s1) * bar  # sum w y
        yy = c + real(2 * k) * bar * b + real(k * k * s2) * bar * bar  # sum w y^2
        along_y = real(1 + k) * (b + real(k * s2) * bar)  # sum w (y.vbar) y
        along_2 = (1 + k) ** 2 * s2  # sum w (y.vbar)^2

        step = self.deviation * y
        self.path_c = real(1 - c_c) * self.path_c + real(math.sqrt(c_c * (2 - c_c) * mu_eff)) * step
        self.mean = self.mean + real(self.sigma) * step

        # rank-one update: p_c / D acts as one more member of weight c_1; the weights of the others are scaled by eta_b
        extra = self.path_c / self.deviation
        along_extra = dot(bar, extra)
        total = eta_b * float(np.sum(weights)) + c_1
        yy = real(eta_b) * yy + real(c_1) * extra * extra
        along_y = real(eta_b) * along_y + real(c_1 * along_extra) * extra
        along_2 = eta_b * along_2 + c_1 * along_extra**2
        self._change_covariance(bar, yy, along_y, along_2, total)
        self.sigma *= math.exp(eta_sigma / 2 * (summed(c) / d - float(np.sum(weights))))

    def _change_covariance(
        self, bar: FloatArray, yy: FloatArray, along_y: FloatArray, along_2: float, total: float
    ) -> None:
        """Follow the natural gradient of v (t) and of D (s), as in VD-CMA (Akimoto et al. 2014).

        bar: (d,) vbar.  yy, along_y: (d,) sums of w y^2 and w (y.vbar) y.  along_2, total: of w (y.vbar)^2 and w.
        """
        d, real = self.dimension, self.dtype
        square = norm(self.v) ** 2
        gamma, bars = 1 + square, bar * bar
        bound = math.sqrt(square**2 + (2 * gamma - math.sqrt(gamma)) / float(bars.max())) / (2 + square)
        alpha = min(1.0, bound)
        t = along_y - bar * real((along_2 + gamma * total) / 2)
        beta = -(1 - alpha**2) * square**2 / gamma + 2 * alpha**2
        inverse = 1 / (2 - real(beta + 2 * alpha**2) * bars)
        s = yy - real(square / gamma) * bar * along_y - real(total)
        s -= real(alpha / gamma) * (real(2 + square) * t * bar - real(square * dot(bar, t)) * bars)
        tilt = inverse * bars
        divisor = 1 + beta * dot(bars, tilt)
        s = s * inverse - real(beta / divisor * dot(tilt, s) if divisor else np.nan) * tilt
        t = t - real(alpha) * (real(2 + square) * s * bar - real(dot(bars, s)) * bar)
        v, deviation = self.v + t / real(math.sqrt(square)), self.deviation + s * self.deviation
        # near a degenerate covariance the step may be undefined or leave D > 0: then v and D stay as they are
        if np.isfinite(v).all() and np.isfinite(deviation).all() and deviation.min() > 0:
            # keep the determinant of D (I + v v^T) D at 1; sigma alone is the size
            log_root = summed(np.log(deviation)) / d + math.log(1 + norm(v) ** 2) / (2 * d)
            self.v, self.deviation = v, deviation / real(math.exp(log_root))

    def report(self) -> dict[str, float]:
        return {"sigma": self.sigma, "parameter_norm": norm(self.mean)}
