"""`mpies compare SWEEP`: the settings ranked, as a table, CSV and JSON, and pictures of the best."""

import json
from pathlib import Path

import pytest

from mpies.config.loading import as_yaml, resolved
from mpies.sweeps.folder import SweepFolder
from mpies.sweeps.trials import SweepOptions, load_sweep
from tests.support import CARTPOLE, assert_refused, invoke, read_csv

VARY = {"solver.sigma": [0.05, 0.3, 0.1]}
HEADER = (
    "generation,seconds,steps,ranks,episodes,return_min,return_max,return_mean,eval_mean,eval_std,eval_episodes,"
    "failures"
)
RETURNS = {0.05: (10.0, 20.0), 0.3: (40.0, 44.0), 0.1: (40.0, None)}  # of seeds 1 and 2; None has not ended


@pytest.fixture
def sweep(tmp_path, monkeypatch):
    """A folder whose trials look as if they had been trained to RETURNS."""
    monkeypatch.chdir(tmp_path)
    return make_sweep(VARY, lambda trial: RETURNS[trial.settings["solver.sigma"]][trial.seed - 1])


def make_sweep(vary, value_of):
    """The sweep `out` in this folder with two seeds.  value_of: a trial's evaluation; None where it has not ended."""
    Path("config.yaml").write_text(CARTPOLE)
    folder = SweepFolder("out", load_sweep("config.yaml", vary, SweepOptions(2)))
    folder.open()
    for trial in folder.trials:
        value, run = value_of(trial), folder.path / trial.name
        run.mkdir()
        (run / "config.yaml").write_text(as_yaml(resolved(folder.sweep.config(trial))))
        rows = [f"{n},{n}.0,{100 * n},2,{8 * n},1.0,1.0,1.0,{value or 1.0},2.0,4,0" for n in (1, 2)]
        (run / "metrics.csv").write_text("\n".join([HEADER, *rows]) + "\n")
        if value is not None:
            (run / "finished.yaml").write_text("{reason: generations, generation: 2, steps: 200}\n")
    return folder


def test_settings_are_ranked_by_their_mean_over_seeds(sweep, tmp_path):
    outcome = invoke("compare", "out", "--out", "here", code=0)
    rows = read_csv("here/ranking.csv")
    assert [(row["rank"], row["solver.sigma"], row["mean"], row["finished"]) for row in rows] == [
        *(("1", "0.3", "42.0", "2"), ("2", "0.1", "40.0", "1"), ("3", "0.05", "15.0", "2"))
    ]
    assert float(rows[0]["interval"]) == pytest.approx(12.706 * 2.0)  # Student's t times a standard error
    assert [row["core_seconds"] for row in rows] == ["8.0"] * 3
    found = json.loads((tmp_path / "here" / "ranking.json").read_text())
    assert [row["settings"] for row in found] == [{"solver.sigma": sigma} for sigma in (0.3, 0.1, 0.05)]
    assert [trial["eval_mean"] for trial in found[0]["trials"]] == [40.0, 44.0]
    assert found[1]["trials"][1]["state"] == "stopped"
    table = [line.split()[:2] for line in outcome.stdout.splitlines() if line.strip()[:1].isdigit()]
    assert table == [["1", "0.3"], ["2", "0.1"], ["3", "0.05"]]
    assert [row["config"] for row in read_csv("here/comparison.csv")] == ["sigma 0.3", "sigma 0.1", "sigma 0.05"]
    assert (tmp_path / "here" / "comparison_vs_steps.png").stat().st_size > 1000


def test_settings_that_change_no_result_are_told_apart(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    vary = {"stop.generations": [3, 6], "evaluation.episodes": [4, 9], "solver.sigma": [0.1]}
    make_sweep(vary, lambda trial: trial.settings["stop.generations"] + trial.settings["evaluation.episodes"])
    invoke("compare", "out", "--out", "here", code=0)
    rows = read_csv("here/comparison.csv")
    assert [(row["config"], row["stop.generations"], row["evaluation.episodes"]) for row in rows] == [
        *(("generations 6, episodes 9", "6", "9"), ("generations 3, episodes 9", "3", "9")),
        *(("generations 6, episodes 4", "6", "4"), ("generations 3, episodes 4", "3", "4")),
    ]
    found = json.loads((tmp_path / "here" / "comparison.json").read_text())["groups"]
    assert [group["runs"] for group in found] == [2] * 4 and found[0]["settings"]["stop.generations"] == 6


def test_of_a_sweep_among_other_folders_all_runs_are_compared(sweep, tmp_path):
    outcome = invoke("compare", "out", f"out/{sweep.trials[0].name}", "--out", "here", code=0)
    assert "comparison.csv" in outcome.stdout and not (tmp_path / "here" / "ranking.csv").exists()


def test_a_sweep_in_which_nothing_has_begun_has_a_table_and_no_pictures(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.yaml").write_text(CARTPOLE)
    SweepFolder("new", load_sweep("config.yaml", VARY)).open()
    invoke("compare", "new", "--out", "here", code=0)
    assert {path.name for path in (tmp_path / "here").iterdir()} == {"ranking.csv", "ranking.json"}
    (tmp_path / "new" / "sweep.yaml").write_text("base: [1]\n")
    assert_refused(invoke("compare", "new"), "base must be a config")
