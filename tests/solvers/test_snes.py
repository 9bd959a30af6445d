import numpy as np
import pytest

from mpies.solvers.snes import SNES, utilities
from tests.solvers.single_generation import tell_once


def test_utilities_by_hand():
    # ln 2 and 0 for the ranks 1 and 2; scaled to a sum of 1, less 1/2
    np.testing.assert_allclose(utilities(2), [0.5, -0.5])
    # ln 3, ln 1.5, 0, 0 have the sum ln 4.5
    expected = np.array([np.log(3), np.log(1.5), 0, 0]) / np.log(4.5) - 0.25
    np.testing.assert_allclose(utilities(4), expected, atol=1e-15)


def test_utilities_sum_to_zero_and_fall():
    u = utilities(10)
    assert abs(u.sum()) < 1e-12 and (np.diff(u) <= 0).all() and u[-1] == -0.1


def test_one_parameter_by_hand():
    solver = SNES(SNES.Options(population=2, sigma=0.5), 1, dtype=np.float64)
    tell_once(solver, [[1.0], [-2.0]], [1, 3])  # utilities -0.5 and 0.5
    assert solver.mean[0] == pytest.approx(1 + 0.5 * (-0.5 * 1 + 0.5 * -2))
    eta = 3 / 5  # (3 + ln 1) / (5 sqrt 1)
    assert solver.sigma[0] == pytest.approx(0.5 * np.exp(eta / 2 * (-0.5 * 0 + 0.5 * 3)))  # z^2 - 1 is 0 and 3
