"""Generations in one process, without MPI and environments: to try, test and compare solvers."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from mpies.solvers.base import Results, Solver
from mpies.solvers.noise import FloatArray, build_table
from mpies.solvers.update import sum_moments


class SolverLoop:
    """Runs the generations of a solver that has been started.

    >>> solver = SNES(SNES.Options(), dimension=20)
    >>> solver.start(np.ones(20))
    >>> loop = SolverLoop(solver, lambda x: -float(np.sum(x * x)))
    >>> for _ in range(100):
    ...     results = loop.run_generation()

    value: the return, to be maximised, of parameters (d,).  behaviour: of parameters (d,), b numbers.
    table: the noise table; default one of 2^20 normals.
    """

    def __init__(
        self,
        solver: Solver[Any, Any],
        value: Callable[[FloatArray], float],
        table: FloatArray | None = None,
        behaviour: Callable[[FloatArray], npt.ArrayLike] | None = None,
    ) -> None:
        self.solver, self.value, self.behaviour = solver, value, behaviour
        self.rows: FloatArray | None = None  # (r, d), those of the last proposal that had any
        solver.table = build_table(1 << 20, dtype=solver.dtype) if table is None else table

    def run_generation(self) -> Results:
        """Evaluate the members of one generation and take the step.  Returns their results."""
        solver, options = self.solver, self.solver.options
        proposal = solver.ask()
        if proposal.rows is not None:
            self.rows = proposal.rows
        proposal = replace(proposal, rows=self.rows)
        batches: list[npt.NDArray[np.int64]] = []  # noise indices
        members: list[tuple[float, npt.ArrayLike, npt.ArrayLike]] = []  # return, payload, behaviour
        while not batches or not options.is_complete(len(members) * options.episodes, len(members)):
            indices = solver.population_indices(solver.generation, len(batches))
            for member in range(options.members(solver.dimension)):
                x = np.empty(solver.dimension, solver.dtype)
                payload = solver.write(proposal, indices, member, x)
                members.append((self.value(x), payload, () if self.behaviour is None else self.behaviour(x)))
            batches.append(indices)
        results = Results.of(*(np.array(column, np.float64) for column in zip(*members, strict=True)))
        moments = sum_moments(solver, proposal, results, np.concatenate(batches))
        assert moments is not None  # a single process is rank 0
        solver.tell(proposal, results, moments)
        return results
