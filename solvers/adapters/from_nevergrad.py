"""Optimisers of Nevergrad (Rapin & Teytaud 2018) by their names there: `kind: nevergrad:TBPSA`."""

import difflib
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from pydantic import Field

from mpies.core.arrays import Float64s
from mpies.core.errors import SolverProblem
from mpies.core.text import describe_error
from mpies.solvers.external import Candidates, ExternalSolver
from mpies.solvers.options import Count, Positive, WholeCandidates, tagged


class NevergradOptions(WholeCandidates):
    """An optimiser of Nevergrad, which sees the parameters as one unbounded array."""

    kind: str
    population: Count | None = Field(
        None, description="candidates that are asked for at a time; default 4 + 3 ln(parameters)"
    )
    sigma: Positive = Field(0.1, description="scale of the first changes, in units of the parameters")
    budget: Count = Field(
        1_000_000, description="number of evaluations that the optimiser plans for; some optimisers adapt to it"
    )

    def memory(self, dimension: int) -> int:
        return 3 * 8 * dimension * self.members(dimension)


@contextmanager
def _calling(kind: str) -> Iterator[None]:
    """Nevergrad without its warnings.  Raises SolverProblem for what its optimiser raises in the `with` block."""
    with warnings.catch_warnings(action="ignore"):
        try:
            yield
        except Exception as error:  # many need other packages, and some a population of 1
            cure = "use population: 1" if "paralleliz" in str(error) else "choose another optimiser or population"
            raise SolverProblem(f"solver.kind {kind}: the optimiser raises {describe_error(error)}; {cure}") from error


def _optimizers() -> Any:
    """Nevergrad's registry: names to makers of optimisers.  Raises ValueError if Nevergrad is not installed."""
    try:
        with warnings.catch_warnings(action="ignore"):
            import nevergrad
    except ImportError:
        raise ValueError("nevergrad is not installed; pip install nevergrad") from None
    return nevergrad.optimizers.registry


class Nevergrad(ExternalSolver[NevergradOptions]):
    """Asks Nevergrad for a population and tells it the costs.  The mean is its recommendation."""

    def create_optimizer(self) -> None:
        import nevergrad

        array = nevergrad.p.Array(init=self.origin.astype(np.float64)).set_mutation(sigma=self.options.sigma)
        array.random_state = np.random.RandomState(np.random.randint(2**31))
        make = _optimizers()[self.options.kind.partition(":")[2]]
        with _calling(self.options.kind):
            self.optimizer = make(parametrization=array, budget=self.options.budget, num_workers=self.rows)

    def draw(self) -> Candidates:
        with _calling(self.options.kind):
            self._asked_for = [self.optimizer.ask() for _ in range(self.rows)]
        return [candidate.value for candidate in self._asked_for]

    def learn(self, candidates: Candidates, costs: Float64s) -> None:
        with _calling(self.options.kind):
            for candidate, cost in zip(self._asked_for, costs, strict=True):
                self.optimizer.tell(candidate, float(cost))

    def recommend(self) -> Float64s:
        with _calling(self.options.kind):
            return self.optimizer.provide_recommendation().value


def nevergrad_solver(kind: str) -> type[Nevergrad]:
    """The Solver class of `kind`, nevergrad:NAME.

    Raises ValueError if Nevergrad is not installed or has no optimiser of that name.
    """
    name = kind.partition(":")[2]
    known = sorted(_optimizers())
    if name not in known:
        close = difflib.get_close_matches(name, known, n=3, cutoff=0.3) or known[:3]
        raise ValueError(f"must be nevergrad: and one of its {len(known)} optimisers, such as {', '.join(close)}")
    return type("Nevergrad", (Nevergrad,), {"Options": tagged(NevergradOptions, kind)})
