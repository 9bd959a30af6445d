"""Core hours and memory of the trials of a sweep, and what --dry-run prints of them."""

import re

import pytest

from mpies.launch.forecast.constants import Constants, Machine, Workload
from mpies.launch.forecast.cost import PROCESS, SweepForecast
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


def forecast_of(tmp_path, vary, ranks_per_run=1, **more):
    folder = SweepFolder(tmp_path / "out", read_sweep({"base": BASE, "vary": vary, **more}, "config"))
    return folder, SweepForecast(folder, ranks_per_run, MEASURED)


def test_core_hours_are_those_of_all_generations_and_evaluations(tmp_path):
    vary = {"solver.population": [20, 40], "stop.generations": [50, 100]}
    _, forecast = forecast_of(tmp_path, vary)
    expected = [generations * population + generations / 10 * 4 for population in (20, 40) for generations in (50, 100)]
    costs = sorted(forecast.trials().values())
    assert costs == pytest.approx([2.0 * episodes for episodes in sorted(expected)], rel=1e-3)
    # 20 episodes on 3 ranks take as long as 21.
    _, forecast = forecast_of(tmp_path, {}, 3)
    assert forecast.sweep() == pytest.approx(2.0 * (50 * 21 + 20), rel=1e-2)


def test_a_limit_of_seconds_ends_a_trial(tmp_path):
    _, forecast = forecast_of(tmp_path, {"stop.seconds": [400.0]})
    assert forecast.sweep() == pytest.approx(400 + 2.0 * 4, rel=1e-2)  # 10 generations


def test_a_sweep_takes_what_its_trials_that_are_left_take(tmp_path):
    folder, forecast = forecast_of(tmp_path, {"stop.generations": [50, 100]}, seeds=3)
    folder.open()
    folder.record_failure(folder.trials[1], "it broke")
    assert forecast.sweep() == pytest.approx((3 * 50 + 2 * 100) * 20.4 * 2.0, rel=1e-3)
    longest = SweepForecast(folder, 1, MEASURED, is_longest=True)
    assert longest.sweep() == pytest.approx(5 * forecast.sweep(), rel=1e-3)


def test_halving_takes_what_its_rungs_take(tmp_path):
    """Nine settings for 5 generations, three of them until 15, and one until 50."""
    halving = {"first": 5, "eta": 3, "unit": "generations"}
    vary = {"solver.sigma": [0.1 * number for number in range(1, 10)]}
    _, forecast = forecast_of(tmp_path, vary, halving=halving, seeds=2)
    assert forecast.sweep() == pytest.approx(2 * (9 * 5 + 3 * 10 + 35) * 20.4 * 2.0, rel=1e-3)


@pytest.mark.parametrize(
    ("ranks", "ranks_per_run", "numbers"), [(1, 1, 3000), (3, 1, 9000), (8, 1, 12_000), (8, 4, 6000)]
)
def test_a_node_has_no_more_tables_than_there_are(ranks, ranks_per_run, numbers, tmp_path):
    """Each of the groups has the largest one, but there are only those of two seeds in two sizes."""
    _, forecast = forecast_of(tmp_path, {"noise.size": [1000, 3000]}, ranks_per_run, seeds=[1, 2])
    found = forecast.memory(ranks)
    assert found.table == 4 * numbers
    assert found.total(ranks) == pytest.approx(4 * numbers + ranks * PROCESS, abs=10_000)


def test_groups_have_vectors_of_the_solver_in_shared_memory_each(tmp_path):
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
