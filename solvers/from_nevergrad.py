"""Any optimiser of Nevergrad (Rapin & Teytaud 2018) by its name there: `kind: nevergrad:TBPSA`."""

import difflib
import warnings

import numpy as np
from pydantic import Field

from solvers.options import Candidates, Count, Positive, tagged
from solvers.told import Told


class NevergradOptions(Candidates):
    """An optimiser of Nevergrad, which sees the parameters as one unbounded array."""

    kind: str
    population: Count | None = Field(None, description="candidates asked for at a time; default 4 + 3 ln(parameters)")
    sigma: Positive = Field(0.1, description="scale of the first changes, in units of the parameters")
    budget: Count = Field(1_000_000, description="evaluations that the optimiser plans for; some choose by it")

    def memory(self, dimension):
        return 3 * 8 * dimension * self.members(dimension)


def _registry():
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import nevergrad
    except ImportError:
        raise ValueError("nevergrad is not installed; pip install nevergrad") from None
    return nevergrad.optimizers.registry


class Nevergrad(Told):
    """Asks for a population, tells the costs; the mean is the optimiser's recommendation."""

    def open(self):
        import nevergrad

        array = nevergrad.p.Array(init=self.origin.astype(np.float64)).set_mutation(sigma=self.options.sigma)
        array.random_state = np.random.RandomState(np.random.randint(2**31))
        make = _registry()[self.options.kind.partition(":")[2]]
        self.optimizer = make(parametrization=array, budget=self.options.budget, num_workers=self.rows)

    def draw(self):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._asked_for = [self.optimizer.ask() for _ in range(self.rows)]
        return [candidate.value for candidate in self._asked_for]

    def learn(self, candidates, costs):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for candidate, cost in zip(self._asked_for, costs, strict=True):
                self.optimizer.tell(candidate, float(cost))

    def centre(self):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return self.optimizer.provide_recommendation().value


def nevergrad_solver(kind):
    """The Solver class of `kind`, nevergrad:NAME.  Raises ValueError for a name that Nevergrad has not."""
    name = kind.partition(":")[2]
    known = sorted(_registry())
    if name not in known:
        close = difflib.get_close_matches(name, known, n=3, cutoff=0.3) or known[:3]
        raise ValueError(f"must be nevergrad: and one of its {len(known)} optimisers, such as {', '.join(close)}")
    return type("Nevergrad", (Nevergrad,), {"Options": tagged(NevergradOptions, kind)})
