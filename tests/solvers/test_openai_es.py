from dataclasses import replace

import numpy as np
import pytest

from mpies.solvers.base import Results
from mpies.solvers.moments import moments
from mpies.solvers.novelty_es import NoveltyES
from mpies.solvers.openai_es import OpenAIES, OpenAIESOptions
from mpies.solvers.optimizers import AdamOptions, SGDOptions
from mpies.solvers.pgpe import PGPE

PLAIN = SGDOptions(momentum=0, learning_rate=1.0)


def started(mean, **options):
    solver = OpenAIES(OpenAIESOptions(**options), dimension=len(mean))
    solver.start(np.array(mean, np.float32))
    return solver


def generation(solver, table, indices, returns):
    proposal, results = solver.ask(), Results.of(returns)
    sums = moments(table, indices, solver.compute_weights(results, proposal), 0, solver.dimension)
    solver.tell(proposal, results, sums)


def test_one_generation_by_hand():
    table = np.array([1, 2, -1, 3], np.float32)  # rows (1, 2) and (-1, 3) at 0 and 2
    solver = started([10, 20], population=4, sigma=0.5, weight_decay=0.1, optimizer=PLAIN)
    proposal = solver.ask()
    np.testing.assert_array_equal(proposal.mean, [10, 20])
    np.testing.assert_array_equal(proposal.scale, [0.5])
    generation(solver, table, [0, 2], [4, 1, 2, 3])
    # centred ranks .5, -.5, -1/6, 1/6; the pairs weigh 1 and -1/3
    gradient = (np.array([1, 2]) - np.array([-1, 3]) / 3) / 4
    np.testing.assert_allclose(solver.mean, np.array([10, 20]) + gradient - 0.1 * np.array([10, 20]), rtol=1e-6)
    assert solver.generation == 1


def test_members_of_a_pair_mirror_each_other_around_the_mean():
    solver = started([1, 2], population=2, sigma=0.5)
    solver.table = np.array([9, 4, -6], np.float32)
    plus, minus = np.empty((2, 2), np.float32)
    solver.write(solver.ask(), [1], 0, plus)
    solver.write(solver.ask(), [1], 1, minus)
    np.testing.assert_array_equal(plus, [3, -1])
    np.testing.assert_array_equal(minus, [-1, 5])


def test_an_equal_generation_moves_nothing_without_weight_decay():
    solver = started([3, 4], population=4, weight_decay=0)
    generation(solver, np.ones(4, np.float32), [0, 2], [7, 7, 7, 7])
    np.testing.assert_array_equal(solver.mean, [3, 4])


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


def test_the_decayed_learning_rate_is_the_one_that_steps():
    rule = PLAIN.model_copy(update={"learning_rate": 1.0})
    solver = started([0.0], population=2, weight_decay=0, learning_rate_decay=0.25, optimizer=rule)
    positions = [0.0]
    for _ in range(3):
        generation(solver, np.ones(1, np.float32), [0], [1, 0])
        positions.append(float(solver.mean[0]))
    np.testing.assert_allclose(np.diff(positions), 0.5 * np.array([1, 0.25, 0.0625]), rtol=1e-6)


@pytest.mark.parametrize("optimizer", [AdamOptions(), SGDOptions()])
def test_a_restored_solver_goes_on_with_the_same_bits(optimizer):
    table = np.random.default_rng(2).standard_normal(200).astype(np.float32)
    options = {"population": 8, "sigma_decay": 0.9, "learning_rate_decay": 0.8, "optimizer": optimizer}
    solver, other = started(np.ones(20), **options), started(np.zeros(20), **options)
    returns = np.random.default_rng(3).standard_normal((6, 8))
    for row in returns[:3]:
        generation(solver, table, [0, 5, 90, 180], row)
    other.restore({name: np.copy(value) for name, value in solver.state().items()})
    for row in returns[3:]:
        generation(solver, table, [3, 50, 9, 120], row)
        generation(other, table, [3, 50, 9, 120], row)
    assert solver.state().keys() == other.state().keys()
    for name, value in solver.state().items():
        assert np.asarray(value).tobytes() == np.asarray(other.state()[name]).tobytes(), name


def test_the_solver_climbs_a_hill():
    table = np.random.default_rng(4).standard_normal(10_000).astype(np.float32)
    random, goal = np.random.default_rng(5), np.full(10, 0.5)
    solver = started(np.zeros(10), population=32, sigma=0.05, weight_decay=0, optimizer=AdamOptions(learning_rate=0.05))
    for _ in range(100):
        indices = random.integers(0, 9_990, 16)
        noise = np.repeat([table[i : i + 10] for i in indices], 2, axis=0) * np.tile([1, -1], 16)[:, None]
        members = solver.mean + solver.sigma * noise
        generation(solver, table, indices, -np.sum((members - goal) ** 2, axis=1))
    assert np.linalg.norm(solver.mean - goal) < 0.1  # it began at 1.58


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
