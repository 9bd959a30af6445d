import numpy as np
import pytest

from mpies.solvers.novelty_es import NoveltyES
from mpies.solvers.openai_es import OpenAIES, OpenAIESOptions
from mpies.solvers.optimizers import AdamOptions, ClipUpOptions, SGDOptions, make_optimizer
from mpies.solvers.pgpe import PGPE
from tests.solvers.single_generation import begin, tell, tell_once


def test_a_limit_above_the_first_value_keeps_it():
    keys = {"sigma_decay": 0.5, "sigma_limit": 5, "learning_rate_decay": 0.5, "learning_rate_limit": 5}
    solver = OpenAIES(OpenAIESOptions(population=2, sigma=1.0, optimizer=AdamOptions(learning_rate=1.0), **keys), 1)
    tell_once(solver, [[1]], [1, 2])
    assert solver.sigma == solver.learning_rate == solver.ask().scale[0] == 1


def test_sigma_and_rate_fall_where_the_average_return_has_no_new_best():
    options = {"population": 2, "sigma": 2.0, "patience": 2, "optimizer": AdamOptions(learning_rate=0.1)}
    solver, found = begin(OpenAIES, 1, 0, **options), []
    # Averages 5, 5.1, 5.09, 5.19, 5.0, 4.8, then ever less: the first two in a row without a best are the sixth.
    for mean in [5, 6, 5, 6.1, 3.3, 3, *6 * [0], 100]:
        state, solver = solver.state(), begin(OpenAIES, 1, 0, **options)
        solver.restore(state)  # the wait is part of the state
        tell(solver, [[1]], [mean, np.nan] if mean == 5 else [mean - 1, mean + 1])
        found.append(solver.sigma)
    np.testing.assert_allclose(found, 2 * np.repeat([1, 0.7, 0.49, 0.343, 0.25], [5, 2, 2, 2, 2]))
    assert solver.learning_rate == pytest.approx(0.025)


def test_a_low_plateau_begins_anew_from_the_first_parameters():
    options = {"population": 2, "sigma": 2.0, "patience": 2, "restart_below": 4.0, "optimizer": {"kind": "adam"}}
    solver, found = begin(OpenAIES, 1, 0, **options), []
    # The first best average is 0.5, and 30 generations later training begins anew.  Then it is 5, so sigma falls.
    for mean in [*31 * [0], 5, 0, 0]:
        state, solver = solver.state(), begin(OpenAIES, 1, 7, **options)
        solver.restore(state)  # the first parameters are part of the state
        tell(solver, [[1]], [mean, mean + 1])
        found.append((solver.sigma, abs(float(solver.mean[0]))))
        assert np.isfinite(list(solver.report().values())).all()
    assert [sigma for sigma, _ in found] == pytest.approx([*33 * [2], 1.4])
    assert [place for place, (_, mean) in enumerate(found) if mean == 0] == [30]
    assert found[31][1] == found[0][1]  # Adam's first step again


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
        solver = begin(kind, dimension, 0, population=2, optimizer={"kind": "adam"})
        returns = [0.5, 1, 0][-solver.options.members(dimension) :]
        tell(solver, np.ones((1, dimension)), returns, behaviours=np.zeros((len(returns), 1)))
        moved = solver.mean if kind is PGPE else solver.means[0]
        assert np.abs(moved).max() == pytest.approx(rate, rel=1e-4)


@pytest.mark.parametrize(("episodes", "steps", "expected"), [(10, 100, True), (9, 100, False), (10, 99, False)])
def test_a_generation_is_complete_with_both_its_episodes_and_its_steps(episodes, steps, expected):
    options = OpenAIESOptions(population=2, episodes_per_batch=10, timesteps_per_batch=100)
    assert options.is_complete(episodes, steps) is expected


def test_clipup_normalises_the_gradient_and_limits_the_speed():
    """Toklu et al. 2020, algorithm 1, by hand: velocity .9 v + .3 g/|g|, cut to length .5."""
    rule = make_optimizer(ClipUpOptions(learning_rate=0.3, max_speed=0.5), 2)
    np.testing.assert_allclose(rule.step(np.array([30, 40], np.float32), 0.3), [0.18, 0.24], rtol=1e-6)
    # .9 * (.18, .24) + .3 * (0, 1) = (.162, .516), of length .5408
    cut = np.array([0.162, 0.516]) * 0.5 / np.hypot(0.162, 0.516)
    np.testing.assert_allclose(rule.step(np.array([0, 1e-9], np.float32), 0.3), cut, rtol=1e-6)
    np.testing.assert_allclose(rule.step(np.zeros(2, np.float32), 0.3), 0.9 * cut, rtol=1e-6)


GRADIENTS = np.array([[1.0, -2.0, 0.0], [0.5, 0.25, 1e-3], [-3.0, 2.0, 0.0], [0.1, 0.1, 10.0]], np.float32)


@pytest.mark.parametrize("options", [AdamOptions(), SGDOptions(), ClipUpOptions()])
def test_a_restored_rule_goes_on_with_the_same_bits_and_what_it_returns_is_the_callers_own(options):
    """A step is neither changed by the next one, nor does changing it change the rule."""
    rule, other = make_optimizer(options, 3), make_optimizer(options, 3)
    for gradient in GRADIENTS:
        expected, step = rule.expected_step(0.1), rule.step(gradient, 0.1)
        assert other.expected_step(0.1).tobytes() == expected.tobytes()
        assert other.step(gradient, 0.1).tobytes() == step.tobytes()
        step[:], expected[:] = 99, 99
        state, other = other.state(), make_optimizer(options, 3)
        other.restore({name: np.copy(value) for name, value in state.items()})
