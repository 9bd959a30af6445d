import re
import warnings

import numpy as np
import pytest

from mpies.envs.functions import FUNCTIONS, FunctionEnv, negated
from tests.support import HOME

VALUES = {
    "sphere": {(0, 0, 0): 0, (1, -2, 3): 14},
    "ellipsoid": {(0, 0, 0): 0, (1, 1, 1): 1 + 1e3 + 1e6, (2,): 4},
    "rosenbrock": {(1, 1, 1): 0, (0, 0, 0): 2, (2, 3): 100 * (3 - 4) ** 2 + 1},
    "rastrigin": {(0, 0): 0, (1, -2): 5, (0.5, 0): 20.25},
}


@pytest.mark.parametrize("name", VALUES)
def test_functions_have_their_published_values(name):
    for point, value in VALUES[name].items():
        assert FUNCTIONS[name](np.array(point, np.float64)) == pytest.approx(value, abs=1e-12), point


@pytest.mark.parametrize("name", FUNCTIONS)
def test_parameters_that_are_not_finite_give_no_number_and_no_warning(name):
    env = FunctionEnv(name, 3, np.zeros(3), negated(name))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not np.isfinite(env.value(np.array([np.inf, -np.inf, 1], np.float32)))


def test_the_users_function_is_moved_and_sees_float64():
    seen = []
    env = FunctionEnv("own.py:f", 2, np.array([0.5, 0.0]), lambda x: seen.append(x) or x.sum())
    value = env.value(np.array([1.5, 3], np.float32))
    assert value == 4 and type(value) is float
    assert seen[0].dtype == np.float64 and seen[0].tolist() == [1, 3]


@pytest.mark.parametrize(("dimension", "size"), [(3, 3), (8, 8), (20, 8)])
def test_the_behaviour_is_the_first_eight_parameters(dimension, size):
    env = FunctionEnv("sphere", dimension, np.zeros(dimension), negated("sphere"))
    assert env.behaviour_size == size
    assert env.behaviour(np.arange(dimension, dtype=np.float32)).tolist() == list(range(size))


def test_the_document_lists_every_test_function():
    page = (HOME / "docs" / "environments.md").read_text()
    assert set(re.findall(r"^\| `function:(\w+)` \|", page, re.M)) == set(FUNCTIONS)
