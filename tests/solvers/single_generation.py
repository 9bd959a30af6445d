"""Generations of a solver: of a function of the parameters, and one with given returns."""

import itertools

import numpy as np

from mpies.solvers.base import Results
from mpies.solvers.loop import SolverLoop
from mpies.solvers.sum_moments import sum_moments


class FunctionLoop(SolverLoop):
    """A SolverLoop whose returns are values, to be maximised, of the parameters (d,).

    value, behaviour: functions of parameters (d,) to a number, and to b numbers.  table: of noise.
    """

    def __init__(self, solver, value, table=None, behaviour=lambda x: ()):
        super().__init__(solver, table)
        self.value, self.behaviour = value, behaviour

    def run_generation(self):
        """Evaluate the members of one generation and take the step.  Returns their results."""
        returns, behaviours = zip(*[(self.value(x), self.behaviour(x)) for x in self.ask()], strict=True)
        return self.tell(returns, np.array(behaviours, np.float64))


def sphere(x):
    return -float(np.sum(np.square(x, dtype=np.float64)))


def begin(kind, dimension, mean=1.0, seed=0, dtype=np.float32, **options):
    """A solver of the class `kind` with these options, started at `mean`: (d,), or a number for all parameters."""
    solver = kind(kind.Options(**options), dimension, seed, dtype)
    solver.start(np.full(dimension, mean))
    return solver


def sum_in_blocks(solver, bounds):
    """Let the solver sum its moments in blocks of the coordinates between these bounds, as ranks do."""
    sum_block = solver.moments

    def sum_blocks(indices, weights, start, stop):
        assert (start, stop) == (0, solver.dimension)
        blocks = [sum_block(indices, weights, low, high) for low, high in itertools.pairwise(bounds)]
        assert [block.shape[1] for block in blocks] == np.diff(bounds).tolist()
        return np.concatenate(blocks, axis=1)

    solver.moments = sum_blocks


def tell_once(solver, noise, returns, steps=None):
    """Start `solver` at 1 and take one step with these noise rows (k, d) and returns (n,).

    Returns the parameters (n, d) of the members.
    """
    solver.start(np.ones(solver.dimension))
    return tell(solver, noise, returns, steps)


def tell(solver, noise, returns, steps=None, behaviours=None):
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


def with_signs(noise):
    """The noise (2 k, d) of all members of antithetic pairs, from that of the pairs (k, d)."""
    return np.stack([noise, -noise], axis=1).reshape(-1, noise.shape[1])
