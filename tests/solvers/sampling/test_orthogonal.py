"""Directions that are orthogonal to each other."""

import numpy as np
import pytest

from mpies.config.loading import make_config
from mpies.core.errors import ConfigError
from mpies.solvers import SOLVERS
from mpies.solvers.loop import SolverLoop
from mpies.solvers.moments import Weights, no_square
from mpies.solvers.openai_es import OpenAIESOptions
from mpies.solvers.sampling import orthogonal
from mpies.solvers.sampling.noise import build_table
from mpies.solvers.sampling.orthogonal import OrthogonalDirections, restore_directions
from mpies.training.task import Task

TABLE = build_table(1 << 16)
DIMENSION, POPULATION = 12, 30
INDICES = np.arange(POPULATION, dtype=np.int64) * 48


def layout():
    return OrthogonalDirections(DIMENSION, population=POPULATION)


def rows_of(directions, indices=INDICES):
    return np.stack([directions.row(TABLE, indices, number) for number in range(len(indices))])


def test_directions_are_orthogonal_in_groups_of_d_and_keep_their_lengths():
    rows = rows_of(layout())
    for group in (rows[:12], rows[12:24], rows[24:]):
        products = group.astype(np.float64) @ group.T
        np.testing.assert_allclose(products, np.diag(np.diag(products)), atol=1e-5)
    lengths = [np.linalg.norm(TABLE[index : index + DIMENSION]) for index in INDICES]
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), lengths, rtol=1e-6)
    np.testing.assert_array_equal(rows[0], TABLE[:DIMENSION])  # the first of a group is the noise row


def test_numbers_have_mean_zero_and_variance_one():
    drawn = np.concatenate([rows_of(layout(), INDICES + 48 * POPULATION * place) for place in range(40)])
    assert abs(drawn.mean()) < 0.03 and drawn.var() == pytest.approx(1, abs=0.05)  # of 14,400


def test_rows_that_depend_on_each_other_stay_finite():
    same = np.ones((3, 5), np.float32)
    np.testing.assert_allclose(orthogonal.orthogonalize(same)[0], 1, rtol=1e-6)
    assert np.isfinite(orthogonal.orthogonalize(same)).all()
    assert np.isfinite(orthogonal.orthogonalize(np.zeros((2, 5), np.float32))).all()


def test_moments_are_the_sums_over_the_directions_of_all_batches_in_any_split():
    random, both = np.random.default_rng(1), np.concatenate([INDICES, INDICES + 16])
    weights = Weights(random.standard_normal((1, 60)).astype(np.float32), no_square(60))
    whole = layout().moments(TABLE, both, weights, 0, DIMENSION)
    rows = np.concatenate([rows_of(layout()), rows_of(layout(), INDICES + 16)])
    np.testing.assert_allclose(whole, weights.linear @ rows, rtol=1e-4, atol=1e-5)
    parts = [layout().moments(TABLE, both, weights, *block) for block in ((0, 5), (5, 12))]
    np.testing.assert_array_equal(np.concatenate(parts, axis=1), whole)
    assert layout().moments(TABLE, [], Weights(no_square(0), no_square(0)), 0, DIMENSION).shape == (0, DIMENSION)


def test_members_are_at_these_directions_and_the_state_restores_them():
    solver = SOLVERS["openai_es"](OpenAIESOptions(population=60, sigma=0.5), DIMENSION, directions=layout())
    solver.start(np.zeros(DIMENSION))
    solver.table, out = TABLE, np.empty(DIMENSION, np.float32)
    solver.write(solver.ask(), INDICES, 7, out)  # the second member of pair 3
    np.testing.assert_array_equal(out, np.float32(-0.5) * rows_of(layout())[3])
    again = SOLVERS["openai_es"](OpenAIESOptions(population=60, sigma=0.5), DIMENSION)
    again.restore(solver.state())
    assert again.directions == layout() == restore_directions(DIMENSION, layout().state())


def gradient_error(directions, seed):
    """The squared sine of the angle between the slope of a linear function and its estimate from 10 pairs."""
    slope = np.arange(1.0, 11)
    options = OpenAIESOptions(population=20, sigma=0.1, weight_decay=0, fitness="raw", optimizer={"kind": "sgd"})
    solver = SOLVERS["openai_es"](options, 10, seed, directions=directions)
    solver.start(np.zeros(10))
    SolverLoop(solver, lambda x: float(slope @ x), TABLE).run_generation()
    return 1 - (solver.mean @ slope) ** 2 / (solver.mean @ solver.mean) / (slope @ slope)


def test_the_gradient_of_a_linear_function_is_estimated_better():
    independent = np.mean([gradient_error(None, seed) for seed in range(20)])
    orthogonal_ones = np.mean([gradient_error(OrthogonalDirections(10, population=10), seed) for seed in range(20)])
    assert orthogonal_ones < 0.6 * independent


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"solver": {"kind": "pepg"}}, "noise.kind orthogonal works with solvers that need only the weighted sum"),
        ({"policy": {"hidden": [128, 128]}}, "noise.kind orthogonal is for up to 10,000 parameters, but there are"),
    ],
)
def test_what_it_does_not_fit_is_refused(values, words):
    with pytest.raises(ConfigError, match=words):
        Task(make_config({"environment": {"id": "CartPole-v1"}, "noise": "orthogonal"} | values, (), "here"))
