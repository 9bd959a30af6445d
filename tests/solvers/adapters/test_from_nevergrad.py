import sys

import numpy as np
import pytest

from mpies.core.errors import SolverProblem
from mpies.solvers import find_solver
from tests.solvers.single_generation import FunctionLoop, begin


def find(name):
    pytest.importorskip("nevergrad", reason="nevergrad is not installed")
    return find_solver(f"nevergrad:{name}")


def test_an_optimiser_is_found_by_name():
    assert find("TBPSA").Options().kind == "nevergrad:TBPSA"
    with pytest.raises(ValueError, match=r"one of its [0-9]+ optimisers, such as TBPSA"):
        find_solver("nevergrad:TBSPA")


def test_the_mean_is_the_recommendation():
    solver = begin(find("OnePlusOne"), 2, [3.0, -3.0], seed=4, population=1, sigma=0.5)
    members = []
    loop = FunctionLoop(solver, lambda x: members.append(x.copy()) or -float(x @ x))
    returns = [loop.run_generation().returns[0] for _ in range(30)]
    np.testing.assert_array_equal(solver.mean, members[int(np.argmax(returns))])
    np.testing.assert_array_equal(members[0], [3, -3])  # it begins where the solver was started


def test_an_optimiser_that_cannot_go_on_is_one_line():
    powell = find("Powell")
    with pytest.raises(SolverProblem, match=r"solver.kind nevergrad:Powell: the optimiser raises .*; use pop"):
        begin(powell, 2, [3.0, -3.0], population=4).ask()


def test_without_the_package_the_cure_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "nevergrad", None)
    with pytest.raises(ValueError, match="nevergrad is not installed; pip install nevergrad"):
        find_solver("nevergrad:TBPSA")
