import numpy as np
import pytest
from pydantic import ValidationError

from mpies.solvers.ars import ARS
from tests.solvers.single_generation import tell_once, with_signs


def test_the_best_directions_are_used_and_the_bonus_is_subtracted():
    solver = ARS(ARS.Options(population=8, top=2, learning_rate=0.5, alive_bonus=0.5), 6, dtype=np.float64)
    pairs = np.random.default_rng(5).standard_normal((4, 6))
    returns, steps = np.array([3.0, 1.0, 4.0, 1.5, 9.0, 2.0, 6.0, 5.0]), np.array([2, 2, 2, 2, 10, 2, 2, 2])
    tell_once(solver, pairs, returns, steps)
    z, f = with_signs(pairs), returns - 0.5 * steps  # 2 0 3 .5 4 1 5 4: the pairs (4, 1) and (5, 4) are used
    expected = 1 + 0.5 / (2 * np.std([4, 1, 5, 4])) * ((f[4] - f[5]) * z[4] + (f[6] - f[7]) * z[6])
    np.testing.assert_allclose(solver.mean, expected, rtol=1e-6)


def test_equal_returns_move_nothing():
    solver = ARS(ARS.Options(population=4), 1)
    tell_once(solver, [[2.0], [1.0]], [3, 3, 3, 3])
    assert solver.mean[0] == 1


def test_more_directions_than_there_are_is_refused():
    with pytest.raises(ValidationError, match="top must be at most 2, the directions of population 4, but is 3"):
        ARS.Options(population=4, top=3)
