import numpy as np
import pytest
from pydantic import ValidationError

from mpies.solvers.deep_ga import DeepGA
from mpies.solvers.sampling.noise import build_table, sample_indices
from tests.solvers.single_generation import FunctionLoop, tell_once

D = 6


def sphere(x):
    return -float(np.sum(np.square(x, dtype=np.float64)))


def test_the_first_generation_by_hand():
    solver = DeepGA(DeepGA.Options(population=3, parents=2, sigma=0.5, initial_sigma=0.1, snapshot=2), 1)
    members = tell_once(solver, [[7.0], [1.0], [-2.0]], [0, 2, 5])
    np.testing.assert_allclose(members.ravel(), [1, 1.1, 0.8], rtol=1e-6)  # the elite is not mutated
    # The indices of the chains are those that the seed gives: the only place of a table of three normals is 0.
    np.testing.assert_array_equal(solver.chains, [[0, -1], [0, -1]])  # of the members 2 and 1
    np.testing.assert_allclose(solver.scales, [[0.1, 0], [0.1, 0]], rtol=1e-6)
    np.testing.assert_array_equal(solver.snapshots, [[1], [1]])
    assert solver.mean[0] == pytest.approx(1 + 0.1 * 7)
    assert solver.ask().sigma[0] == 0.5  # after the first generation


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


def test_more_parents_than_members_are_refused():
    with pytest.raises(ValidationError, match="parents must be at most the population, 4, but is 5"):
        DeepGA.Options(population=4, parents=5)
