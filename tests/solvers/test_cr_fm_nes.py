"""CR-FM-NES in moments form against the package of its author, on the same normals."""

import numpy as np
import pytest

from mpies.solvers.cr_fm_nes import CRFMNES, distance_base
from mpies.solvers.snes import utilities
from tests.solvers.single_generation import tell

crfmnes_alg = pytest.importorskip("crfmnes.alg", reason="crfmnes is not installed")


def ellipsoid(x):
    x = x.ravel()
    return float(np.sum(1e4 ** (np.arange(len(x)) / (len(x) - 1)) * (x - 0.3) ** 2))


def partly_infeasible(x):
    """Most members fail at first.  The package takes inf for a member that failed."""
    return np.inf if x.ravel()[0] > 1.8 else ellipsoid(x)


def begin(dimension, count=16, cost=ellipsoid):
    """The solver and the package, both at the beginning."""
    solver = CRFMNES(CRFMNES.Options(population=count, sigma=0.5), dimension, dtype=np.float64)
    solver.start(np.full(dimension, 2.0))
    start = np.full((dimension, 1), 2.0)
    return solver, crfmnes_alg.CRFMNES(dimension, cost, start, 0.5, count, v=solver.v[:, None].copy())


def compare_generation(solver, package, half, cost, monkeypatch):
    """One generation of both on these normals (n / 2, d).  Returns the number of members that failed."""
    monkeypatch.setattr(np.random, "randn", lambda *_: half.T.copy())
    package.one_iteration()
    returns = []

    def evaluate(members):
        costs = np.array([cost(x) for x in members])
        returns[:] = np.where(np.isinf(costs), np.nan, -costs)
        return returns

    tell(solver, half, evaluate)
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
    return np.isnan(returns).sum()


@pytest.mark.parametrize("cost", [ellipsoid, partly_infeasible])
@pytest.mark.parametrize("dimension", [20, 80])
def test_each_generation_agrees_with_the_package_to_1e_10(dimension, cost, monkeypatch):
    random = np.random.default_rng(4)
    solver, package = begin(dimension, cost=cost)
    failed = 0
    for _ in range(60):
        failed += compare_generation(solver, package, random.standard_normal((8, dimension)), cost, monkeypatch)
        # Both go on from the same state: what is compared is one generation, not how rounding errors grow.
        solver.mean, solver.deviation, solver.v = package.m.flatten(), package.D.flatten(), package.v.flatten()
        solver.path_sigma, solver.path_c, solver.sigma = package.ps.flatten(), package.pc.flatten(), package.sigma
    assert (failed > 0) == (cost is partly_infeasible)


@pytest.mark.parametrize("length", [0.09, 0.0999, 0.1001, 0.5, 0.9999, 1.0001, 2])
def test_the_length_of_the_path_tells_moving_from_stagnating_and_converging(length, monkeypatch):
    """As in the package; length: of the evolution path after the generation, in units of what is expected."""
    solver, package = begin(20)
    half = np.random.default_rng(4).standard_normal((8, 20))
    probe, _ = begin(20)
    tell(probe, half, lambda members: [-ellipsoid(x) for x in members])
    weights = utilities(16) + 1 / 16  # (1 - c_sigma) path + what this generation adds; both begin at 0
    mu_eff = 1 / np.sum(weights**2)
    keep = 1 - (mu_eff + 2) / (20 + mu_eff + 5)
    wanted = np.full(20, length * package.chiN / np.sqrt(20))
    solver.path_sigma = (wanted - probe.path_sigma) / keep
    package.ps = solver.path_sigma[:, None].copy()
    compare_generation(solver, package, half, ellipsoid, monkeypatch)
    assert np.linalg.norm(solver.path_sigma) == pytest.approx(length * package.chiN, rel=1e-9)


@pytest.mark.parametrize("dimension", [5, 100, 10_000])
def test_the_distance_base_is_the_root_of_its_equation(dimension):
    h = distance_base(dimension)
    assert (1 + h**2) * np.exp(h**2 / 2) / 0.24 == pytest.approx(10 + dimension)
    assert h == pytest.approx(crfmnes_alg.get_h_inv(dimension))
