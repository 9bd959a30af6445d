import numpy as np
import pytest

from mpies.solvers.base import Proposal, Results
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


def test_a_proposal_without_a_scale_needs_a_write_of_its_own():
    class Mine(SNES):
        def propose(self):
            return Proposal(self.mean)

    solver = Mine(SNES.Options(), 2)
    solver.start([0.0, 0.0])
    solver.table = np.zeros(2, np.float32)
    with pytest.raises(TypeError, match="Mine must define write: Proposal is not a Gaussian"):
        solver.write(solver.ask(), np.zeros(12, np.int64), 0, np.empty(2))
