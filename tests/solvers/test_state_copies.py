"""What `state` returned is a copy: a run writes it to disk while the solver takes the next steps."""

import numpy as np
import pytest

from tests.solvers.test_contract import OPTIONS, begin


@pytest.mark.parametrize("case", OPTIONS)
def test_later_steps_do_not_change_a_state(case):
    solver, loop = begin(case)
    loop.run_generation()
    state = solver.state()
    before = {name: np.array(value) for name, value in state.items()}
    for _ in range(3):
        loop.run_generation()
    assert all(np.array_equal(state[name], value) for name, value in before.items())
    assert any(not np.array_equal(value, before.get(name)) for name, value in solver.state().items())
