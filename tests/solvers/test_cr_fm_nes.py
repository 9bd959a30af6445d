"""CR-FM-NES in moments form against the package of its author, on the same normals."""

import numpy as np
import pytest

from mpies.solvers.base import Results
from mpies.solvers.cr_fm_nes import CRFMNES, distance_base
from mpies.solvers.sum_moments import sum_moments

crfmnes_alg = pytest.importorskip("crfmnes.alg", reason="crfmnes is not installed")


def ellipsoid(x):
    x = x.ravel()
    return float(np.sum(1e4 ** (np.arange(len(x)) / (len(x) - 1)) * (x - 0.3) ** 2))


def partly_infeasible(x):
    """Most members fail at first.  The package takes inf for a member that failed."""
    return np.inf if x.ravel()[0] > 1.8 else ellipsoid(x)


@pytest.mark.parametrize("cost", [ellipsoid, partly_infeasible])
@pytest.mark.parametrize("dimension", [20, 80])
def test_each_generation_agrees_with_the_package_to_1e_10(dimension, cost, monkeypatch):
    count, random = 16, np.random.default_rng(4)
    solver = CRFMNES(CRFMNES.Options(population=count, sigma=0.5), dimension, dtype=np.float64)
    solver.start(np.full(dimension, 2.0))
    package = crfmnes_alg.CRFMNES(dimension, cost, np.full((dimension, 1), 2.0), 0.5, count, v=solver.v[:, None].copy())
    failed = 0
    for _ in range(150):
        half = random.standard_normal((count // 2, dimension))
        monkeypatch.setattr(np.random, "randn", lambda *_, half=half: half.T.copy())
        package.one_iteration()

        solver.table = half.reshape(-1)
        indices = dimension * np.arange(count // 2)
        proposal, members = solver.ask(), np.empty((count, dimension))
        payload = [solver.write(proposal, indices, number, member) for number, member in enumerate(members)]
        costs = np.array([cost(x) for x in members])
        failed += np.isinf(costs).sum()
        results = Results.of(np.where(np.isinf(costs), np.nan, -costs), payload)
        solver.tell(proposal, results, sum_moments(solver, proposal, results, indices))

        for ours, theirs in [
            (solver.mean, package.m),
            (solver.deviation, package.D),
            (solver.v, package.v),
            (solver.path_sigma, package.ps),
            (solver.path_c, package.pc),
            (solver.sigma, package.sigma),
        ]:
            theirs = np.ravel(theirs)
            assert np.max(np.abs(np.ravel(ours) - theirs)) <= 1e-10 * max(1, np.max(np.abs(theirs)))
        # Both go on from the same state: what is compared is one generation, not how rounding errors grow.
        solver.mean, solver.deviation, solver.v = package.m.flatten(), package.D.flatten(), package.v.flatten()
        solver.path_sigma, solver.path_c, solver.sigma = package.ps.flatten(), package.pc.flatten(), package.sigma
    assert (failed > 0) == (cost is partly_infeasible)


@pytest.mark.parametrize("dimension", [5, 100, 10_000])
def test_the_distance_base_is_the_root_of_its_equation(dimension):
    h = distance_base(dimension)
    assert (1 + h**2) * np.exp(h**2 / 2) / 0.24 == pytest.approx(10 + dimension)
    assert h == pytest.approx(crfmnes_alg.get_h_inv(dimension))
