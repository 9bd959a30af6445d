import numpy as np
import pytest

from mpies.solvers.novelty_es import NoveltyES
from mpies.solvers.openai_es import OpenAIES, OpenAIESOptions
from mpies.solvers.optimizers import AdamOptions
from mpies.solvers.pgpe import PGPE
from tests.solvers.single_generation import tell, tell_once


def test_a_limit_above_the_first_value_keeps_it():
    keys = {"sigma_decay": 0.5, "sigma_limit": 5, "learning_rate_decay": 0.5, "learning_rate_limit": 5}
    solver = OpenAIES(OpenAIESOptions(population=2, sigma=1.0, optimizer=AdamOptions(learning_rate=1.0), **keys), 1)
    tell_once(solver, [[1]], [1, 2])
    assert solver.sigma == solver.learning_rate == solver.ask().scale[0] == 1


def test_sigma_and_rate_fall_where_the_average_return_has_no_new_best():
    options = OpenAIESOptions(population=2, sigma=2.0, patience=2, optimizer=AdamOptions(learning_rate=0.1))
    solver = OpenAIES(options, 1)
    solver.start(np.zeros(1))
    found = []
    # Averages 5, 5.1, 5.09, 5.19, 5.0, 4.8, then ever less: the first two in a row without a best are the sixth.
    for mean in [5, 6, 5, 6.1, 3.3, 3, *6 * [0], 100]:
        again = OpenAIES(options, 1)
        again.start(np.zeros(1))
        again.restore(solver.state())  # the wait is part of the state
        solver = again
        tell(solver, [[1]], [mean, np.nan] if mean == 5 else [mean - 1, mean + 1])
        found.append(solver.sigma)
    np.testing.assert_allclose(found, 2 * np.repeat([1, 0.7, 0.49, 0.343, 0.25], [5, 2, 2, 2, 2]))
    assert solver.learning_rate == pytest.approx(0.025)


@pytest.mark.parametrize(("dimension", "sigma", "rate", "decay"), [(20_000, 0.1, 0.03, 0), (20_001, 0.02, 0.01, 0.005)])
def test_defaults_follow_the_number_of_parameters(dimension, sigma, rate, decay):
    solver = OpenAIES(OpenAIESOptions(population=2), dimension)
    tell_once(solver, np.zeros((1, dimension)), [1, 0])  # only the decay moves the mean
    assert (solver.sigma, solver.learning_rate) == (sigma, rate)
    assert solver.options.decay(dimension) == decay and OpenAIESOptions(weight_decay=0.0).decay(dimension) == 0
    assert OpenAIESOptions().default_population(dimension) == (64 if dimension == 20_000 else 128)
    moved = 0 if decay == 0 else -rate  # Adam's first step has the length of its rate
    np.testing.assert_allclose(solver.mean, 1 + moved, rtol=1e-5)
    for kind in (NoveltyES, PGPE):  # Adam's rate is the same wherever it is used
        solver = kind(kind.Options(population=2, optimizer={"kind": "adam"}), dimension)
        returns = [0.5, 1, 0][-solver.options.members(dimension) :]
        solver.start(np.zeros(dimension))
        tell(solver, np.ones((1, dimension)), returns, behaviours=np.zeros((len(returns), 1)))
        moved = solver.mean if kind is PGPE else solver.means[0]
        assert np.abs(moved).max() == pytest.approx(rate, rel=1e-4)


@pytest.mark.parametrize(("episodes", "steps", "expected"), [(10, 100, True), (9, 100, False), (10, 99, False)])
def test_a_generation_is_complete_with_both_its_episodes_and_its_steps(episodes, steps, expected):
    options = OpenAIESOptions(population=2, episodes_per_batch=10, timesteps_per_batch=100)
    assert options.is_complete(episodes, steps) is expected
