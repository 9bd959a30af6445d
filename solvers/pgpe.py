"""PGPE with ClipUp (Toklu, Liskowski & Srivastava 2020, arXiv 2008.02387)."""

import math
from typing import Annotated, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from mpies.core.arrays import FloatArray
from mpies.solvers.base import Gaussian, Results, Solver
from mpies.solvers.moments import Weights, fold_pairs, norm
from mpies.solvers.optimizers import AnyOptimizer, ClipUpOptions, first_rate, make_optimizer
from mpies.solvers.options import Count, Fraction, NonNegative, Pairs, Positive, WholeNumber
from mpies.solvers.shaping import shape


class PGPEOptions(Pairs):
    """PGPE: one sigma per parameter, steps of limited length by ClipUp, populations that grow with short episodes."""

    kind: Literal["pgpe"] = "pgpe"
    overlaps: ClassVar[bool] = True
    computed = {"sigma": "first_sigma"}
    population: Annotated[Count, Field(ge=2)] = Field(
        200, description="members drawn at a time; must be even, since they are pairs"
    )
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
    optimizer: AnyOptimizer = Field(ClipUpOptions.model_construct(), description="gradient rule: clipup, adam or sgd")

    @model_validator(mode="after")
    def _check_most(self) -> Self:
        if self.population_max is not None and self.population_max < self.population:
            raise ValueError(
                f"population_max must be at least {self.population}, the population, but is {self.population_max}; "
                "raise it or lower the population"
            )
        return self

    def is_complete(self, episodes: int, steps: int) -> bool:
        members = episodes // self.episodes
        is_full = self.population_max is not None and members + self.population > self.population_max
        return steps >= self.interactions or is_full

    def first_sigma(self, dimension: int) -> float:
        """The standard deviation that every parameter starts with."""
        if self.sigma is not None:
            return self.sigma
        if self.optimizer.kind == "clipup":
            return 15 * self.optimizer.max_speed / math.sqrt(dimension)  # the paper's radius: 15 max_speed
        return 0.1


class PGPE(Solver[PGPEOptions, Gaussian]):
    """PGPE on the noise table: x = mean + sigma z and mean - sigma z.  Below, eps = sigma z."""

    Options = PGPEOptions
    state_fields = ("mean", "sigma", "optimizer")

    def begin(self) -> None:
        self.sigma: FloatArray = np.full(self.dimension, self.options.first_sigma(self.dimension), self.dtype)  # (d,)
        self.optimizer = make_optimizer(self.options.optimizer, self.dimension)
        self.gradient_norm = float("nan")

    def propose(self) -> Gaussian:
        return Gaussian(self.mean, self.sigma)

    def predict_mean(self) -> FloatArray:
        return self.mean + self.optimizer.expected_step(first_rate(self.options.optimizer, self.dimension))

    def compute_weights(self, results: Results, proposal: Gaussian) -> Weights:
        fitness = shape(self.options.fitness, results.returns, results.sign_returns).astype(np.float64)
        centred = fitness - fitness.mean()
        return fold_pairs(fitness[None].astype(self.dtype), centred[None].astype(self.dtype))

    def update(self, proposal: Gaussian, results: Results, moments: FloatArray) -> None:
        options, count = self.options, self.dtype(len(results.returns))
        square = float(np.sum(self.compute_weights(results, proposal).square, dtype=np.float64))
        gradient = moments[0] * proposal.scale / count  # 1/n sum (r+ - r-) eps
        self.gradient_norm = norm(gradient)
        # rate/n sum (r+ + r- - 2 mean r) (eps^2 - sigma^2) / sigma
        change = self.dtype(options.sigma_learning_rate) * proposal.scale * (moments[1] - self.dtype(square)) / count
        bound = self.dtype(options.sigma_max_change) * self.sigma
        self.mean += self.optimizer.step(gradient, first_rate(options.optimizer, self.dimension))
        self.sigma = self.sigma + np.clip(change, -bound, bound)

    def report(self) -> dict[str, float]:
        return {
            "sigma": float(self.sigma.mean()),
            "parameter_norm": norm(self.mean),
            "gradient_norm": self.gradient_norm,
        }
