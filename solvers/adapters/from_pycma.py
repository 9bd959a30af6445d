"""CMA-ES by pycma (Hansen, Yoshihiro & Baudis): full, diagonal, VD and VkD covariance, with restarts."""

import math
import warnings
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from mpies.core.arrays import Float64s
from mpies.core.streams import SOLVER, stream
from mpies.solvers.external import Candidates, ExternalSolver
from mpies.solvers.options import Count, Fraction, NonNegative, Positive, WholeCandidates, WholeNumber


class CMAESOptions(WholeCandidates):
    """CMA-ES by pycma: learns all dependencies between up to a few thousand parameters, or the scales of more."""

    kind: Literal["cma_es"] = "cma_es"
    population: Annotated[Count, Field(ge=4)] | None = Field(
        None, description="members per generation; default 4 + 3 ln(parameters)"
    )
    sigma: Positive | None = Field(
        0.1,
        description="first step size, in units of the parameters; null: 2.5 times the root mean square of the first "
        "parameters, at least 0.1",
    )
    covariance: Literal["full", "diagonal", "vd", "vkd", "auto"] = Field(
        "full",
        description="which part of the covariance is learnt: full (memory grows with d^2), diagonal (scales), vd "
        "(scales and one direction), vkd (scales and a few directions), auto (full up to 2,000 parameters, else "
        "diagonal)",
    )
    weight_decay: NonNegative = Field(
        0.0, description="fitness lost per mean squared parameter of a member (the peers' l2_coefficient)"
    )
    restarts: Literal["none", "ipop", "bipop"] = Field(
        "none",
        description="when pycma's stop criteria hold: continue (none), start again with twice the population (ipop), "
        "or with large and small ones in turn (bipop)",
    )
    average: Annotated[Fraction, Field(gt=0)] = Field(
        1.0,
        description="weight of the newest mean in the running average that is evaluated and saved; 1: the newest mean",
    )
    integers: list[WholeNumber] = Field(
        [],
        description="indices of parameters that are whole numbers: pycma rounds them and bounds their step",
    )
    memory_limit: Positive = Field(8.0, description="gigabytes that the covariance may take before it is refused")

    def chosen(self, dimension: int) -> str:
        """The `covariance` for d parameters: all but auto."""
        return self.covariance if self.covariance != "auto" else "full" if dimension <= 2000 else "diagonal"

    def memory(self, dimension: int) -> int:
        members = 3 * 8 * dimension * self.members(dimension)
        # C, B, their product with the scales, the symmetric copy and LAPACK's workspace, float64
        return members + (5 * 8 * dimension**2 if self.chosen(dimension) == "full" else 40 * 8 * dimension)

    def refusal(self, dimension: int) -> str:
        if max(self.integers, default=0) >= dimension:
            return (
                f"solver.integers must be indices below {dimension}, the number of parameters, but is {self.integers}"
            )
        needed = self.memory(dimension) / 1e9
        if needed <= self.memory_limit:
            return ""
        alternatives = "covariance: diagonal, vd or vkd, or " if self.covariance == "full" else ""
        return (
            f"solver.kind cma_es (covariance {self.covariance}) needs {needed:.1f} GB for {dimension:,} parameters, "
            f"more than solver.memory_limit, {self.memory_limit:g}; use {alternatives}"
            "kind: sep_cma, cr_fm_nes or snes, whose memory grows with the parameters only"
        )


class CMAES(ExternalSolver[CMAESOptions]):
    """pycma's CMAEvolutionStrategy.  What is reported is its mean, not its best sample.

    After a restart the population of pycma may be a multiple of the solver's.  Then it is evaluated in as many
    generations.
    """

    Options = CMAESOptions

    def create_optimizer(self) -> None:
        self.restarts = self.budget_large = self.budget_small = 0
        self.is_small = False  # whether this run is one of BIPOP's with a small population
        self._random = stream(self.seed, SOLVER)
        self._best_run: tuple[float, Float64s] | None = None  # fitness and mean of the best finished run
        self._sigma = self.options.sigma or max(0.1, 2.5 * float(np.sqrt(np.mean(np.square(self.origin)))))
        self._begin_run(1, self._sigma)

    def _begin_run(self, multiple: int, sigma: float) -> None:
        """Start pycma at `origin` with this multiple of the population."""
        import cma
        from cma.restricted_gaussian_sampler import GaussVDSampler, GaussVkDSampler

        options = {
            "popsize": multiple * self.rows,
            "randn": lambda *shape: self._random.standard_normal(shape),
            "seed": math.nan,  # pycma would seed NumPy's global generator
            "verbose": -9,
            "verb_log": 0,
            # pycma cannot do it with one variable alone
            "integer_variables": list(self.options.integers) if self.dimension > 1 else [],
        }
        covariance = self.options.chosen(self.dimension)
        if covariance == "diagonal":
            options["CMA_diagonal"] = True
        elif covariance == "vd":
            options = GaussVDSampler.extend_cma_options(options)
        elif covariance == "vkd":
            options = GaussVkDSampler.extend_cma_options(options)
        with warnings.catch_warnings(action="ignore"):
            self.strategy = cma.CMAEvolutionStrategy(self.origin.astype(np.float64), sigma, options)
        # pycma's population: the candidates to be drawn, and those with known costs
        self._waiting: list[Float64s] = []
        self._evaluated: list[Float64s] = []
        self._costs: list[float] = []

    def draw(self) -> Candidates:
        if not self._waiting:
            self._waiting = list(self.strategy.ask())
            self._evaluated, self._costs = [], []
        drawn, self._waiting = self._waiting[: self.rows], self._waiting[self.rows :]
        return drawn

    def learn(self, candidates: Candidates, costs: Float64s) -> None:
        decay = self.options.weight_decay
        self._evaluated += list(candidates)
        self._costs += [c + decay * float(np.mean(x * x)) for x, c in zip(candidates, costs, strict=True)]
        if self._waiting:
            return
        with warnings.catch_warnings(action="ignore"):
            self.strategy.tell(self._evaluated, self._costs)
        if self.options.restarts != "none" and self.strategy.stop():
            self._restart()

    def _restart(self) -> None:
        """Begin another run: IPOP doubles the population, BIPOP (Hansen 2009) alternates large and small ones."""
        fitness, evaluations = -float(np.median(self._costs)), self.strategy.countevals
        if self._best_run is None or fitness > self._best_run[0]:
            self._best_run = (fitness, np.array(self.strategy.mean))
        multiple, sigma = 2 ** (self.restarts + 1), self._sigma
        if self.options.restarts == "bipop":
            if self.is_small:
                self.budget_small += evaluations
            else:
                self.budget_large += evaluations
            self.is_small = self.restarts > 0 and self.budget_small < self.budget_large
            if self.is_small:
                largest = 2**self.restarts
                multiple = max(1, int((largest / 2) ** (self._random.random() ** 2)))
                sigma *= 10 ** (-2 * self._random.random())
        if not self.is_small:
            self.restarts += 1
        self._begin_run(multiple, sigma)

    def recommend(self) -> Float64s:
        best = self._best_run
        if best is not None and (not self._costs or -float(np.median(self._costs)) < best[0]):
            return best[1]
        newest = np.array(self.strategy.result.xfavorite)
        return self.mean + self.options.average * (newest - self.mean) if self.options.average < 1 else newest

    def report(self) -> dict[str, float]:
        own = getattr(self.strategy.sm, "sigma", 1.0)  # of VkD, whose sampler adapts the step size itself
        return {"sigma": float(self.strategy.sigma * own), "restarts": float(self.restarts)}
