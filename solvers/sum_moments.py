"""The update of a generation: from the members' results to the moments that `Solver.tell` needs.

Live training, resuming, replaying and a solver alone all go through `sum_moments`.
"""

from typing import Protocol

from mpies.core.arrays import Array, FloatArray, Int64s
from mpies.solvers.base import AnySolver, Proposal, Results
from mpies.solvers.moments import split


class BlockGatherer(Protocol):
    """What `sum_moments` needs of a communicator: this rank, how many there are, and how blocks get to rank 0."""

    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...

    def gather_blocks(self, block: Array, bounds: Int64s) -> Array | None:
        """On rank 0 the blocks of all ranks side by side; None on the others.  bounds: (size + 1,) coordinates."""


def sum_moments(
    solver: AnySolver, proposal: Proposal, results: Results, indices: Int64s, comm: BlockGatherer | None = None
) -> FloatArray | None:
    """The moments (a + c, d) of a generation on rank 0; None on other ranks.

    Each rank sums its own block of coordinates.  The bits do not depend on how many ranks there are.
    indices: (k,) noise indices of all batches of the generation.  comm: None for a single process.
    """
    weights = solver.compute_weights(results, proposal)
    indices = indices[: weights.linear.shape[1]]  # none if the solver wants no moments
    if comm is None:
        return solver.moments(indices, weights, 0, solver.dimension)
    bounds = split(solver.dimension, comm.size)
    start, stop = bounds[comm.rank : comm.rank + 2]
    return comm.gather_blocks(solver.moments(indices, weights, start, stop), bounds)
