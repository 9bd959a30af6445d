"""Single solvers against their equations, written out over all members in float64."""

import numpy as np
import pytest

from mpies.solvers import noise
from mpies.solvers.ars import ARS
from mpies.solvers.base import Results
from mpies.solvers.deep_ga import DeepGA
from mpies.solvers.loop import SolverLoop, noise_table
from mpies.solvers.moments import moments
from mpies.solvers.novelty_es import NoveltyES, novelty
from mpies.solvers.pepg import PEPG
from mpies.solvers.pgpe import PGPE
from mpies.solvers.sep_cma import SepCMA
from mpies.solvers.snes import SNES, utilities

D, N = 6, 8


def told_once(solver, returns, steps=None):
    """One generation of `solver` from 1 with these returns.  Returns the noise (n, d), signs applied, and members."""
    solver.start(np.ones(D))
    rows = solver.options.noise_rows(D)
    z = np.random.default_rng(5).standard_normal((rows, D))
    solver.table, indices, proposal = z.ravel(), D * np.arange(rows), solver.ask()
    members = np.empty((solver.options.members(D), D))
    payload = [solver.write(proposal, indices, member, members[member]) for member in range(len(members))]
    results = Results.of(returns, payload)
    if steps is not None:
        object.__setattr__(results, "steps", np.asarray(steps))
    solver.tell(proposal, results, moments(solver.table, indices, solver.compute_weights(results, proposal), 0, D))
    if solver.options.antithetic:
        z = np.stack([z, -z], axis=1).reshape(-1, D)
    return z, members


RETURNS = np.array([3.0, 1.0, 4.0, 1.5, 9.0, 2.0, 6.0, 5.0])
RANKS = np.array([3, 0, 4, 1, 7, 2, 6, 5]) / 7 - 0.5


def test_pepg_follows_estool():
    options = PEPG.Options(population=N, weight_decay=0.01, sigma_init=0.2, sigma_decay=0.99)
    solver = PEPG(options, D, dtype=np.float64)
    z, members = told_once(solver, RETURNS)
    eps, fitness = 0.2 * z[0::2], RANKS - 0.01 * np.mean(members**2, axis=1)
    plus, minus = fitness[0::2], fitness[1::2]
    gradient = (plus - minus) @ eps
    expected = 1 + 0.01 * np.sign(gradient)  # Adam's first step
    np.testing.assert_allclose(solver.mean, expected, rtol=1e-5)
    s = (eps**2 - 0.04) / 0.2
    change = 0.2 * ((plus + minus) / 2 - fitness.mean()) @ s / N
    expected = (0.2 + np.clip(change, -0.04, 0.04)) * 0.99
    np.testing.assert_allclose(solver.sigma, expected, rtol=1e-6)


def test_pepg_with_elites_moves_to_their_average_and_compares_with_the_mean():
    options = PEPG.Options(population=N, elite_ratio=0.25, average_baseline=False, rank_fitness=False, weight_decay=0.1)
    solver = PEPG(options, D, dtype=np.float64)
    z, members = told_once(solver, np.r_[2.5, RETURNS])
    np.testing.assert_array_equal(members[0], np.ones(D))
    np.testing.assert_allclose(solver.mean, 1 + 0.1 * (z[4] + z[6]) / 2, rtol=1e-6)
    fitness = RETURNS - 0.1 * np.mean(members[1:] ** 2, axis=1)
    plus, minus, baseline = fitness[0::2], fitness[1::2], 2.5 - 0.1
    change = 0.2 * ((plus + minus) / 2 - baseline) @ (0.1 * (z[0::2] ** 2 - 1)) / (N * fitness.std())
    np.testing.assert_allclose(solver.sigma, (0.1 + np.clip(change, -0.02, 0.02)) * 0.999, rtol=1e-6)


def test_pgpe_follows_the_paper():
    solver = PGPE(PGPE.Options(population=N, sigma=0.3), D, dtype=np.float64)
    z, _ = told_once(solver, RETURNS)
    eps = 0.3 * z[0::2]
    gradient = (RANKS[0::2] - RANKS[1::2]) @ eps / N
    np.testing.assert_allclose(solver.mean, 1 + 0.1125 * gradient / np.linalg.norm(gradient), rtol=1e-6)
    change = 0.1 * (RANKS[0::2] + RANKS[1::2]) @ ((eps**2 - 0.09) / 0.3) / N
    np.testing.assert_allclose(solver.sigma, 0.3 + np.clip(change, -0.06, 0.06), rtol=1e-5)


def test_pgpe_starts_with_a_radius_of_fifteen_steps():
    options = PGPE.Options(optimizer={"kind": "clipup", "max_speed": 0.2})
    assert np.isclose(options.first_sigma(400) * np.sqrt(400), 15 * 0.2)


