"""Solvers on problems of COCO's suite bbob, which were written by others."""

import numpy as np
import pytest

from mpies.solvers import find_solver
from mpies.solvers.sampling.noise import build_table
from tests.solvers.single_generation import FunctionLoop, begin

cocoex = pytest.importorskip("cocoex", reason="coco-experiment is not installed")

DIMENSION, BUDGET = 5, 10_000
# Evaluations to f1, f2 and f10 that would be far too many; f10 where the solver's model can reach the target.
LIMITS = {
    "cma_es": {1: 1200, 2: 3000, 10: 3000},
    "cr_fm_nes": {1: 2000, 2: 6000},
    "snes": {1: 3000, 2: 8000},
    "sep_cma": {1: 2000, 2: 5000},
}


def evaluations_to_target(kind, problem, table):
    """Evaluations until COCO's final target, optimum + 1e-8, is hit, or about BUDGET."""
    solver = begin(find_solver(kind), DIMENSION, 0, problem.id_instance, np.float64, sigma=2.0)
    loop = FunctionLoop(solver, lambda x: -problem(x), table)
    while not problem.final_target_hit and problem.evaluations < BUDGET:
        loop.run_generation()
    return problem.evaluations


@pytest.mark.parametrize("kind", LIMITS)
def test_targets_are_hit_where_the_model_can(kind):
    functions = ",".join(map(str, LIMITS[kind]))
    table = build_table(1 << 21, dtype=np.float64)
    with np.errstate(all="ignore"):
        for problem in cocoex.Suite("bbob", "", f"dimensions:5 function_indices:{functions} instance_indices:1"):
            assert evaluations_to_target(kind, problem, table) <= LIMITS[kind][problem.id_function]
