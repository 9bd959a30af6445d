"""Solvers on problems of COCO's suite bbob, which were written by others."""

import numpy as np
import pytest

from mpies.solvers import find_solver
from mpies.solvers.sampling.noise import build_table
from tests.solvers.single_generation import FunctionLoop

cocoex = pytest.importorskip("cocoex", reason="coco-experiment is not installed")

DIMENSION, BUDGET = 5, 2500 * 5
# Evaluations to f1, f2 and f10 that would be far too many; None where the solver's model cannot reach the target.
LIMITS = {
    "cma_es": {1: 1200, 2: 3000, 10: 3000},
    "cr_fm_nes": {1: 2000, 2: 6000, 10: None},  # in 5 dimensions it has no rank-one update: c1 = 0
    "snes": {1: 3000, 2: 8000, 10: None},
    "sep_cma": {1: 2000, 2: 5000, 10: None},
}


def evaluations_to_target(kind: str, problem, table: np.ndarray) -> int | None:
    """Evaluations until COCO's final target, optimum + 1e-8, is hit; None if the budget does not suffice."""
    solver_class = find_solver(kind)
    solver = solver_class(solver_class.Options(sigma=2.0), DIMENSION, problem.id_instance, np.float64)
    solver.start(np.zeros(DIMENSION))
    hits: list[int] = []

    def value(x: np.ndarray) -> float:
        cost = problem(x)
        if problem.final_target_hit and not hits:
            hits.append(problem.evaluations)
        return -cost

    loop = FunctionLoop(solver, value, table)
    while not hits and problem.evaluations < BUDGET:
        loop.run_generation()
    return hits[0] if hits else None


@pytest.mark.parametrize("kind", LIMITS)
def test_targets_are_hit_where_the_model_can_and_missed_where_it_cannot(kind):
    functions = ",".join(map(str, LIMITS[kind]))
    table = build_table(1 << 21, dtype=np.float64)
    with np.errstate(all="ignore"):
        for problem in cocoex.Suite("bbob", "", f"dimensions:5 function_indices:{functions} instance_indices:1"):
            evaluations, limit = evaluations_to_target(kind, problem, table), LIMITS[kind][problem.id_function]
            assert evaluations is None if limit is None else evaluations and evaluations <= limit
