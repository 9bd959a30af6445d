import numpy as np
import pytest

from mpies.solvers.base import Gaussian, Proposal, Results, Solver
from mpies.solvers.options import Population
from mpies.solvers.snes import SNES


def test_results_of_returns_alone():
    results = Results.of([2, np.nan, -3])
    np.testing.assert_array_equal(results.sign_returns, [1, np.nan, -1])
    np.testing.assert_array_equal(results.steps, [1, 1, 1])
    assert results.payload.shape == results.behaviours.shape == (3, 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[1.0, 2.0]],), "returns must be a vector"),
        (([1.0, 2.0], [[1.0]]), r"payload has shape \(1, 1\), but there are 2 returns"),
        (([1.0, 2.0], [1.0, 2.0]), r"payload has shape \(2,\), but there are 2 returns"),
        (([1.0, 2.0], None, [[1.0]] * 3), r"behaviours has shape \(3, 1\), but there are 2 returns"),
    ],
)
def test_results_of_other_shapes_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Results.of(*arguments)


def test_a_proposal_is_rebuilt_from_its_vectors_and_rows():
    proposal = Gaussian(np.zeros(3), np.ones(1), rows=np.zeros((2, 3)))
    mean, scale = proposal.vectors()
    assert mean is proposal.mean and scale is proposal.scale
    assert Gaussian(*proposal.vectors()).rows is None


def test_a_proposal_without_a_scale_needs_a_write_of_its_own():
    class Mine(SNES):
        def propose(self):
            return Proposal(self.mean)

    solver = Mine(SNES.Options(), 2)
    solver.start([0.0, 0.0])
    solver.table = np.zeros(2, np.float32)
    with pytest.raises(TypeError, match="Mine must define write: Proposal is not a Gaussian"):
        solver.write(solver.ask(), np.zeros(12, np.int64), 0, np.empty(2))


def test_a_solver_without_its_table_says_so():
    solver = SNES(SNES.Options(), 20)
    with pytest.raises(ValueError, match="a table of 0 normals is smaller than one member of 20 parameters"):
        solver.population_indices(0, 0)


def test_numbers_arrays_and_optimizers_survive_a_restart():
    class Counter:
        def __init__(self):
            self.count = np.zeros(2)

        def state(self):
            return {"count": self.count}

        def restore(self, state):
            self.count = state["count"]

    class Mine(Solver):
        Options = Population
        state_fields = ("mean", "number", "counter")

        def begin(self):
            self.number, self.counter = 0.5, Counter()

        def propose(self):
            return Gaussian(self.mean, np.ones(1))

        def update(self, proposal, results, moments):
            self.number *= 2
            self.counter.count += np.array([1, 2])

    solver, other = Mine(Population(population=2), 1), Mine(Population(population=2), 1)
    solver.start([3.0])
    solver.ask()
    solver.tell(solver.ask(), Results.of([1, 2]), np.zeros((0, 1)))
    state = solver.state()
    assert state.keys() == {"generation", "mean", "number", "counter/count"}
    other.restore(state)
    assert (other.generation, other.mean, other.number) == (1, 3.0, 1.0)
    assert type(other.number) is float
    np.testing.assert_array_equal(other.counter.count, [1, 2])
