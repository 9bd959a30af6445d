"""Solvers of other packages: whole candidates, and a state that is what they were told.

Such a package keeps its state in objects of its own, which only pickle could save.  But it is a function of
the seed and of the returns it was told, so a checkpoint holds those, and `restore` tells them again.  That
takes the package's own time for the generations made so far and no episode.
"""

import random
from contextlib import contextmanager

import numpy as np

from solvers.base import Proposal, Results, Solver
from solvers.streams import SOLVER, stream


@contextmanager
def own_randomness(seed, generation):
    """Inside, the global generators of NumPy and Python are those of (seed, generation); outside, untouched."""
    state, kept = np.random.get_state(), random.getstate()
    first, second = stream(seed, SOLVER, generation).integers(2**32, size=2)
    np.random.seed(int(first))
    random.seed(int(second))
    try:
        yield
    finally:
        np.random.set_state(state)
        random.setstate(kept)


class Told(Solver):
    """Base of solvers that another package computes.  Subclasses implement open, draw, learn and centre."""

    Proposal = Proposal
    remembers = ("mean", "origin")

    @property
    def rows(self):
        return self.options.members(self.dimension)

    def begin(self):
        self.origin = self.mean.copy()
        self.told = []  # returns (n,) of each generation
        with own_randomness(self.seed, 0):
            self.open()

    def propose(self):
        with own_randomness(self.seed, 2 * self.generation + 1):
            self._drawn = self.draw()
        return Proposal(self.mean, rows=np.asarray(self._drawn, self.dtype))

    def write(self, proposal, indices, member, out):
        out[:] = proposal.rows[member]
        return ()

    def update(self, proposal, results, sums):
        fitness = self.fitness(results.returns)
        failed = np.isnan(fitness)
        if failed.any():  # worse than the worst by as much as the others differ
            finite = fitness[np.isfinite(fitness)]
            worst = 2 * finite.min() - finite.max() - 1 if len(finite) else 0.0
            fitness = np.where(failed, worst, fitness)
        self.told.append(results.returns)
        with own_randomness(self.seed, 2 * self.generation + 2):
            self.learn(self._drawn, -np.clip(fitness, -1e300, 1e300))
            self.mean = np.array(self.centre(), self.dtype)

    def fitness(self, returns):
        """What is maximised (n,) float64."""
        return returns

    def state(self):
        return super().state() | {"told": np.reshape(self.told, (-1, self.rows)).astype(np.float64)}

    def restore(self, state):
        self.start(state["origin"])
        for returns in np.asarray(state["told"]):
            proposal = self.ask()
            self.tell(proposal, Results.of(returns), np.zeros((0, self.dimension), self.dtype))

    def open(self):
        """Make the package's optimiser at `origin`."""
        raise NotImplementedError

    def draw(self):
        """The next n candidates (d,) float64."""
        raise NotImplementedError

    def learn(self, candidates, costs):
        """Be told the costs (n,) float64, to be minimised, of the candidates of `draw`."""
        raise NotImplementedError

    def centre(self):
        """The optimiser's best guess (d,), which is evaluated and saved."""
        raise NotImplementedError
