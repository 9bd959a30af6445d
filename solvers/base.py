"""What a solver is: ask for a distribution, weigh the members' fitness, be told the moments.

    proposal = solver.ask()                                   rank 0
    weights = solver.weigh(results, proposal)                 every rank, the same everywhere
    sums = moments(table, indices, weights, 0, dimension)     every rank its own coordinates
    solver.tell(proposal, results, sums)                      rank 0

A solver never sees a member's parameters: members are rows of the noise table, and all that
depends on them arrives as moments.  Fitness is maximised.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class Proposal:
    """The distribution members are drawn from: x = mean + scale * z, elementwise.

    mean: (d,) float32.  scale: (1,) or (d,) float32.  What rank 0 broadcasts.
    """

    mean: np.ndarray
    scale: np.ndarray

    def sample(self, noise, sign, out):
        """Write the member with this noise row (d,) and sign (+1 or -1) into `out` (d,) float32."""
        np.multiply(noise, self.scale if sign > 0 else -self.scale, out=out)
        np.add(out, self.mean, out=out)


@dataclass(frozen=True)
class Results:
    """What a generation found, in member order, the same on every rank.

    returns: (n,) float64 mean undiscounted return of a member's episodes; NaN when it failed.
    sign_returns: (n,) float64 likewise for the signs of the rewards.
    steps: (n,) int64 environment steps of all of a member's episodes.
    """

    returns: np.ndarray
    sign_returns: np.ndarray
    steps: np.ndarray


@dataclass
class Solver(ABC):
    """Base of the solvers on the noise table.  Subclasses hold their state in float32 arrays.

    options: the subclass's Options.  dimension: d.
    """

    options: object
    dimension: int
    generation: int = field(default=0, init=False)  # updates made so far

    antithetic = True  # members come in pairs +z, -z; see moments.fold_pairs

    @abstractmethod
    def start(self, mean):
        """Begin at `mean` (d,) float32."""

    @abstractmethod
    def ask(self):
        """The Proposal of the next generation."""

    @abstractmethod
    def weigh(self, results, proposal):
        """moments.Weights for these Results; a pure function of its arguments and the options."""

    @abstractmethod
    def tell(self, proposal, results, sums):
        """Take the step.  sums: (a + c, d) float32, the moments for the weights of `weigh`."""

    @abstractmethod
    def state(self):
        """Everything that the next generation depends on: names to arrays."""

    @abstractmethod
    def restore(self, state):
        """Continue from what `state` returned, bit for bit."""

    def report(self):
        """Numbers worth a column in the metrics: names to floats."""
        return {}
