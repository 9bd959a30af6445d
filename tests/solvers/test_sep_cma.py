import numpy as np

from mpies.solvers.base import Results
from mpies.solvers.sep_cma import SepCMA

D = 6


def test_the_recombination_weights_of_four_members_by_hand():
    solver = SepCMA(SepCMA.Options(population=4), D, dtype=np.float64)
    solver.start(np.ones(D))
    weights = solver.compute_weights(Results.of([1.0, 4.0, np.nan, 3.0]), solver.ask())
    # ln 2.5 and ln 1.25 for the best two, scaled to a sum of 1
    expected = np.array([0, np.log(2.5), 0, np.log(1.25)]) / np.log(2.5 * 1.25)
    np.testing.assert_allclose(weights.linear, expected[None], rtol=1e-12)
    np.testing.assert_allclose(weights.square, expected[None], rtol=1e-12)
