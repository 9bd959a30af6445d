"""Which attributes make a difference: found by leaving one out at a time."""

import numpy as np
import pytest

from mpies.core.errors import SolverProblem
from mpies.solvers.adapters.state_check import StateCheck, needed, quote
from mpies.solvers.base import Gaussian, Results, Solver
from mpies.solvers.options import Population


class Averaging(Solver):
    """Steps by the average of two hidden vectors; a third attribute is for show."""

    Options = Population
    state_fields = ("mean",)

    def begin(self):
        self.slow = np.zeros(self.dimension, np.float32)
        self.fast = np.zeros(self.dimension, np.float32)
        self.shown = 0.0
        self.lock = open(__file__)  # noqa: SIM115  # cannot be copied
        self.lock.close()

    def propose(self):
        return Gaussian(self.mean, np.ones(1, np.float32))

    def update(self, proposal, results, moments):
        self.slow = self.slow + np.float32(0.1) * moments[0]
        self.fast = self.fast + moments[0]
        self.shown += 1
        self.mean += (self.slow + self.fast) / 2


def make_copy():
    return Averaging(Population(population=4), 3)


def check_step(solver):
    """What the check of a step says."""
    told = solver.ask(), Results.of(np.zeros(4)), np.ones((1, 3), np.float32)
    check = StateCheck(solver, *told, make_copy)
    solver.tell(*told)
    return check.explain()


def test_attributes_are_named_when_they_make_a_difference():
    solver = make_copy()
    solver.start(np.zeros(3))
    assert check_step(solver) == ""  # all are still 0
    message = check_step(solver)
    assert message == "attributes `slow` and `fast` change the step but are not in state_fields; add them"
    assert solver.shown == 2 and solver.generation == 2  # the check itself leaves the solver alone


def test_with_a_complete_state_there_is_nothing_to_say():
    solver = make_copy()
    solver.start(np.zeros(3))
    Averaging.state_fields = ("mean", "slow", "fast")
    try:
        assert [check_step(solver) for _ in range(5)] == [""] * 5
    finally:
        Averaging.state_fields = ("mean",)


def test_a_state_that_cannot_be_restored_is_told():
    class Fragile(Averaging):
        def begin(self):
            if self.mean.any():
                raise SolverProblem("only from 0")
            super().begin()

    solver = Fragile(Population(population=4), 3)
    solver.start(np.zeros(3))
    solver.mean += 1
    told = solver.ask(), Results.of(np.zeros(4)), np.ones((1, 3), np.float32)
    check = StateCheck(solver, *told, lambda: Fragile(Population(population=4), 3))
    assert check.explain() == "its state cannot be restored: only from 0"


@pytest.mark.parametrize(("necessary", "named"), [({"a"}, ["a"]), ({"a", "c"}, ["a", "c"]), (set(), ["a", "b", "c"])])
def test_names_without_which_the_result_differs(necessary, named):
    assert needed(["a", "b", "c"], lambda given: necessary <= set(given)) == named


def test_names_are_listed_as_in_a_sentence():
    assert quote(["a"]) == "`a`" and quote(["a", "b"]) == "`a` and `b`" and quote("abc") == "`a`, `b` and `c`"
