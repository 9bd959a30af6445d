import numpy as np
import pytest

from mpies.solvers.optimizers import AdamOptions, ClipUpOptions, SGDOptions, make_optimizer

GRADIENTS = np.array([[1.0, -2.0, 0.0], [0.5, 0.25, 1e-3], [-3.0, 2.0, 0.0], [0.1, 0.1, 10.0]], np.float32)


def test_clipup_normalises_the_gradient_and_limits_the_speed():
    """Toklu et al. 2020, algorithm 1, by hand: velocity .9 v + .3 g/|g|, cut to length .5."""
    rule = make_optimizer(ClipUpOptions(learning_rate=0.3, max_speed=0.5), 2)
    np.testing.assert_allclose(rule.step(np.array([30, 40], np.float32), 0.3), [0.18, 0.24], rtol=1e-6)
    # .9 * (.18, .24) + .3 * (0, 1) = (.162, .516), of length .5408
    cut = np.array([0.162, 0.516]) * 0.5 / np.hypot(0.162, 0.516)
    np.testing.assert_allclose(rule.step(np.array([0, 1e-9], np.float32), 0.3), cut, rtol=1e-6)
    np.testing.assert_allclose(rule.step(np.zeros(2, np.float32), 0.3), 0.9 * cut, rtol=1e-6)


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
