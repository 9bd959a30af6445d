"""CR-FM-NES in moments form against the package of its author, on the same normals."""

import numpy as np
import pytest

from mpies.solvers.base import Results
from mpies.solvers.cr_fm_nes import CRFMNES
from mpies.solvers.moments import moments

crfmnes_alg = pytest.importorskip("crfmnes.alg", reason="crfmnes is not installed")


def ellipsoid(x):
    x = x.ravel()
    return float(np.sum(1e4 ** (np.arange(len(x)) / (len(x) - 1)) * (x - 0.3) ** 2))


@pytest.mark.parametrize("dimension", [20, 80])
def test_each_generation_agrees_with_the_package_to_1e_10(dimension, monkeypatch):
    count, random = 16, np.random.default_rng(4)
    solver = CRFMNES(CRFMNES.Options(population=count, sigma=0.5), dimension, dtype=np.float64)
    solver.start(np.full(dimension, 2.0))
    package = crfmnes_alg.CRFMNES(
        dimension, ellipsoid, np.full((dimension, 1), 2.0), 0.5, count, v=solver.v[:, None].copy()
    )
    for _ in range(150):
        half = random.standard_normal((count // 2, dimension))
        monkeypatch.setattr(np.random, "randn", lambda *_, half=half: half.T.copy())
        package.one_iteration()

        solver.table = half.reshape(-1)
        indices = dimension * np.arange(count // 2)
        proposal, members, payload = solver.ask(), np.empty((count, dimension)), []
        for member in range(count):
            payload.append(solver.write(proposal, indices, member, members[member]))
        results = Results.of([-ellipsoid(x) for x in members], payload)
        solver.tell(proposal, results, moments(solver.table, indices, solver.compute_weights(results, proposal), 0, dimension))

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
        # both go on from the same point: what is compared is one generation, not the growth of rounding
        solver.mean, solver.deviation, solver.v = package.m.flatten(), package.D.flatten(), package.v.flatten()
        solver.path_sigma, solver.path_c, solver.sigma = package.ps.flatten(), package.pc.flatten(), package.sigma
