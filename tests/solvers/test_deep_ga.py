import numpy as np

from mpies.solvers.deep_ga import DeepGA
from mpies.solvers.sampling.noise import build_table, sample_indices
from tests.solvers.single_generation import FunctionLoop

D = 6


def sphere(x):
    return -float(np.sum(np.square(x, dtype=np.float64)))


def test_the_elite_is_kept_to_the_bit_through_snapshots():
    table = build_table(1 << 14)
    options = DeepGA.Options(population=12, parents=3, sigma=0.1, initial_sigma=0.5, snapshot=3)
    solver = DeepGA(options, D, seed=2)
    solver.start(np.ones(D))
    members, loop = [], FunctionLoop(solver, lambda x: members.append(x.copy()) or sphere(x), table)
    sent = 0
    for generation in range(12):
        sent += solver.ask().rows is not None
        members.clear()
        elite, picks = solver.mean.copy(), solver.picks
        indices = sample_indices(2, generation, 0, 12, len(table), D)
        results = loop.run_generation()
        assert np.array_equal(members[0], elite)
        assert np.array_equal(solver.mean, members[int(np.argmax(results.returns))])
        if generation == 0:
            np.testing.assert_allclose(members[5], 1 + 0.5 * table[indices[5] : indices[5] + D], rtol=1e-6)
            assert picks.max() < 3
        assert results.returns.max() >= sphere(elite)
    assert 2 <= sent <= 5  # chains are sent in most generations, parameters in few
