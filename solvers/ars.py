"""Augmented random search (Mania, Guy & Recht 2018, arXiv 1803.07055).

V1 is policy.normalize_observations: false, V2 is true.  With `top` below population / 2 they are V1-t and V2-t.
The paper's policy is linear and starts at zero: policy: {hidden: [], initial: zeros, statistics_fraction: 1}.
"""

from typing import Annotated, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from mpies.core.arrays import FloatArray
from mpies.solvers.base import Gaussian, Results, Solver
from mpies.solvers.moments import Weights, fold_pairs, no_square, norm
from mpies.solvers.options import Count, Pairs, Positive, Real
from mpies.solvers.shaping import best_first, bounded


class ARSOptions(Pairs):
    """ARS: finite differences along the best directions, in units of the returns' standard deviation."""

    kind: Literal["ars"] = "ars"
    overlaps: ClassVar[bool] = True
    takes_low_rank: ClassVar[bool] = True
    population: Annotated[Count, Field(ge=2)] = Field(64, description="members per generation: two per direction")
    top: Count | None = Field(None, description="directions to learn from, the paper's b; default all of them")
    sigma: Positive = Field(0.03, description="length of the finite differences (the paper's nu)")
    learning_rate: Positive = Field(0.02, description="the paper's alpha")
    alive_bonus: Real = Field(0.0, description="reward per step that training subtracts, so that standing still is bad")

    @model_validator(mode="after")
    def _check_top(self) -> Self:
        if self.top and self.top > self.population // 2:
            raise ValueError(
                f"top must be at most {self.population // 2}, the directions of population {self.population}, "
                f"but is {self.top}; lower it or leave it out"
            )
        return self


class ARS(Solver[ARSOptions, Gaussian]):
    """ARS on the noise table.  Steps are numbered as in algorithm 2."""

    Options = ARSOptions

    def begin(self) -> None:
        pass

    def propose(self) -> Gaussian:
        return Gaussian(self.mean, np.full(1, self.options.sigma, self.dtype))

    def compute_weights(self, results: Results, proposal: Gaussian) -> Weights:
        options = self.options
        fitness = bounded(results.returns - options.alive_bonus * results.steps / options.episodes)
        pairs = fitness.reshape(-1, 2)  # (directions, 2)
        used = best_first(pairs.max(axis=1))[: options.top]  # step 6: by the better member of each pair
        deviation = pairs[used].std() or 1.0  # step 7: of the 2b returns that are used
        weights = np.zeros_like(pairs)
        weights[used] = pairs[used] * (options.learning_rate / (len(used) * deviation))
        # The mean of a pair cancels in the step.  Removed here, it does not cost float32 digits of the difference.
        weights -= weights.mean(axis=1, keepdims=True)
        return fold_pairs(weights.reshape(1, -1).astype(self.dtype), no_square(len(fitness)))

    def update(self, proposal: Gaussian, results: Results, moments: FloatArray) -> None:
        self.mean += moments[0]  # step 7

    def report(self) -> dict[str, float]:
        return {"parameter_norm": norm(self.mean)}
