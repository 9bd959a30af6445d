"""A whole training run against an exact optimum: linear-quadratic control, solved by the Riccati equation."""

import numpy as np
import pytest

from mpies.solvers import SOLVERS, find_solver
from mpies.solvers.sampling.noise import build_table
from tests.solvers.single_generation import FunctionLoop

STATES, INPUTS = 4, 2
RANDOM = np.random.default_rng(8)
A = RANDOM.standard_normal((STATES, STATES))
A *= 0.98 / np.max(np.abs(np.linalg.eigvals(A)))  # just stable without control
B = RANDOM.standard_normal((STATES, INPUTS))
Q, R = np.eye(STATES), 0.1 * np.eye(INPUTS)
TABLE = build_table(1 << 16)

OPTIONS = {
    "openai_es": {
        "population": 40,
        "sigma": 0.05,
        "weight_decay": 0.0,
        "learning_rate_decay": 0.99,
        "optimizer": {"kind": "adam", "learning_rate": 0.05},
    },
    "pepg": {"population": 40, "weight_decay": 0.0, "learning_rate": 0.05, "learning_rate_decay": 0.98},
    "pgpe": {"population": 40, "optimizer": {"kind": "clipup", "max_speed": 0.05, "learning_rate": 0.03}},
    "ars": {"population": 40, "sigma": 0.02, "learning_rate": 0.02},
    "snes": {},
    "sep_cma": {},
    "cr_fm_nes": {},
    "cma_es": {},
    "deep_ga": {"population": 40, "parents": 5, "sigma": 0.03},
    "novelty_es": {"population": 40, "means": 2, "sigma": 0.05, "weight_decay": 0.0},
    "nevergrad:CMA": {},
}


def optimal_cost():
    """trace P of the discrete algebraic Riccati equation, by iterating it; x0 has unit covariance."""
    p = Q
    for _ in range(2000):
        gain = np.linalg.solve(R + B.T @ p @ B, B.T @ p @ A)
        p = Q + A.T @ p @ (A - B @ gain)
    return float(np.trace(p))


def cost(parameters):
    """Cost over 256 steps of u = -K x; the sum doubles its length in each round."""
    gain = parameters.reshape(INPUTS, STATES).astype(np.float64)
    step, p = A - B @ gain, Q + gain.T @ R @ gain
    with np.errstate(all="ignore"):
        for _ in range(8):
            p = p + step.T @ p @ step
            step = step @ step
    total = float(np.trace(p))
    return total if np.isfinite(total) else np.nan


def test_every_solver_of_the_registry_is_tested():
    assert set(SOLVERS) <= set(OPTIONS)


def test_doing_nothing_is_far_from_optimal():
    assert cost(np.zeros(STATES * INPUTS)) > 2 * optimal_cost()


@pytest.mark.parametrize("kind", OPTIONS)
def test_reaches_within_two_percent_of_the_optimal_cost(kind):
    if kind.startswith("nevergrad"):
        pytest.importorskip("nevergrad", reason="nevergrad is not installed")
    values = dict(OPTIONS[kind])
    solver_class = find_solver(kind)
    solver = solver_class(solver_class.Options(**values), STATES * INPUTS, seed=1)
    solver.start(np.zeros(STATES * INPUTS))
    loop = FunctionLoop(solver, lambda k: -cost(k), TABLE, behaviour=lambda k: k[:2])
    for _ in range(250):
        loop.run_generation()
    assert optimal_cost() * (1 - 1e-6) <= cost(solver.mean) <= 1.02 * optimal_cost()
