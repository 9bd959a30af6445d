"""Generations of a solver: of a function of the parameters, and one with given returns."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from mpies.solvers.base import Results, Solver
from mpies.solvers.loop import SolverLoop
from mpies.solvers.sum_moments import sum_moments


class FunctionLoop(SolverLoop):
    """A SolverLoop whose returns are values, to be maximised, of the parameters (d,).

    behaviour: of parameters (d,), b numbers.
    """

    def __init__(
        self,
        solver: Solver,
        value: Callable[[np.ndarray], float],
        table: np.ndarray | None = None,
        behaviour: Callable[[np.ndarray], npt.ArrayLike] = lambda x: (),
    ) -> None:
        super().__init__(solver, table)
        self.value, self.behaviour = value, behaviour

    def run_generation(self) -> Results:
        """Evaluate the members of one generation and take the step.  Returns their results."""
        returns, behaviours = zip(*[(self.value(x), self.behaviour(x)) for x in self.ask()], strict=True)
        return self.tell(returns, np.array(behaviours, np.float64))


def tell_once(
    solver: Solver, noise: npt.ArrayLike, returns: npt.ArrayLike, steps: npt.ArrayLike | None = None
) -> np.ndarray:
    """Start `solver` at 1 and take one step with these noise rows (k, d) and returns (n,).

    Returns the parameters (n, d) of the members.
    """
    solver.start(np.ones(solver.dimension))
    return tell(solver, noise, returns, steps)


def tell(
    solver: Solver,
    noise: npt.ArrayLike,
    returns: npt.ArrayLike | Callable[[np.ndarray], npt.ArrayLike],
    steps: npt.ArrayLike | None = None,
    behaviours: npt.ArrayLike | None = None,
) -> np.ndarray:
    """Take one step of a solver that was started.

    returns: (n,), or a function of the members.  behaviours: (n, b), none by default.  Else as `tell_once`.
    """
    noise = np.asarray(noise, solver.dtype)
    solver.table, indices, proposal = noise.ravel(), solver.dimension * np.arange(len(noise)), solver.ask()
    members = np.empty((solver.options.members(solver.dimension), solver.dimension), solver.dtype)
    payload = [solver.write(proposal, indices, number, member) for number, member in enumerate(members)]
    results = Results.of(returns(members) if callable(returns) else returns, payload, behaviours)
    if steps is not None:
        results = Results(results.returns, results.sign_returns, np.asarray(steps), results.payload, results.behaviours)
    solver.tell(proposal, results, sum_moments(solver, proposal, results, indices))
    return members


def with_signs(noise: np.ndarray) -> np.ndarray:
    """The noise (2 k, d) of all members of antithetic pairs, from that of the pairs (k, d)."""
    return np.stack([noise, -noise], axis=1).reshape(-1, noise.shape[1])
