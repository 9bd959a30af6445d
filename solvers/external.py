"""Solvers that another package computes: they draw whole candidates, and their state is the history of returns.

Such a package keeps its state in objects of its own, which only pickle could save.  But that state is a function of the
seed and of the returns, so a checkpoint holds the returns of all generations, and `restore` tells them again.  This
takes the package's own time per generation, and no episode is evaluated.
"""

import random
import threading
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from mpies.core.arrays import Float64s, FloatArray, Int64s
from mpies.core.errors import SolverProblem
from mpies.core.streams import SOLVER, stream
from mpies.solvers import base
from mpies.solvers.base import OptionsT, Results, Solver

# One thread at a time: the global generators are those of the whole process.
_global_generators = threading.RLock()

Candidates = Sequence[Float64s]  # each (d,)


@contextmanager
def seeded_global_generators(seed: int, generation: int) -> Iterator[None]:
    """A context in which the global generators of NumPy and Python are seeded by (seed, generation).

    Their states from before are put back at the end.  Other threads that ask for such a context wait until then.
    """
    first, second = stream(seed, SOLVER, generation).integers(2**32, size=2)
    with _global_generators:
        numpy_state, python_state = np.random.get_state(), random.getstate()
        np.random.seed(int(first))
        random.seed(int(second))
        try:
            yield
        finally:
            np.random.set_state(numpy_state)
            random.setstate(python_state)


class ExternalSolver(Solver[OptionsT, base.Proposal]):
    """Base of solvers of other packages.  A subclass defines create_optimizer, draw, learn and recommend."""

    Proposal = base.Proposal
    state_fields = ("mean", "origin")

    @property
    def rows(self) -> int:
        return self.options.members(self.dimension)

    def begin(self) -> None:
        self.origin = self.mean.copy()  # (d,)
        self.history: list[Float64s] = []  # returns (n,) of each generation
        with seeded_global_generators(self.seed, 0):
            self.create_optimizer()

    def propose(self) -> base.Proposal:
        with seeded_global_generators(self.seed, 2 * self.generation + 1):
            self._candidates = self.draw()
        return base.Proposal(self.mean, rows=np.asarray(self._candidates, self.dtype))

    def write(self, proposal: base.Proposal, indices: Int64s, member: int, out: FloatArray) -> Sequence[float]:
        assert proposal.rows is not None  # every generation has rows of its own
        out[:] = proposal.rows[member]
        return ()

    def update(self, proposal: base.Proposal, results: Results, moments: FloatArray) -> None:
        fitness = results.returns
        failed = np.isnan(fitness)
        if failed.any():  # the worst return, less the range of all returns, less 1
            finite = fitness[np.isfinite(fitness)]
            # Where all members failed, none may ever count as the best: the package would remember it.
            worst = 2 * finite.min() - finite.max() - 1 if len(finite) else -np.inf
            fitness = np.where(failed, worst, fitness)
        self.history.append(results.returns)
        with seeded_global_generators(self.seed, 2 * self.generation + 2):
            self.learn(self._candidates, -np.clip(fitness, -1e300, 1e300))
            self.mean = np.array(self.recommend(), self.dtype)

    def state(self) -> dict[str, Any]:
        return super().state() | {"told": np.reshape(self.history, (-1, self.rows)).astype(np.float64)}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.start(state["origin"])
        for returns in np.asarray(state["told"]):
            proposal = self.ask()
            self.tell(proposal, Results.of(returns), np.zeros((0, self.dimension), self.dtype))
        if not np.array_equal(self.mean, state["mean"]):
            raise SolverProblem(
                "the solver's package does not come from the recorded returns to the recorded mean; continue with the "
                "versions in config.yaml, on the same type of processor and with as many BLAS threads, or begin a new "
                "run with policy.init_from"
            )

    @abstractmethod
    def create_optimizer(self) -> None:
        """Create the package's optimiser, starting at `origin` (d,)."""

    @abstractmethod
    def draw(self) -> Candidates:
        """The next n candidates."""

    @abstractmethod
    def learn(self, candidates: Candidates, costs: Float64s) -> None:
        """Tell the optimiser the costs (n,), to be minimised, of the candidates that `draw` returned."""

    @abstractmethod
    def recommend(self) -> Float64s:
        """The optimiser's best guess (d,), which is evaluated and saved."""
