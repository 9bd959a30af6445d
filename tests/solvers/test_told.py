"""pycma and Nevergrad behind the interface: restarts, the sign of the weight decay, the memory they take."""

import numpy as np
import pytest

from mpies.solvers import find_solver
from mpies.solvers.base import Results
from mpies.solvers.from_pycma import CMAES
from mpies.solvers.loop import SolverLoop

D = 5


def begin(value, **options):
    solver = CMAES(CMAES.Options(population=8, sigma=0.5, **options), D, seed=4)
    solver.start(np.ones(D))
    return solver, SolverLoop(solver, value)


def sphere(x):
    return -float(np.sum(np.square(x, dtype=np.float64)))


def two_hills(x):
    """A broad low hill near the start and a higher one further off."""
    x = np.asarray(x, np.float64)
    return float(np.exp(-np.sum((x - 1) ** 2)) + 2 * np.exp(-np.sum((x + 1.5) ** 2) / 8))


@pytest.mark.parametrize("restarts", ["ipop", "bipop"])
def test_restarts_keep_the_best_mean_and_go_on_bit_for_bit(restarts):
    solver, loop = begin(sphere, restarts=restarts)
    found = []
    for _ in range(400 if restarts == "ipop" else 500):
        loop.generation()
        found.append(sphere(solver.mean))
    assert solver.report()["restarts"] >= 1
    assert len(loop.rows) == 8  # twice the population is played in two generations
    assert min(found[250:]) > -1e-6  # a new run's wide samples do not replace what the last one found
    again = CMAES(solver.options, D, seed=4)
    again.restore(solver.state())
    resumed = SolverLoop(again, sphere)
    for _ in range(40):
        one, other = loop.generation(), resumed.generation()
        assert np.array_equal(one.returns, other.returns)
        assert np.array_equal(solver.mean, again.mean)


def test_the_mean_is_reported_not_the_best_sample():
    solver, loop = begin(sphere)
    for _ in range(5):
        loop.generation()
    np.testing.assert_allclose(solver.mean, solver.strategy.mean, rtol=1e-6)


def test_weight_decay_pulls_towards_zero():
    """With equal returns, the members of the smallest norm must win (a peer had the sign wrong)."""
    solver, loop = begin(lambda x: 7.0, weight_decay=0.1)
    for _ in range(60):
        loop.generation()
    assert np.linalg.norm(solver.mean) < 0.1 * np.sqrt(D)


def test_full_covariance_is_refused_where_it_cannot_fit():
    said = CMAES.Options().refusal(20_000)
    assert "16.0 GB for 20,000 parameters" in said and "diagonal" in said and "cr_fm_nes" in said
    assert CMAES.Options().refusal(5_000) == ""
    assert CMAES.Options(covariance="diagonal").refusal(10**6) == ""
    assert CMAES.Options(memory_limit=20).refusal(20_000) == ""


def test_nevergrad_by_name():
    pytest.importorskip("nevergrad", reason="nevergrad is not installed")
    solver_class = find_solver("nevergrad:TBPSA")
    assert solver_class.Options().kind == "nevergrad:TBPSA"
    with pytest.raises(ValueError, match="such as TBPSA"):
        find_solver("nevergrad:TBSPA")


def test_replay_tells_what_was_told():
    solver, loop = begin(sphere)
    for _ in range(4):
        loop.generation()
    state = solver.state()
    assert state["told"].shape == (4, 8) and state["told"].dtype == np.float64
    assert not any(np.asarray(value).dtype == object for value in state.values())
    Results.of(state["told"][0])
