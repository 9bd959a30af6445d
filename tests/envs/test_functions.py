import numpy as np
import pytest

from envs import FUNCTIONS, FunctionWorld


@pytest.mark.parametrize(
    ("name", "point", "value"),
    [
        ("sphere", [0, 0, 0], 0),
        ("sphere", [1, -2, 3], 14),
        ("ellipsoid", [0, 0, 0], 0),
        ("ellipsoid", [1, 1, 1], 1 + 1e3 + 1e6),
        ("ellipsoid", [2], 4),
        ("rosenbrock", [1, 1, 1], 0),
        ("rosenbrock", [0, 0, 0], 2),
        ("rosenbrock", [2, 3], 100 * (3 - 4) ** 2 + 1),
        ("rastrigin", [0, 0], 0),
        ("rastrigin", [1, -2], 5),
        ("rastrigin", [0.5, 0], 20.25),
    ],
)
def test_functions_have_their_published_values(name, point, value):
    assert FUNCTIONS[name](np.array(point, np.float64)) == pytest.approx(value, abs=1e-12)


def test_a_function_world_returns_minus_the_value_moved_by_its_offset():
    world = FunctionWorld("sphere", 2, np.array([1.0, 2.0]))
    assert world.value(np.array([1, 2], np.float32)) == 0
    assert world.value(np.array([4, 6], np.float32)) == -25
