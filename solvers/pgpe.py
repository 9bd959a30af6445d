"""PGPE with ClipUp (Toklu, Liskowski & Srivastava 2020, arXiv 2008.02387)."""

import math
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from solvers.base import Gaussian, Solver
from solvers.moments import fold_pairs, norm
from solvers.optimizers import AnyOptimizer, ClipUpOptions, make_optimizer
from solvers.options import Count, Fraction, NonNegative, Pairs, Positive, WholeNumber
from solvers.shaping import shape


class PGPEOptions(Pairs):
    """PGPE: one sigma per parameter, steps of limited length by ClipUp, populations that grow with short episodes."""

    kind: Literal["pgpe"] = "pgpe"
    overlaps: ClassVar[bool] = True
    population: Annotated[Count, Field(ge=2)] = Field(200, description="members drawn at a time; even, they are pairs")
    interactions: WholeNumber = Field(
        0,
        description="draw whole populations until a generation has this many environment steps; "
        "the paper has 0.75 * 1000 * population",
    )
    population_max: Count | None = Field(None, description="never draw more members than this in a generation")
    sigma: Positive | None = Field(
        None, description="first standard deviation; default 15 max_speed / sqrt(parameters) with ClipUp, else 0.1"
    )
    sigma_learning_rate: NonNegative = Field(0.1, description="learning rate of the sigmas; 0 keeps them")
    sigma_max_change: Annotated[Fraction, Field(gt=0)] = Field(
        0.2, description="largest change of a sigma in a generation, as a share of it"
    )
    fitness: Literal["centred_rank", "z_score", "raw"] = Field("centred_rank", description="fitness shaping")
    optimizer: AnyOptimizer = Field(ClipUpOptions(), description="gradient rule: clipup, adam or sgd")

    def is_complete(self, episodes, steps):
        members = episodes // self.episodes
        full = self.population_max is not None and members + self.population > self.population_max
        return steps >= self.interactions or full

    def first_sigma(self, dimension):
        if self.sigma or self.optimizer.kind != "clipup":
            return self.sigma or 0.1
        return 15 * self.optimizer.max_speed / math.sqrt(dimension)  # section 3.3: radius 15 vmax


class PGPE(Solver):
    """PGPE on the noise table: eps = sigma z, pairs +eps and -eps."""

    Options = PGPEOptions
    remembers = ("mean", "sigma", "optimizer")

    def begin(self):
        self.sigma = np.full(self.dimension, self.options.first_sigma(self.dimension), self.dtype)
        self.optimizer = make_optimizer(self.options.optimizer, self.dimension)

    def propose(self):
        return Gaussian(self.mean, self.sigma)

    def weigh(self, results, proposal):
        fitness = shape(self.options.fitness, results.returns, results.sign_returns).astype(np.float64)
        weights = np.stack([fitness, fitness - fitness.mean()]).astype(self.dtype)
        return fold_pairs(weights[:1], weights[1:])

    def update(self, proposal, results, sums):
        options, count = self.options, self.dtype(len(results.returns))
        square = float(np.sum(self.weigh(results, proposal).square, dtype=np.float64))
        toward = sums[0] * proposal.scale / count  # 1/n sum (r+ - r-) eps
        # 1/n sum (r+ + r- - 2 rbar) (eps^2 - sigma^2) / sigma
        change = self.dtype(options.sigma_learning_rate) * proposal.scale * (sums[1] - self.dtype(square)) / count
        bound = self.dtype(options.sigma_max_change) * self.sigma
        self.mean += self.optimizer.step(toward, options.optimizer.learning_rate)
        self.sigma = self.sigma + np.clip(change, -bound, bound)

    def report(self):
        return {"sigma": float(self.sigma.mean()), "parameter_norm": norm(self.mean)}
