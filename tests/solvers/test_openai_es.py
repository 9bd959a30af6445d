from dataclasses import replace

import numpy as np
import pytest

from mpies.solvers.base import Results
from mpies.solvers.moments import moments
from mpies.solvers.novelty_es import NoveltyES
from mpies.solvers.openai_es import OpenAIES, OpenAIESOptions
from mpies.solvers.optimizers import AdamOptions
from mpies.solvers.pgpe import PGPE


def started(mean, **options):
    solver = OpenAIES(OpenAIESOptions(**options), dimension=len(mean))
    solver.start(np.array(mean, np.float32))
    return solver


def generation(solver, table, indices, returns):
    proposal, results = solver.ask(), Results.of(returns)
    sums = moments(table, indices, solver.compute_weights(results, proposal), 0, solver.dimension)
    solver.tell(proposal, results, sums)


@pytest.mark.parametrize(("limit", "expected"), [(0.0, 0.125), (0.3, 0.3), (0.7, 0.7), (5.0, 1.0)])
def test_sigma_and_learning_rate_decay_down_to_their_limits_and_never_rise(limit, expected):
    rule = AdamOptions(learning_rate=1.0)
    solver = started(
        [0, 0],
        population=2,
        sigma=1.0,
        sigma_decay=0.5,
        sigma_limit=limit,
        learning_rate_decay=0.5,
        learning_rate_limit=limit,
        optimizer=rule,
    )
    for _ in range(3):
        generation(solver, np.ones(2, np.float32), [0], [1, 2])
    assert solver.sigma == pytest.approx(expected)
    assert solver.learning_rate == pytest.approx(expected)
    assert solver.ask().scale[0] == np.float32(expected)


@pytest.mark.parametrize(("dimension", "sigma", "rate", "decay"), [(20_000, 0.1, 0.03, 0), (20_001, 0.02, 0.01, 0.005)])
def test_defaults_follow_the_number_of_parameters(dimension, sigma, rate, decay):
    solver = started(np.ones(dimension), population=2)
    assert (solver.sigma, solver.learning_rate) == (sigma, rate)
    assert solver.options.decay(dimension) == decay
    assert OpenAIESOptions().default_population(dimension) == (64 if dimension == 20_000 else 128)
    given = started(np.ones(dimension), population=2, sigma=0.3, optimizer={"kind": "adam", "learning_rate": 0.2})
    assert (given.sigma, given.learning_rate) == (0.3, 0.2)
    assert OpenAIESOptions(weight_decay=0.0).decay(dimension) == 0
    generation(solver, np.zeros(2 * dimension, np.float32), [0], [1, 0])  # only the decay moves the mean
    moved = 0 if decay == 0 else -rate  # Adam's first step has the length of its rate
    np.testing.assert_allclose(solver.mean, 1 + moved, rtol=1e-5)


@pytest.mark.parametrize(("dimension", "rate"), [(20_000, 0.03), (20_001, 0.01)])
def test_adams_default_rate_is_the_same_wherever_adam_is_used(dimension, rate):
    table = np.ones(dimension, np.float32)
    for make in (NoveltyES, PGPE):
        solver = make(make.Options(population=2, optimizer={"kind": "adam"}), dimension)
        solver.start(np.zeros(dimension, np.float32))
        returns = [0.5, 1, 0][-solver.options.members(dimension) :]
        proposal, results = solver.ask(), replace(Results.of(returns), behaviours=np.zeros((len(returns), 1)))
        sums = moments(table, [0], solver.compute_weights(results, proposal), 0, dimension)
        before = solver.mean.copy()
        solver.tell(proposal, results, sums)
        moved = np.abs(solver.mean - before).max() if make is PGPE else np.abs(solver.means[0]).max()
        assert moved == pytest.approx(rate, rel=1e-4)


@pytest.mark.parametrize(("episodes", "steps", "expected"), [(10, 100, True), (9, 100, False), (10, 99, False)])
def test_a_generation_is_complete_with_both_its_episodes_and_its_steps(episodes, steps, expected):
    options = OpenAIESOptions(population=2, episodes_per_batch=10, timesteps_per_batch=100)
    assert options.is_complete(episodes, steps) is expected
