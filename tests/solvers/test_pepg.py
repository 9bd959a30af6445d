"""PEPG and PGPE, the same method as Ha and as Toklu et al. have it."""

import numpy as np
import pytest

from mpies.solvers.base import Results
from mpies.solvers.pepg import PEPG
from mpies.solvers.pgpe import PGPE
from tests.solvers.single_generation import FunctionLoop, begin, tell_once, with_signs

D, N = 6, 8
PAIRS = np.random.default_rng(5).standard_normal((N // 2, D))
RETURNS = np.array([3.0, 1.0, 4.0, 1.5, 9.0, 2.0, 6.0, 5.0])


def test_elites_of_one_parameter_by_hand():
    options = PEPG.Options(
        population=4, elite_ratio=0.5, rank_fitness=False, weight_decay=0, sigma_init=0.5, sigma_decay=0.9
    )
    solver = PEPG(options, 1, dtype=np.float64)
    members = tell_once(solver, [[2.0], [1.0]], [5, 1, 0, 2])
    np.testing.assert_array_equal(members.ravel(), [2, 0, 1.5, 0.5])
    # the elites are 2 and 0.5
    assert solver.mean[0] == pytest.approx(1.25)
    # mean 2, deviation sqrt(3.5): the pairs have (3 - 2) and (1 - 2), over 4 sqrt(3.5), times z^2 of 4 and 1
    change = 0.2 * 0.5 * (4 - 1) / (4 * np.sqrt(3.5))
    assert solver.sigma[0] == pytest.approx(0.9 * (0.5 + change))


@pytest.mark.parametrize("value", [0.1, -1.3, 1 / 3])
def test_equal_returns_leave_all_sigmas_alike(value):
    solver = begin(PEPG, D, 0, population=20, rank_fitness=False, weight_decay=0)
    loop = FunctionLoop(solver, lambda x: value)
    for _ in range(5):
        loop.run_generation()
    np.testing.assert_array_equal(solver.mean, 0)
    assert np.ptp(solver.sigma) == 0


def test_without_an_average_baseline_the_mean_is_played_and_is_the_baseline():
    options = PEPG.Options(population=N, elite_ratio=0.25, average_baseline=False, rank_fitness=False, weight_decay=0.1)
    solver = PEPG(options, D, dtype=np.float64)
    members, z = tell_once(solver, PAIRS, np.r_[2.5, RETURNS]), with_signs(PAIRS)
    np.testing.assert_array_equal(members[0], np.ones(D))
    np.testing.assert_allclose(solver.mean, 1 + 0.1 * (z[4] + z[6]) / 2, rtol=1e-6)
    fitness = RETURNS - 0.1 * np.mean(members[1:] ** 2, axis=1)
    plus, minus, baseline = fitness[0::2], fitness[1::2], 2.5 - 0.1
    change = 0.2 * ((plus + minus) / 2 - baseline) @ (0.1 * (PAIRS**2 - 1)) / (N * fitness.std())
    np.testing.assert_allclose(solver.sigma, (0.1 + np.clip(change, -0.02, 0.02)) * 0.999, rtol=1e-6)


@pytest.mark.parametrize(("forget", "expected"), [(True, [7, 2]), (False, [7, 7])])
def test_the_best_return_is_that_of_the_generation_or_of_the_run(forget, expected):
    solver, best = begin(PEPG, 1, 0, population=2, forget_best=forget), []
    for returns in ([7, np.nan], [1, 2]):
        solver.tell(solver.ask(), Results.of(returns, [[0.0], [0.0]]), np.zeros((2, 1), np.float32))
        best.append(solver.report()["best_return"])
    assert best == expected


def test_a_share_of_elites_below_one_member_follows_the_gradient():
    means, predicted = [], []
    for ratio in (0.0, 0.9 / N):
        solver = PEPG(PEPG.Options(population=N, elite_ratio=ratio), D)
        tell_once(solver, PAIRS, RETURNS)
        means.append(solver.mean)
        predicted.append(solver.predict_mean())
    np.testing.assert_array_equal(*means)
    np.testing.assert_array_equal(*predicted)


def test_sigma_of_pgpe_changes_by_a_bounded_share():
    solver = PGPE(PGPE.Options(population=4, sigma=0.5, fitness="raw"), 1, dtype=np.float64)
    tell_once(solver, [[2.0], [1.0]], [500, 100, 0, 200])
    assert solver.sigma[0] == pytest.approx(0.6)  # by 20 %


def test_the_first_sigma_of_pgpe_is_given_or_has_a_radius_of_fifteen_clipup_steps():
    clipup = PGPE.Options(optimizer={"kind": "clipup", "max_speed": 0.2})
    assert clipup.first_sigma(400) * np.sqrt(400) == pytest.approx(15 * 0.2)
    assert PGPE.Options(optimizer={"kind": "adam"}).first_sigma(400) == 0.1
    assert PGPE.Options(sigma=0.7).first_sigma(400) == 0.7
    assert "sigma" not in PGPE.Options(sigma=0.7).computed_defaults(400)
    assert clipup.computed_defaults(400)["sigma"] == clipup.first_sigma(400)


def test_members_of_pgpe_are_drawn_until_the_interactions_are_spent():
    options = PGPE.Options(population=10, episodes=2, interactions=100, population_max=35)
    assert not options.is_complete(20, 99)
    assert options.is_complete(20, 100)
    assert not options.is_complete(50, 50)  # 25 members: ten more are 35
    assert options.is_complete(52, 50)
    without_end = PGPE.Options(population=10, interactions=100)
    assert not without_end.is_complete(10_000, 99) and without_end.is_complete(10_000, 100)


@pytest.mark.parametrize("returns", [[0.1, 0.7, 0.3, 0.9], [1e7, 3, 1e5, 0.1], [1 / 3, 2 / 3, 1 / 7, 5]])
def test_noise_of_length_one_keeps_sigma_of_pgpe_to_the_bit(returns):
    """z^2 - 1 is 0, whatever the weights add up to by rounding."""
    solver = PGPE(PGPE.Options(population=4, sigma=0.5, fitness="raw"), 1)
    tell_once(solver, [[1.0], [-1.0]], returns)
    assert solver.sigma[0] == np.float32(0.5)
