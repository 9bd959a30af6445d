"""CMA-ES by pycma (Hansen, Yoshihiro & Baudis): full, diagonal, VD and VkD covariance, with restarts."""

import math
import warnings
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from solvers.options import Candidates, Count, NonNegative, Positive
from solvers.streams import SOLVER, stream
from solvers.told import Told


class CMAESOptions(Candidates):
    """CMA-ES by pycma: learns all dependencies between up to a few thousand parameters, or the scales of more."""

    kind: Literal["cma_es"] = "cma_es"
    population: Annotated[Count, Field(ge=4)] | None = Field(
        None, description="members per generation; default 4 + 3 ln(parameters)"
    )
    sigma: Positive = Field(0.1, description="first step size, in units of the parameters")
    covariance: Literal["full", "diagonal", "vd", "vkd"] = Field(
        "full",
        description="what is learnt: full (memory grows with d^2), diagonal (scales), "
        "vd (scales and one direction), vkd (scales and a few directions)",
    )
    weight_decay: NonNegative = Field(
        0.0, description="fitness lost per mean squared parameter of a member (the peers' l2_coefficient)"
    )
    restarts: Literal["none", "ipop", "bipop"] = Field(
        "none",
        description="when pycma's stop criteria hold: go on, start again with twice the population (ipop), "
        "or with large and small ones in turn (bipop)",
    )
    memory_limit: Positive = Field(8.0, description="gigabytes that the covariance may take before it is refused")

    def memory(self, dimension):
        members = 3 * 8 * dimension * self.members(dimension)
        # C, B, their product with the scales, the symmetric copy and LAPACK's workspace, float64
        return members + (5 * 8 * dimension**2 if self.covariance == "full" else 40 * 8 * dimension)

    def refusal(self, dimension):
        """Why this cannot run with so many parameters, or ''."""
        needed = self.memory(dimension) / 1e9
        if needed <= self.memory_limit:
            return ""
        alternatives = "covariance: diagonal, vd or vkd, or " if self.covariance == "full" else ""
        return (
            f"solver.kind cma_es (covariance {self.covariance}) needs {needed:.1f} GB for {dimension:,} parameters, "
            f"more than solver.memory_limit, {self.memory_limit:g}; use {alternatives}"
            "kind: sep_cma, cr_fm_nes or snes, whose memory grows with the parameters only"
        )


class CMAES(Told):
    """pycma's CMAEvolutionStrategy; the mean is reported, not the best sample.

    A population of pycma is played in as many generations as it has multiples of the population.
    """

    Options = CMAESOptions

    def open(self):
        self.restarts = self.small = self.budget_large = self.budget_small = 0
        self._random = stream(self.seed, SOLVER)
        self._shelf = None  # (fitness, mean) of the best run that is over
        self._begin_run(1, self.options.sigma)

    def _begin_run(self, multiple, sigma):
        import cma
        from cma.restricted_gaussian_sampler import GaussVDSampler, GaussVkDSampler

        options = {
            "popsize": multiple * self.rows,
            "randn": lambda *shape: self._random.standard_normal(shape),
            "seed": math.nan,  # pycma would seed NumPy's global generator
            "verbose": -9,
            "verb_log": 0,
        }
        if self.options.covariance == "diagonal":
            options["CMA_diagonal"] = True
        elif self.options.covariance == "vd":
            options = GaussVDSampler.extend_cma_options(options)
        elif self.options.covariance == "vkd":
            options = GaussVkDSampler.extend_cma_options(options)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.strategy = cma.CMAEvolutionStrategy(self.origin.astype(np.float64), sigma, options)
        self._waiting, self._seen, self._costs = [], [], []

    def draw(self):
        if not self._waiting:
            self._waiting = list(self.strategy.ask())
            self._seen, self._costs = [], []
        drawn, self._waiting = self._waiting[: self.rows], self._waiting[self.rows :]
        return drawn

    def learn(self, candidates, costs):
        decay = self.options.weight_decay
        self._seen += list(candidates)
        self._costs += [c + decay * float(np.mean(x * x)) for x, c in zip(candidates, costs, strict=True)]
        if self._waiting:
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.strategy.tell(self._seen, self._costs)
        if self.options.restarts != "none" and self.strategy.stop():
            self._restart()

    def _restart(self):
        fitness, evaluations = -float(np.median(self._costs)), self.strategy.countevals
        if self._shelf is None or fitness > self._shelf[0]:
            self._shelf = (fitness, np.array(self.strategy.mean))
        multiple, sigma = 2 ** (self.restarts + 1), self.options.sigma
        if self.options.restarts == "bipop":  # Hansen 2009, "Benchmarking a BI-population CMA-ES"
            if self.small:
                self.budget_small += evaluations
            else:
                self.budget_large += evaluations
            self.small = self.restarts > 0 and self.budget_small < self.budget_large
            if self.small:
                largest = 2**self.restarts
                multiple = max(1, int((largest / 2) ** (self._random.random() ** 2)))
                sigma *= 10 ** (-2 * self._random.random())
        if not self.small:
            self.restarts += 1
        self._begin_run(multiple, sigma)

    def centre(self):
        if self._shelf is not None and (not self._costs or -float(np.median(self._costs)) < self._shelf[0]):
            return self._shelf[1]
        return self.strategy.result.xfavorite

    def report(self):
        return {"sigma": float(self.strategy.sigma), "restarts": float(self.restarts)}
