"""pycma behind the interface: restarts, the sign of the weight decay, the memory it takes."""

import cma
import numpy as np
import pytest

from mpies.solvers.adapters.from_pycma import CMAES
from mpies.solvers.base import Results
from tests.solvers.single_generation import FunctionLoop, begin, sphere

D = 5


def begin_cma(dimension=D, **options):
    solver = begin(CMAES, dimension, seed=4, population=8, sigma=0.5, **options)
    return solver, FunctionLoop(solver, sphere)


@pytest.mark.parametrize("restarts", ["ipop", "bipop"])
def test_restarts_keep_the_best_mean_and_go_on_bit_for_bit(restarts):
    solver, loop = begin_cma(2, restarts=restarts)
    values = []
    for _ in range(170):
        loop.run_generation()
        values.append(sphere(solver.mean))
    assert solver.report()["restarts"] >= 1
    assert len(loop.rows) == 8  # twice the population is evaluated in two generations
    assert min(values[50:]) > -1e-6  # the wide samples of a new run do not replace the result of the last one
    again = CMAES(solver.options, 2, seed=4)
    again.restore(solver.state())
    resumed = FunctionLoop(again, sphere)
    for _ in range(40):
        one, other = loop.run_generation(), resumed.run_generation()
        assert np.array_equal(one.returns, other.returns)
        assert np.array_equal(solver.mean, again.mean)


@pytest.mark.parametrize("restarts", ["ipop", "bipop"])
def test_the_mean_of_the_best_finished_run_is_kept(restarts, monkeypatch):
    """Each run of pycma ends after one of its generations; the second is worse than the first, the third better."""
    monkeypatch.setattr(cma.CMAEvolutionStrategy, "stop", lambda self: {"test": 1})
    solver, _ = begin_cma(restarts=restarts)
    ended, restart = [], solver._restart
    solver._restart = lambda: ended.append(solver.strategy.mean.copy()) or restart()
    means = []
    for returns in [5.0, 0.0, 0.0, 9.0, 9.0] if restarts == "ipop" else [5.0, 0.0, 9.0]:
        solver.tell(solver.ask(), Results.of(returns + np.arange(8) / 10), np.zeros((0, D), np.float32))
        means.append(solver.mean)
    assert len(ended) >= 2
    np.testing.assert_allclose(means[0], ended[0], rtol=1e-6)
    np.testing.assert_allclose(means[2], ended[0], rtol=1e-6)


@pytest.mark.parametrize(("mean", "sigma"), [(0.0, 0.1), (-0.2, 0.5), (0.4, 1.0), (0.04, 0.1)])
def test_without_a_sigma_the_first_step_is_a_multiple_of_the_first_parameters(mean, sigma):
    solver = begin(CMAES, D, mean, population=8, sigma=None)
    assert solver.strategy.sigma0 == pytest.approx(sigma)
    solver._restart()
    assert solver.strategy.sigma0 == pytest.approx(sigma)


def test_the_mean_may_be_a_running_average_which_changes_no_member():
    (newest, one), (averaged, other) = begin_cma(), begin_cma(average=0.25)
    expected = np.ones(D)
    for _ in range(5):
        assert np.array_equal(one.run_generation().returns, other.run_generation().returns)
        expected = 0.75 * expected + 0.25 * newest.mean
        np.testing.assert_allclose(averaged.mean, expected, rtol=1e-6)
    again = CMAES(averaged.options, D, seed=4)
    again.restore(averaged.state())
    assert np.array_equal(again.mean, averaged.mean)


@pytest.mark.parametrize("covariance", ["full", "vd", "vkd"])
def test_the_sigma_that_is_reported_is_of_the_size_of_the_members_noise(covariance):
    solver, loop = begin_cma(covariance=covariance)
    for _ in range(150):
        loop.run_generation()
    assert solver.report()["sigma"] < 1e-3
    assert 0.01 < np.std(loop.ask() - solver.mean) / solver.report()["sigma"] < 100


def test_weight_decay_is_a_cost_per_mean_squared_parameter():
    """It pulls towards zero; estool's CMA-ES has the sign wrong."""
    solver, _ = begin_cma(weight_decay=0.5)
    proposal, costs, returns = solver.ask(), [], np.arange(8.0)
    solver.strategy.tell = lambda candidates, told: costs.extend(told)
    solver.tell(proposal, Results.of(returns), np.zeros((0, D), np.float32))
    np.testing.assert_allclose(costs, -returns + 0.5 * np.mean(proposal.rows**2, axis=1), rtol=1e-6)


def test_full_covariance_is_refused_where_it_cannot_fit():
    refusal = CMAES.Options().refusal(20_000)
    assert "16.0 GB for 20,000 parameters" in refusal and "diagonal" in refusal and "cr_fm_nes" in refusal
    assert CMAES.Options().refusal(5_000) == ""
    assert CMAES.Options(covariance="diagonal").refusal(10**6) == ""
    assert CMAES.Options(memory_limit=20).refusal(20_000) == ""
    assert CMAES.Options(memory_limit=CMAES.Options().memory(20_000) / 1e9).refusal(20_000) == ""
