"""The sums of a generation in one process; tests/training/test_update.py has those of ranks."""

import numpy as np

from mpies.comm.serial import Serial
from mpies.solvers.base import Results, Solver
from mpies.solvers.sampling.noise import build_table, sample_indices
from mpies.solvers.snes import SNES
from mpies.solvers.sum_moments import sum_moments
from tests.solvers.single_generation import FunctionLoop

TABLE = build_table(1 << 14)
DIMENSION = 100


def test_a_solver_without_weights_reads_no_noise():
    class Blind(SNES):
        compute_weights = Solver.compute_weights

        def moments(self, indices, weights, start, stop):
            assert len(indices) == 0
            return super().moments(indices, weights, start, stop)

    solver = Blind(SNES.Options(population=12), DIMENSION)
    solver.start(np.ones(DIMENSION))
    solver.table = TABLE
    moments = sum_moments(solver, solver.ask(), Results.of(np.arange(12.0)), solver.population_indices(0, 0), Serial())
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
