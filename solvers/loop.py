"""Generations in one process, without MPI and environments: for ask and tell."""

import math
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from mpies.core.arrays import FloatArray, Int64s
from mpies.solvers.base import AnySolver, Results
from mpies.solvers.sampling.noise import build_table
from mpies.solvers.sum_moments import sum_moments


class SolverLoop:
    """Asks for the members of each generation of a solver that has been started, and tells it their returns.

    table: the noise table; default one of 2^20 normals.
    proposal, indices, payload: of the members that `ask` returned, until `tell`.
    """

    def __init__(self, solver: AnySolver, table: FloatArray | None = None) -> None:
        self.solver = solver
        self.rows: FloatArray | None = None  # (r, d), those of the last proposal that had any
        solver.table = build_table(1 << 20, dtype=solver.dtype) if table is None else table

    def ask(self, most: float = math.inf) -> FloatArray:
        """The parameters (n, d) of the members of the coming generation; the same until `tell`.

        most: populations that are drawn, where the options ask for more than one.
        """
        solver, options = self.solver, self.solver.options
        proposal = solver.ask()
        if proposal.rows is not None:
            self.rows = proposal.rows
        self.proposal = proposal = replace(proposal, rows=self.rows)
        batches: list[Int64s] = []  # noise indices
        members: list[FloatArray] = []
        payload: list[npt.ArrayLike] = []
        while not batches or (
            len(batches) < most and not options.is_complete(len(members) * options.episodes, len(members))
        ):
            indices = solver.population_indices(solver.generation, len(batches))
            for member in range(options.members(solver.dimension)):
                members.append(np.empty(solver.dimension, solver.dtype))
                payload.append(solver.write(proposal, indices, member, members[-1]))
            batches.append(indices)
        self.indices, self.payload = np.concatenate(batches), np.array(payload, np.float64)
        return np.stack(members)

    def tell(self, returns: npt.ArrayLike, behaviours: npt.ArrayLike | None = None) -> Results:
        """Take the step.  returns: (n,) of the members of `ask`, NaN where one failed.  behaviours: (n, b).

        Raises RuntimeError before `ask`, and ValueError for wrong shapes.
        """
        if not hasattr(self, "proposal"):
            raise RuntimeError("tell before ask: call ask first, then tell the results of its proposal")
        results = Results.of(returns, self.payload, behaviours)
        moments = sum_moments(self.solver, self.proposal, results, self.indices)
        assert moments is not None  # a single process is rank 0
        self.solver.tell(self.proposal, results, moments)
        del self.proposal, self.indices, self.payload
        return results
