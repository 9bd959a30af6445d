"""The predicted cost of a run, against numbers worked out by hand."""

import numpy as np

from mpies.config.loading import validate_config
from mpies.launch.forecast.cost import PROCESS, examine_run
from mpies.launch.forecast.dry_run import describe_needs

D = 50


def sphere(**sections):
    return validate_config({"environment": {"id": "function:sphere", "dimension": D}, **sections}, "test")


def test_memory_worked_out_by_hand():
    config = sphere(solver={"population": 20, "episodes": 3}, noise={"size": 1000})
    task, memory = examine_run(config)
    assert task.dimension == D and memory.table == 4000
    assert memory.rank == PROCESS + 4 * D * 4  # one candidate at a time


def test_a_rank_has_the_parameters_of_every_slot():
    values = {"environment": {"id": "CartPole-v1", "backend": "gymnasium"}, "policy": {"hidden": []}}
    config = validate_config({**values, "solver": {"population": 100}}, "test")
    task, memory = examine_run(config)
    assert task.dimension == 10
    assert memory.rank == PROCESS + 4 * 10 * (task.env.slots + 3)


def test_whole_candidates_are_kept_in_shared_memory_in_place_of_noise():
    config = sphere(solver={"kind": "cma_es", "population": 12}, noise={"size": 10_000})
    assert examine_run(config)[1].table == 4 * D * 12
    assert "noise of a generation   0 B, 0 normals" in describe_needs(config, 1)


def test_the_cost_in_words():
    config = sphere(solver={"population": 20_000, "episodes": 100}, noise={"size": 2**20})
    lines = [line.partition("  ")[::2] for line in describe_needs(config, 4).strip().splitlines()]
    values = {name: value.strip() for name, value in lines}
    assert values["parameters"] == "50"
    assert values["noise of a generation"] == "2,000 kB, 50 normals a direction"
    assert values["defaults of the solver"] == "sigma 0.1, weight_decay 0, optimizer.learning_rate 0.03"
    total = np.ceil(4 + 4 * 130)
    assert values["memory of a node"] == f"{total:.0f} MB with 4 ranks (table 4 MB, each rank about 130 MB)"
