"""Settings ranked by their means over seeds: as rows, and by `mpies compare SWEEP` as a table, files and pictures."""

import json
import math

import pytest

from mpies.report.compare.ranking import Result, Trial, rank_settings
from mpies.sweeps.table import ResultReader, format_standings, write_table
from tests.support import assert_refused, invoke, read_csv
from tests.sweeps.folders import add_generation, open_sweep

RETURNS = {0.05: (10.0, 20.0), 0.3: (40.0, 44.0), 0.1: (40.0, None)}  # of seeds 1 and 2; None has not ended


def result(label, seed, mean, state="finished"):
    return Result(Trial(f"{label}_seed={seed}", label, {"a": label}, seed, ()), state, 1, 1, 1.0, mean, 0.5)


def test_settings_are_ranked_by_the_mean_of_their_finished_seeds():
    nan = math.nan
    results = [
        *(result("low", 1, 1.0), result("low", 2, 3.0), result("high", 1, 5.0), result("high", 2, 100.0, "running")),
        *(result("tied", 1, 5.0, "solved"), result("none", 1, nan), result("failed", 1, 9.0, "failed")),
    ]
    found = rank_settings(results)
    assert [(one.results[0].trial.label, one.rank) for one in found] == [
        *(("high", 1), ("tied", 1), ("low", 3), ("none", 0), ("failed", 0))
    ]
    assert found[2].mean == 2.0
    assert found[2].interval == pytest.approx(12.706)  # by Student's t; the standard error of 1 and 3 is 1
    assert found[0].interval == 0.5  # of one seed: over its episodes
    rows = list(format_standings(results, ["a"]))
    assert rows[1][:4] == ("1", "high", "5.00 +- 0.50", "1 of 2")
    assert rows[5][3] == "0 of 1, 1 failed"


def test_a_row_of_each_trial(tmp_path):
    header = "generation,seconds,steps,ranks,eval_mean,eval_std,eval_episodes"
    folder = open_sweep(tmp_path / "out", {"solver.sigma": [0.1, 0.2]}, "environment: {id: CartPole-v1}", seeds=2)
    run = folder.path / folder.trials[0].name
    run.mkdir()
    (run / "config.yaml").write_text("seed: 1\n")
    # 2 s on 2 ranks, then 3 s on 1 rank; evaluated after the first generation.
    (run / "metrics.csv").write_text(f"{header}\n1,2.0,100,2,7.5,2.0,4\n2,5.0,250,1,,,\n")
    folder.record_failure(folder.trials[3], "it\nbroke", "Traceback ...")
    results = ResultReader(folder)
    write_table(results)
    rows = read_csv(folder.path / "trials.csv")
    assert [(row["solver.sigma"], row["seed"]) for row in rows] == [
        *(("0.1", "1"), ("0.2", "1"), ("0.1", "2"), ("0.2", "2"))
    ]
    assert [row["state"] for row in rows] == ["stopped", "new", "new", "failed"]
    assert [rows[0][name] for name in ("generations", "steps", "core_seconds", "eval_mean", "eval_interval")] == [
        *("2", "250", "7.000", "7.5", "1.96")
    ]
    assert rows[3]["reason"] == "it broke" and {row["rank"] for row in rows} == {""}
    # As a spreadsheet, or a fault of the disk, may leave it.
    (run / "metrics.csv").write_text(f"{header}\n1,2.0,100,2,x,2.0,4\n2,?,150,2,,,\n3,5.0,1.2E+12,1,,,\n")
    damaged = results.refresh()[0]
    assert (damaged.generations, damaged.steps, damaged.core_seconds) == (3, 1_200_000_000_000, 7.0)
    assert math.isnan(damaged.eval_mean)
    (run / "finished.yaml").write_text("{reason: solved, generation: 2, steps: 250}\n")
    assert results.refresh()[0].state == "solved"  # what has changed is read again


def make_sweep(vary, value_of):
    """The sweep `out` in the working directory, with two seeds.  value_of: a trial's evaluation, None where unended."""
    folder = open_sweep("out", vary, seeds=2)
    for trial in folder.trials:
        for generation in (1, 2):
            value = value_of(trial)
            add_generation(folder, trial, generation, value or 1.0, is_end=value is not None)
    return folder


@pytest.fixture
def sweep(here):
    """A folder whose trials look as if they had been trained to RETURNS."""
    vary = {"solver.sigma": [*RETURNS]}
    return make_sweep(vary, lambda trial: RETURNS[trial.settings["solver.sigma"]][trial.seed - 1])


def test_compare_shows_the_settings_by_their_mean_over_seeds(sweep, here):
    outcome = invoke("compare", "out", "--out", "here", code=0)
    rows = read_csv("here/ranking.csv")
    assert [(row["rank"], row["solver.sigma"], row["mean"], row["finished"]) for row in rows] == [
        *(("1", "0.3", "42.0", "2"), ("2", "0.1", "40.0", "1"), ("3", "0.05", "15.0", "2"))
    ]
    assert float(rows[0]["interval"]) == pytest.approx(12.706 * 2.0)  # Student's t times a standard error
    assert [row["core_seconds"] for row in rows] == ["8.0"] * 3
    found = json.loads((here / "here" / "ranking.json").read_text())
    assert [row["settings"] for row in found] == [{"solver.sigma": sigma} for sigma in (0.3, 0.1, 0.05)]
    assert [trial["eval_mean"] for trial in found[0]["trials"]] == [40.0, 44.0]
    assert found[1]["trials"][1]["state"] == "stopped"
    table = [line.split()[:2] for line in outcome.stdout.splitlines() if line.strip()[:1].isdigit()]
    assert table == [["1", "0.3"], ["2", "0.1"], ["3", "0.05"]]
    assert [row["config"] for row in read_csv("here/comparison.csv")] == ["sigma 0.3", "sigma 0.1", "sigma 0.05"]
    assert (here / "here" / "comparison_vs_steps.png").stat().st_size > 1000


def test_settings_that_change_no_result_are_told_apart(here):
    vary = {"stop.generations": [3, 6], "evaluation.episodes": [4, 9], "solver.sigma": [0.1]}
    make_sweep(vary, lambda trial: trial.settings["stop.generations"] + trial.settings["evaluation.episodes"])
    invoke("compare", "out", "--out", "here", code=0)
    rows = read_csv("here/comparison.csv")
    assert [(row["config"], row["stop.generations"], row["evaluation.episodes"]) for row in rows] == [
        *(("generations 6, episodes 9", "6", "9"), ("generations 3, episodes 9", "3", "9")),
        *(("generations 6, episodes 4", "6", "4"), ("generations 3, episodes 4", "3", "4")),
    ]
    found = json.loads((here / "here" / "comparison.json").read_text())["groups"]
    assert [group["runs"] for group in found] == [2] * 4 and found[0]["settings"]["stop.generations"] == 6


def test_of_a_sweep_among_other_folders_all_runs_are_compared(sweep, tmp_path):
    outcome = invoke("compare", "out", f"out/{sweep.trials[0].name}", "--out", "here", code=0)
    assert "comparison.csv" in outcome.stdout and not (tmp_path / "here" / "ranking.csv").exists()


def test_a_sweep_in_which_nothing_has_begun_has_a_table_and_no_pictures(here):
    open_sweep("new", {"solver.sigma": [*RETURNS]})
    invoke("compare", "new", "--out", "here", code=0)
    assert {path.name for path in (here / "here").iterdir()} == {"ranking.csv", "ranking.json"}
    (here / "new" / "sweep.yaml").write_text("base: [1]\n")
    assert_refused(invoke("compare", "new"), "base must be a config")
