"""The rows that a solver sends now and then are part of the broadcast that `mpies check` predicts."""

import numpy as np
import pytest

from mpies.config.loading import validate_config
from mpies.launch.cost import predict_cost, predict_traffic
from mpies.solvers.loop import SolverLoop
from mpies.training.task import Task
from mpies.training.update import make_solver

DIMENSION, SNAPSHOT, PARENTS = 50, 4, 6


@pytest.fixture
def config():
    solver = {"kind": "deep_ga", "population": 40, "parents": PARENTS, "snapshot": SNAPSHOT, "sigma": 0.1}
    environment = {"id": "function:sphere", "dimension": DIMENSION}
    return validate_config({"environment": environment, "solver": solver, "noise": {"size": 10_000}}, "x")


def test_parents_are_sent_once_for_a_chain_of_mutations(config):
    solver = make_solver(config, DIMENSION)
    solver.start(np.ones(DIMENSION))
    loop, sent = SolverLoop(solver, lambda x: -float(x @ x)), []
    for _ in range(60):
        proposal = solver.ask()
        sent.append(sum(vector.nbytes for vector in proposal.vectors()))
        sent[-1] += 0 if proposal.rows is None else proposal.rows.nbytes
        loop.run_generation()
    predicted = predict_traffic(config, Task(config)).proposal
    assert predicted == sent[1] + 4 * DIMENSION * PARENTS // SNAPSHOT
    assert predicted == pytest.approx(np.mean(sent), rel=0.1)
    assert predict_cost(config, ranks=1).broadcast == predicted
