"""The generation loop in one process without MPI and environments: to try a solver, to test and to compare it.

>>> solver = SNES(SNES.Options(), dimension=20)
>>> solver.start(np.ones(20))
>>> loop = Loop(solver, lambda x: -float(np.sum(x * x)))
>>> for _ in range(100):
...     results = loop.generation()
"""

import numpy as np

from solvers import noise
from solvers.base import Results


def noise_table(size, seed=1, dtype=np.float32):
    """A whole table of standard normals (size,)."""
    table = np.empty(size, np.float32)
    for block in range(noise.blocks(size)):
        noise.fill(table, seed, block)
    return table.astype(dtype, copy=False)


class Loop:
    """Drives a started solver.

    value: function of parameters (d,) to their return, to be maximised.  behaviour: of parameters to (b,).
    table: the noise.  blocks: pieces that the moments are summed in, as if by so many ranks.
    """

    def __init__(self, solver, value, table=None, behaviour=None, blocks=1):
        self.solver, self.value, self.behaviour, self.blocks = solver, value, behaviour, blocks
        self.table = noise_table(1 << 20, dtype=solver.dtype) if table is None else table
        self.rows = None
        solver.table = self.table

    def generation(self):
        """Make one generation; returns its Results."""
        solver, options, dimension = self.solver, self.solver.options, self.solver.dimension
        proposal = solver.ask()
        if proposal.rows is not None:
            self.rows = proposal.rows
        proposal = type(proposal)(*proposal.vectors(), rows=self.rows)
        members, batch, indices, columns = options.members(dimension), 0, [], []
        while not columns or not options.is_complete(len(columns) * options.episodes, len(columns)):
            length = solver.directions.length
            part = noise.sample_indices(
                solver.seed, solver.generation, batch, options.noise_rows(dimension), len(self.table), length
            )
            for member in range(members):
                x = np.empty(dimension, solver.dtype)
                payload = solver.write(proposal, part, member, x)
                columns.append((self.value(x), payload, () if self.behaviour is None else self.behaviour(x)))
            indices.append(part)
            batch += 1
        returns, payload, behaviours = (np.array(column, np.float64) for column in zip(*columns, strict=True))
        results = Results.of(returns, payload, behaviours)
        indices, weights = np.concatenate(indices), solver.weigh(results, proposal)
        if not weights.linear.shape[1]:
            indices = indices[:0]
        bounds = dimension * np.arange(self.blocks + 1) // self.blocks
        sums = [solver.moments(indices, weights, *bounds[k : k + 2]) for k in range(self.blocks)]
        solver.tell(proposal, results, np.concatenate(sums, axis=1))
        return results
