"""What a run and the trials of a sweep cost, against numbers worked out by hand, and what --dry-run prints of it."""

import re

import pytest

from mpies.config.loading import validate_config
from mpies.launch.forecast.constants import Constants, Machine, Workload
from mpies.launch.forecast.cost import PROCESS, SweepForecast, examine_run
from mpies.launch.forecast.dry_run import describe_needs
from mpies.sweeps.folder import SweepFolder
from mpies.sweeps.trials import read_sweep
from tests.support import CARTPOLE, invoke, read_files

# 20 episodes of a generation, of 2 s each and of 10 s at most, and nothing besides.
BASE = {
    "environment": {"id": "function:sphere", "dimension": 5},
    "solver": {"population": 20},
    "evaluation": {"every": 10, "episodes": 4},
    "noise": {"size": 1_000_000},
    "stop": {"generations": 50},
}
MEASURED = Constants(
    machine=Machine(core_streaming=1e15, node_streaming=1e15),
    task=Workload(
        environment="function:sphere", parameters=5, rows=10, episodes=9, seconds=2.0, variation=0.0, longest=10.0
    ),
)


def sphere(**sections):
    """A config of 50 parameters."""
    return validate_config({"environment": {"id": "function:sphere", "dimension": 50}, **sections}, "test")


def test_memory_of_a_run_worked_out_by_hand():
    task, memory = examine_run(sphere(solver={"population": 20, "episodes": 3}, noise={"size": 1000}))
    assert task.dimension == 50 and memory.table == 4000
    assert memory.rank == PROCESS + 4 * 50 * 4  # one candidate at a time
    # A rank that plays has the parameters of every slot.
    values = {"environment": {"id": "CartPole-v1", "backend": "gymnasium"}, "policy": {"hidden": []}}
    task, memory = examine_run(validate_config({**values, "solver": {"population": 100}}, "test"))
    assert task.dimension == 10 and memory.rank == PROCESS + 4 * 10 * (task.env.slots + 3)
    # Whole candidates are kept in shared memory in place of noise.
    candidates = sphere(solver={"kind": "cma_es", "population": 12}, noise={"size": 10_000})
    assert examine_run(candidates)[1].table == 4 * 50 * 12
    assert "noise of a generation   0 B, 0 normals" in describe_needs(candidates, 1)


def test_the_cost_in_words():
    config = sphere(solver={"population": 20_000, "episodes": 100}, noise={"size": 2**20})
    lines = [line.partition("  ")[::2] for line in describe_needs(config, 4).strip().splitlines()]
    values = {name: value.strip() for name, value in lines}
    assert values["parameters"] == "50"
    assert values["noise of a generation"] == "2,000 kB, 50 normals a direction"
    assert values["defaults of the solver"] == "sigma 0.1, weight_decay 0, optimizer.learning_rate 0.03"
    assert values["memory of a node"] == f"{4 + 4 * 130} MB with 4 ranks (table 4 MB, each rank about 130 MB)"


def forecast_of(tmp_path, vary, ranks_per_run=1, **more):
    folder = SweepFolder(tmp_path / "out", read_sweep({"base": BASE, "vary": vary, **more}, "config"))
    return folder, SweepForecast(folder, ranks_per_run, MEASURED)


def test_a_sweep_takes_the_core_hours_of_all_generations_and_evaluations_until_a_limit_of_seconds(tmp_path):
    _, forecast = forecast_of(tmp_path, {"solver.population": [20, 40], "stop.generations": [50, 100]})
    expected = [generations * population + generations / 10 * 4 for population in (20, 40) for generations in (50, 100)]
    costs = sorted(forecast.trials().values())
    assert costs == pytest.approx([2.0 * episodes for episodes in sorted(expected)], rel=1e-3)
    # 20 episodes on 3 ranks take as long as 21.
    _, forecast = forecast_of(tmp_path, {}, 3)
    assert forecast.sweep() == pytest.approx(2.0 * (50 * 21 + 20), rel=1e-2)
    _, forecast = forecast_of(tmp_path, {"stop.seconds": [400.0]})
    assert forecast.sweep() == pytest.approx(400 + 2.0 * 4, rel=1e-2)  # 10 generations


def test_a_sweep_takes_what_its_rungs_and_its_trials_that_are_left_take(tmp_path):
    # Nine settings for 5 generations, three of them until 15, and one until 50.
    vary, rungs = {"solver.sigma": [0.1 * number for number in range(1, 10)]}, {"first": 5, "eta": 3}
    _, forecast = forecast_of(tmp_path, vary, halving={**rungs, "unit": "generations"}, seeds=2)
    assert forecast.sweep() == pytest.approx(2 * (9 * 5 + 3 * 10 + 35) * 20.4 * 2.0, rel=1e-3)
    folder, forecast = forecast_of(tmp_path, {"stop.generations": [50, 100]}, seeds=3)
    folder.open()
    folder.record_failure(folder.trials[1], "it broke")
    assert forecast.sweep() == pytest.approx((3 * 50 + 2 * 100) * 20.4 * 2.0, rel=1e-3)
    longest = SweepForecast(folder, 1, MEASURED, is_longest=True)
    assert longest.sweep() == pytest.approx(5 * forecast.sweep(), rel=1e-3)


def test_a_node_has_no_more_tables_than_there_are_and_vectors_of_the_solver_for_each_group(tmp_path):
    """Each of the groups has the largest table, but there are only those of two seeds in two sizes."""
    for ranks, ranks_per_run, numbers in ((1, 1, 3000), (3, 1, 9000), (8, 1, 12_000), (8, 4, 6000)):
        _, forecast = forecast_of(tmp_path, {"noise.size": [1000, 3000]}, ranks_per_run, seeds=[1, 2])
        found = forecast.memory(ranks)
        assert found.table == 4 * numbers
        assert found.total(ranks) == pytest.approx(4 * numbers + ranks * PROCESS, abs=10_000)
    _, forecast = forecast_of(tmp_path, {"solver.kind": ["deep_ga"], "solver.parents": [2, 8]}, seeds=2)
    assert forecast.memory(3).table == 4 * (2 * 1_000_000 + 3 * 8 * 5)


def test_a_dry_run_lists_trials_with_core_hours_and_memory(here, write_config):
    config, vary = write_config(CARTPOLE), ["solver.sigma=0.1,0.2", "stop.generations=10,1000000"]
    before = read_files(here)
    outcome = invoke("sweep", config, *vary, "--seeds", "2", "--ranks", "3", "--out", "out", "--dry-run", code=0)
    rows = [line.split() for line in outcome.stdout.splitlines()[1:9]]
    for short, long in zip(rows[::2], rows[1::2], strict=True):
        assert 0 <= float(short[2]) < float(long[2].replace(",", ""))
    text = outcome.stdout
    assert "8, of which 8 are to be trained, in out" in text and "3, in 3 groups of 1" in text
    # Three ranks, and a table of 400 kB for each of two seeds.
    assert "1 MB of it in shared memory" in text
    assert 390 < int(re.search(r"memory of a node +([\d,]+) MB with 3 ranks", text)[1].replace(",", "")) < 450
    assert "nothing was written" in text and read_files(here) == before
