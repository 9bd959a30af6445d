import numpy as np
import pytest

from mpies.solvers.base import Results
from mpies.solvers.sep_cma import SepCMA
from tests.solvers.single_generation import tell_once

D, N = 6, 8
RETURNS = np.array([3.0, 1.0, 4.0, 1.5, 9.0, 2.0, 6.0, 5.0])


def test_the_recombination_weights_of_four_members_by_hand():
    solver = SepCMA(SepCMA.Options(population=4), D, dtype=np.float64)
    solver.start(np.ones(D))
    weights = solver.compute_weights(Results.of([1.0, 4.0, np.nan, 3.0]), solver.ask())
    # ln 2.5 and ln 1.25 for the best two, scaled to a sum of 1
    expected = np.array([0, np.log(2.5), 0, np.log(1.25)]) / np.log(2.5 * 1.25)
    np.testing.assert_allclose(weights.linear, expected[None], rtol=1e-12)
    np.testing.assert_allclose(weights.square, expected[None], rtol=1e-12)


def test_one_generation_is_the_diagonal_of_cma():
    """Against the equations with a full C, of which only the diagonal is kept."""
    solver = SepCMA(SepCMA.Options(population=N, sigma=0.5), D, dtype=np.float64)
    members = tell_once(solver, np.random.default_rng(5).standard_normal((N, D)), RETURNS)
    order = np.argsort(-RETURNS)
    w = np.maximum(0, np.log(4.5) - np.log(np.arange(1, N + 1)))
    w /= w.sum()
    y = (members[order] - 1) / 0.5
    mu_eff = 1 / np.sum(w**2)
    c_c = (4 + mu_eff / D) / (D + 4 + 2 * mu_eff / D)
    c_1 = (D + 2) / 3 * 2 / ((D + 1.3) ** 2 + mu_eff)
    c_mu = (D + 2) / 3 * 2 * (mu_eff - 2 + 1 / mu_eff) / ((D + 2) ** 2 + mu_eff)
    path = np.sqrt(c_c * (2 - c_c) * mu_eff) * (w @ y)
    full = (1 - c_1 - c_mu) * np.eye(D) + c_1 * np.outer(path, path) + c_mu * (y.T * w) @ y
    np.testing.assert_allclose(solver.mean, 1 + 0.5 * w @ y, rtol=1e-6)
    np.testing.assert_allclose(solver.variance, np.diag(full), rtol=1e-6)

    c_sigma = (mu_eff + 2) / (D + mu_eff + 5)
    path_sigma = np.sqrt(c_sigma * (2 - c_sigma) * mu_eff) * (w @ y)
    np.testing.assert_allclose(solver.path_sigma, path_sigma, rtol=1e-6)
    damping = 1 + c_sigma  # mu_eff < D + 2
    expected_length = np.sqrt(D) * (1 - 1 / (4 * D) + 1 / (21 * D**2))
    growth = c_sigma / damping * (np.linalg.norm(path_sigma) / expected_length - 1)
    assert solver.sigma == pytest.approx(0.5 * np.exp(growth))


def test_a_long_path_stops_the_rank_one_update():
    """h_sigma = 0: the path of C only decays, and C keeps a little more of itself."""
    solver = SepCMA(SepCMA.Options(population=N, sigma=0.5), D, dtype=np.float64)
    z = np.ones((N, D)) * np.linspace(3.0, 4.0, N)[:, None]  # far from what normals would be
    tell_once(solver, z, RETURNS)
    np.testing.assert_array_equal(solver.path_c, np.zeros(D))
    assert solver.sigma > 0.5