def test_pgpe_draws_members_until_the_interactions_are_spent():
    options = PGPE.Options(population=10, episodes=2, interactions=100, population_max=35)
    assert not options.is_complete(20, 99)
    assert options.is_complete(20, 100)
    assert options.is_complete(60, 50)  # 30 members: ten more would be too many


def test_ars_uses_the_best_directions_and_subtracts_the_bonus():
    solver = ARS(ARS.Options(population=N, top=2, learning_rate=0.5, alive_bonus=0.5), D, dtype=np.float64)
    steps = np.array([2, 2, 2, 2, 10, 2, 2, 2])
    z, _ = told_once(solver, RETURNS, steps)
    f = RETURNS - 0.5 * steps  # 2 0 3 .5 4 1 5 4: the pairs (4, 1) and (5, 4) are used
    expected = 1 + 0.5 / (2 * np.std([4, 1, 5, 4])) * ((f[4] - f[5]) * z[4] + (f[6] - f[7]) * z[6])
    np.testing.assert_allclose(solver.mean, expected, rtol=1e-6)


def test_snes_follows_the_paper():
    solver = SNES(SNES.Options(population=N, sigma=0.5), D, dtype=np.float64)
    z, _ = told_once(solver, RETURNS)
    u = np.empty(N)
    u[np.argsort(-RETURNS)] = utilities(N)
    np.testing.assert_allclose(solver.mean, 1 + 0.5 * u @ z, rtol=1e-6)
    eta = (3 + np.log(D)) / (5 * np.sqrt(D))
    np.testing.assert_allclose(solver.sigma, 0.5 * np.exp(eta / 2 * u @ (z**2 - 1)), rtol=1e-6)


def test_utilities_sum_to_zero_and_fall():
    u = utilities(10)
    assert abs(u.sum()) < 1e-12 and (np.diff(u) <= 0).all() and u[-1] == -0.1


def test_sep_cma_is_the_diagonal_of_cma():
    """Against the equations with a full C whose off-diagonal is thrown away."""
    solver = SepCMA(SepCMA.Options(population=N, sigma=0.5), D, dtype=np.float64)
    _, members = told_once(solver, RETURNS)
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


def sphere(x):
    return -float(np.sum(np.square(x, dtype=np.float64)))


def test_deep_ga_keeps_its_elite_to_the_bit_through_snapshots():
    table = noise_table(1 << 14)
    options = DeepGA.Options(population=12, parents=3, sigma=0.1, initial_sigma=0.5, snapshot=3)
    solver = DeepGA(options, D, seed=2)
    solver.start(np.ones(D))
    seen, loop = [], SolverLoop(solver, lambda x: seen.append(x.copy()) or sphere(x), table)
    sent = 0
    for generation in range(12):
        sent += solver.ask().rows is not None
        seen.clear()
        before = solver.mean.copy()
        picks, indices = solver.picks, noise.sample_indices(2, generation, 0, 12, len(table), D)
        results = loop.generation()
        assert np.array_equal(seen[0], before)
        best = int(np.argmax(results.returns))
        assert np.array_equal(solver.mean, seen[best])
        if generation == 0:
            np.testing.assert_allclose(seen[5], 1 + 0.5 * table[indices[5] : indices[5] + D], rtol=1e-6)
            assert picks.max() < 3
        assert results.returns.max() >= sphere(before)
    assert 2 <= sent <= 5  # chains travel in most generations, parameters in few


def test_novelty_is_the_mean_distance_to_the_nearest():
    archive = np.array([[0.0, 0.0], [3.0, 4.0], [30.0, 40.0]])
    np.testing.assert_allclose(novelty([[0.0, 0.0], [3.0, 4.0]], archive, 2), [2.5, 2.5])
    np.testing.assert_allclose(novelty([[0.0, 0.0]], archive[:0], 2), [0.0])


def run_novelty(variant, generations, value, **options):
    options = {
        "population": 20,
        "sigma": 0.1,
        "means": 2,
        "optimizer": {"kind": "adam", "learning_rate": 0.05},
    } | options
    solver = NoveltyES(NoveltyES.Options(variant=variant, weight_decay=0.0, **options), D, seed=2)
    solver.start(np.zeros(D))
    loop = SolverLoop(solver, value, noise_table(1 << 14), behaviour=lambda x: x[:2])
    for _ in range(generations):
        loop.generation()
    return solver


def test_novelty_search_spreads_without_any_return():
    solver = run_novelty("ns", 120, lambda x: 0.0)
    assert solver.past.shape == (120, 2)
    assert np.abs(solver.past).max() > 1.0  # it began at 0 with steps of 0.05


def test_the_archive_drops_its_oldest():
    assert run_novelty("ns", 30, lambda x: 0.0, archive=7).past.shape == (7, 2)


def test_nsra_turns_to_novelty_when_the_return_stalls():
    assert run_novelty("nsra", 30, lambda x: 0.0, patience=5).share == pytest.approx(1 - 0.05 * 5)
    assert run_novelty("nsra", 30, sphere, patience=5).share > 0.7
