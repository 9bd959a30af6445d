"""PEPG with all keys of estool and es_on_gke (Sehnke et al. 2010; Ha 2017)."""

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from mpies.core.arrays import FloatArray, Int64s
from mpies.solvers.base import Gaussian, Results, Solver
from mpies.solvers.moments import Weights, dot, norm
from mpies.solvers.optimizers import Adam, AdamOptions
from mpies.solvers.options import Count, Flag, Fraction, NonNegative, Pairs, Positive
from mpies.solvers.shaping import best_first, bounded, centred_ranks


class PEPGOptions(Pairs):
    """PEPG: mean and one sigma per parameter follow the gradient of the expected fitness; keys of es_on_gke."""

    kind: Literal["pepg"] = "pepg"
    overlaps: ClassVar[bool] = True
    population: Annotated[Count, Field(ge=2)] = Field(
        256, description="members per generation; must be even, since they are pairs"
    )
    sigma_init: Positive = Field(0.1, description="first standard deviation of every parameter")
    sigma_alpha: NonNegative = Field(0.2, description="learning rate of the sigmas; 0 keeps them")
    sigma_decay: Annotated[Fraction, Field(gt=0)] = Field(0.999, description="factor on sigmas above sigma_limit")
    sigma_limit: NonNegative = Field(0.01, description="a sigma below this does not decay further")
    sigma_max_change: Annotated[Fraction, Field(gt=0)] = Field(
        0.2, description="largest change of a sigma by learning, as a share of it"
    )
    learning_rate: Positive = Field(0.01, description="Adam's step size, in units of the parameters")
    learning_rate_decay: Annotated[Fraction, Field(gt=0)] = Field(
        0.9999, description="factor on a learning rate above learning_rate_limit, per generation"
    )
    learning_rate_limit: NonNegative = Field(0.01, description="a learning rate below this does not decay further")
    elite_ratio: Annotated[Fraction, Field(lt=1)] = Field(
        0.0, description="share of members whose average is the next mean; 0 follows the gradient by Adam instead"
    )
    average_baseline: Flag = Field(
        True,
        description="compare members with their average fitness; false also evaluates the mean and compares them with "
        "it",
    )
    weight_decay: NonNegative = Field(0.01, description="fitness lost per mean squared parameter of a member")
    rank_fitness: Flag = Field(True, description="learn from ranks in [-0.5, 0.5]; false: from the returns themselves")
    forget_best: Flag = Field(
        True, description="best_return in the metrics is that of the generation; false: that of the whole run"
    )

    @property
    def plays_mean(self) -> bool:
        return not self.average_baseline

    @property
    def elite(self) -> int:
        """How many members' average is the next mean; 0 follows the gradient."""
        return int(self.population * self.elite_ratio)

    def memory(self, dimension: int) -> int:
        return 10 * 4 * dimension


class PEPG(Solver[PEPGOptions, Gaussian]):
    """PEPG on the noise table: x = mean + sigma z and mean - sigma z.  Below, eps = sigma z."""

    Options = PEPGOptions
    state_fields = ("mean", "sigma", "learning_rate", "best_return", "optimizer")
    payload_size = 1  # mean squared parameter

    def begin(self) -> None:
        options = self.options
        self.sigma: FloatArray = np.full(self.dimension, options.sigma_init, self.dtype)  # (d,)
        self.learning_rate, self.best_return = options.learning_rate, float("-inf")
        # beta1 as in estool
        self.optimizer = Adam(AdamOptions(learning_rate=options.learning_rate, beta1=0.99), self.dimension)

    def propose(self) -> Gaussian:
        return Gaussian(self.mean, self.sigma)

    def write(self, proposal: Gaussian, indices: Int64s, member: int, out: FloatArray) -> Sequence[float]:
        super().write(proposal, indices, member, out)
        return (dot(out, out) / self.dimension,) if self.options.weight_decay else (0.0,)

    def predict_mean(self) -> FloatArray:
        return self.mean if self.options.elite else self.mean + self.optimizer.expected_step(self.learning_rate)

    def compute_weights(self, results: Results, proposal: Gaussian) -> Weights:
        options = self.options
        fitness = (centred_ranks if options.rank_fitness else bounded)(results.returns).astype(np.float64)
        fitness -= options.weight_decay * results.payload[:, 0]
        baseline = fitness[0] if options.plays_mean else fitness.mean()
        fitness = fitness[options.plays_mean :]  # of the pairs
        plus, minus = fitness[0::2], fitness[1::2]
        linear = plus - minus  # sum (r+ - r-) eps, not divided by n
        if elite := options.elite:
            share = np.zeros(len(fitness))
            share[best_first(fitness)[:elite]] = 1 / elite
            linear = share[0::2] - share[1::2]
        # equal values may have a deviation above 0 by rounding
        deviation = 1.0 if options.rank_fitness or not np.ptp(fitness) else fitness.std() or 1.0
        square = ((plus + minus) / 2 - baseline) / (len(fitness) * deviation)
        return Weights(linear[None].astype(self.dtype), square[None].astype(self.dtype))

    def update(self, proposal: Gaussian, results: Results, moments: FloatArray) -> None:
        options = self.options
        square = float(np.sum(self.compute_weights(results, proposal).square, dtype=np.float64))
        step = moments[0] * proposal.scale
        # with weights s: sum s (eps^2 - sigma^2) / sigma = sigma (sum s z^2 - sum s)
        change = self.dtype(options.sigma_alpha) * proposal.scale * (moments[1] - self.dtype(square))
        self.mean += step if options.elite else self.optimizer.step(step, self.learning_rate)
        bound = self.dtype(options.sigma_max_change) * self.sigma
        self.sigma = self.sigma + np.clip(change, -bound, bound)
        self.sigma[self.sigma > options.sigma_limit] *= self.dtype(options.sigma_decay)
        if self.learning_rate > options.learning_rate_limit:
            self.learning_rate *= options.learning_rate_decay
        best = float(np.nanmax(np.r_[results.returns, -np.inf]))
        self.best_return = best if options.forget_best else max(best, self.best_return)

    def report(self) -> dict[str, float]:
        return {
            "sigma": float(self.sigma.mean()),
            "parameter_norm": norm(self.mean),
            "learning_rate": self.learning_rate,
            "best_return": self.best_return,
        }
