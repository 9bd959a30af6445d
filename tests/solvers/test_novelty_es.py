import numpy as np
import pytest

from mpies.solvers.base import Results
from mpies.solvers.novelty_es import NoveltyES, Turn, novelty
from tests.solvers.single_generation import begin, tell

D = 6


def test_novelty_is_the_mean_distance_to_the_nearest():
    archive = np.array([[0.0, 0.0], [3.0, 4.0], [30.0, 40.0]])
    np.testing.assert_allclose(novelty([[0.0, 0.0], [3.0, 4.0]], archive, 2), [2.5, 2.5])
    np.testing.assert_allclose(novelty([[0.0, 0.0]], archive[:0], 2), [0.0])


@pytest.mark.parametrize("behaviour", [np.inf, -np.inf, np.nan])
def test_a_behaviour_that_is_not_finite_is_the_least_novel(behaviour):
    solver = NoveltyES(NoveltyES.Options(population=4), D, dtype=np.float64)
    proposal = Turn(np.zeros(D), np.ones(1), np.zeros(1, np.float32), np.zeros(1, np.float32))
    results = Results.of(np.zeros(5), behaviours=[[0], [1], [2], [3], [behaviour]])  # ranks -1/6, 1/6, 1/2, -1/2
    np.testing.assert_allclose(solver.compute_weights(results, proposal).linear, [[-1 / 3, 1]], atol=1e-7)


def test_means_of_which_none_is_novel_have_the_same_chance():
    solver, turns = begin(NoveltyES, 2, 0, seed=1, population=4, means=3, neighbours=2), []
    for generation in range(90):
        solver.generation = generation
        solver.behaviours, solver.past = np.ones((3, 1), np.float32), np.ones((9, 1), np.float32)
        turns.append(solver._turn())
    assert min(np.bincount(turns, minlength=3)) > 15


@pytest.mark.parametrize(("played", "behaviour"), [(np.nan, 1.0), (np.inf, 1.0), (5.0, np.inf), (5.0, np.nan)])
def test_a_mean_that_failed_is_neither_archived_nor_the_best(played, behaviour):
    """The step is taken all the same."""
    solver = begin(NoveltyES, 1, 0, population=2, means=1)
    tell(solver, [[1.0]], [2.0, 1.0, 0.0], behaviours=[[0.5], [1.0], [2.0]])
    tell(solver, [[1.0]], [played, 1.0, 0.0], behaviours=[[behaviour], [1.0], [2.0]])
    assert solver.past.tolist() == [[0.5]] and solver.behaviours.tolist() == [[0.5]]
    assert (solver.last.tolist(), solver.best, solver.share) == ([2.0], 2.0, 1.0)
    assert solver.mean[0] == solver.means[0, 0] > 0.03
