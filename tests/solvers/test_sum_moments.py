"""The update on one process and on ranks, here in turn in one process."""

import numpy as np
import pytest

from mpies.solvers.base import Results
from mpies.solvers.moments import split
from mpies.solvers.sampling.noise import build_table, sample_indices
from mpies.solvers.snes import SNES
from mpies.solvers.sum_moments import sum_moments
from tests.solvers.single_generation import FunctionLoop

TABLE = build_table(1 << 14)
DIMENSION = 100


class Rank:
    """A rank of a communicator that keeps the blocks of all ranks in a list they share."""

    def __init__(self, rank, size, blocks):
        self.rank, self.size, self.blocks = rank, size, blocks

    def gather_blocks(self, block, bounds):
        np.testing.assert_array_equal(bounds, split(DIMENSION, self.size))
        self.blocks.append(block)
        return np.concatenate(self.blocks, axis=1) if self.rank == 0 else None


def begin(**options):
    solver = SNES(SNES.Options(population=12, **options), DIMENSION, seed=4)
    solver.start(np.ones(DIMENSION))
    solver.table = TABLE
    return solver


def test_moments_of_two_members_by_hand():
    solver = SNES(SNES.Options(population=2), 3)
    solver.start(np.zeros(3))
    solver.table = np.array([1, 2, 3, 4], np.float32)
    moments = sum_moments(solver, solver.ask(), Results.of([5, 7]), np.array([0, 1]))
    # the rows are (1, 2, 3) and (2, 3, 4), their utilities -0.5 and 0.5
    np.testing.assert_allclose(moments, [[0.5, 0.5, 0.5], [1.5, 2.5, 3.5]])


@pytest.mark.parametrize("size", [1, 2, 5, 9])
def test_rank_0_gets_the_bits_of_a_single_process_and_the_others_nothing(size):
    solver = begin()
    results, indices = Results.of(np.arange(12.0)), solver.population_indices(0, 0)
    alone = sum_moments(solver, solver.ask(), results, indices)
    blocks = []
    for rank in reversed(range(size)):  # rank 0 gathers last
        moments = sum_moments(solver, solver.ask(), results, indices, Rank(rank, size, blocks))
        assert (moments is None) == (rank > 0)
        blocks[:] = blocks[-1:] + blocks[:-1]
    assert moments.shape == (2, DIMENSION)
    assert [block.shape[1] for block in blocks] == np.diff(split(DIMENSION, size)).tolist()
    assert np.concatenate(blocks, axis=1).tobytes() == alone.tobytes()


def test_a_solver_without_moments_reads_no_noise():
    class Blind(SNES):
        def compute_weights(self, results, proposal):
            return super(SNES, self).compute_weights(results, proposal)

        def moments(self, indices, weights, start, stop):
            assert len(indices) == 0
            return super().moments(indices, weights, start, stop)

    solver = Blind(SNES.Options(population=12), DIMENSION)
    solver.start(np.ones(DIMENSION))
    solver.table = TABLE
    moments = sum_moments(solver, solver.ask(), Results.of(np.arange(12.0)), solver.population_indices(0, 0))
    assert moments.shape == (0, DIMENSION)


def test_a_loop_draws_batches_until_the_generation_is_complete():
    class Patient(SNES.Options):
        def is_complete(self, episodes, steps):
            return episodes >= 30

    solver = SNES(Patient(population=12), DIMENSION, seed=4)
    solver.start(np.ones(DIMENSION))
    members = []
    results = FunctionLoop(solver, lambda x: members.append(x) or -float(x @ x), TABLE).run_generation()
    assert len(results.returns) == len(members) == 36
    indices = np.concatenate([sample_indices(4, 0, batch, 12, len(TABLE), DIMENSION) for batch in range(3)])
    rows = np.array([TABLE[index : index + DIMENSION] for index in indices])
    np.testing.assert_allclose(members, 1 + np.float32(0.1) * rows, rtol=1e-6)
    loop = FunctionLoop(solver, sum, TABLE)
    assert [len(loop.ask(most)) for most in (1, 2, 3, 4)] == [12, 24, 36, 36]
