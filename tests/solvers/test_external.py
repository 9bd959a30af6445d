"""The base of external solvers, on an optimiser whose steps can be followed by hand."""

import random
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from mpies.core.errors import SolverProblem
from mpies.solvers import find_solver
from mpies.solvers.base import Results
from mpies.solvers.external import ExternalSolver, seeded_global_generators
from mpies.solvers.options import WholeCandidates
from tests.solvers.single_generation import begin


class Best(ExternalSolver):
    """Draws around the best candidate so far with NumPy's global generator, and remembers all costs."""

    Options = WholeCandidates

    def create_optimizer(self):
        self.best, self.lowest, self.costs = self.origin.astype(np.float64), np.inf, []

    def draw(self):
        return list(self.best + np.random.standard_normal((self.rows, self.dimension)) + random.random())

    def learn(self, candidates, costs):
        self.costs.append(costs)
        if costs.min() < self.lowest:
            self.best, self.lowest = candidates[int(np.argmin(costs))], costs.min()

    def recommend(self):
        return self.best


def begin_best():
    return begin(Best, 2, [1.0, 2.0], seed=4, population=3)


def tell(solver, returns):
    solver.tell(solver.ask(), Results.of(returns), np.zeros((0, 2), np.float32))


def test_members_are_the_candidates_and_the_best_becomes_the_mean():
    solver = begin_best()
    proposal = solver.ask()
    assert proposal.rows.shape == (3, 2) and proposal.rows.dtype == np.float32
    member = np.empty(2, np.float32)
    assert solver.write(proposal, solver.population_indices(0, 0), 1, member) == ()
    np.testing.assert_array_equal(member, proposal.rows[1])
    tell(solver, [4, 9, 5])
    np.testing.assert_array_equal(solver.mean, proposal.rows[1])


def test_the_global_generators_are_seeded_inside_and_untouched_outside_in_threads_too():
    def draw(generation):
        with seeded_global_generators(3, generation):
            first = np.random.random()
            time.sleep(0.01)  # another thread runs
            return first, np.random.random(), random.random()

    def states():
        return np.random.get_state()[1].tolist(), random.getstate()

    before = states()
    alone = [draw(generation) for generation in range(8)]
    assert len(set(alone)) == 8 and states() == before
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(draw, range(8))) == alone
    assert states() == before


@pytest.mark.parametrize(
    ("returns", "costs"),
    [
        ([4, 9, 5], [-4, -9, -5]),
        ([4, np.nan, 9], [-4, 2, -9]),  # 2 * 4 - 9 - 1 is -2
        ([7, 7, np.nan], [-7, -7, -6]),
        ([np.nan, np.nan, np.nan], [1e300, 1e300, 1e300]),
        ([np.nan, -np.inf, np.nan], [1e300, 1e300, 1e300]),
        ([4, -np.inf, 9], [-4, 1e300, -9]),
    ],
)
def test_costs_are_negative_returns_and_a_failed_member_costs_more_than_any_other(returns, costs):
    solver = begin_best()
    tell(solver, returns)
    np.testing.assert_array_equal(solver.costs, [costs])


@pytest.mark.parametrize("kind", ["nevergrad:DE", "cma_es"])
def test_of_a_generation_without_returns_nothing_is_kept_as_the_best(kind):
    """Real returns are negative: they must beat those that are missing."""
    if kind.startswith("nevergrad"):
        pytest.importorskip("nevergrad", reason="nevergrad is not installed")
    options = {"restarts": "ipop"} if kind == "cma_es" else {}
    solver = begin(find_solver(kind), 4, 5, seed=1, population=10, sigma=0.5, **options)

    def tell_distances(failed):
        """Tell returns of -100 minus the squared distance to 0; none where they failed."""
        rows = solver.ask().rows.astype(float)
        returns = np.full(10, np.nan) if failed else -100 - (rows * rows).sum(axis=1)
        solver.tell(solver.ask(), Results.of(returns), np.zeros((0, 4), np.float32))

    tell_distances(failed=True)
    for _ in range(150):
        tell_distances(failed=False)
    assert np.sum(solver.mean**2) < 0.05 * 100  # it began at 100
    tell_distances(failed=True)
    assert np.sum(solver.mean**2) < 0.05 * 100


@pytest.mark.parametrize("told", [[], [[4, 9, 5], [np.nan, 1, 2], [3, 10, 11]]])
def test_the_state_is_the_returns_and_restoring_tells_them_again(told):
    solver = begin_best()
    for returns in told:
        tell(solver, returns)
    state = {name: np.array(value) for name, value in solver.state().items()}
    assert state.keys() == {"generation", "mean", "origin", "told"}
    np.testing.assert_array_equal(state["told"], np.reshape(told, (-1, 3)))
    np.testing.assert_array_equal(state["origin"], [1, 2])
    again = Best(solver.options, 2, seed=4)
    again.restore(state)
    assert again.generation == len(told)
    np.testing.assert_array_equal(again.mean, solver.mean)
    np.testing.assert_array_equal(again.ask().rows, solver.ask().rows)
    if told:  # and where the package does not come to that mean again
        state["mean"][0] = np.nextafter(state["mean"][0], 9, dtype=state["mean"].dtype)
        with pytest.raises(SolverProblem, match="does not come from the recorded returns to the recorded mean; cont"):
            Best(solver.options, 2, seed=4).restore(state)
