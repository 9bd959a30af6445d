"""The order of settings, their means over seeds, and the rows of trials.csv."""

import math

import pytest

from mpies.report.compare.ranking import Result, Trial, rank_settings
from mpies.sweeps.folder import SweepFolder
from mpies.sweeps.table import ResultReader, format_standings, write_table
from mpies.sweeps.trials import read_sweep
from tests.support import read_csv

HEADER = "generation,seconds,steps,ranks,eval_mean,eval_std,eval_episodes"
VALUES = {"base": {"environment": {"id": "CartPole-v1"}}, "vary": {"solver.sigma": [0.1, 0.2]}, "seeds": 2}


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
    folder = SweepFolder(tmp_path / "out", read_sweep(VALUES, "config"))
    folder.open()
    run = folder.path / folder.trials[0].name
    run.mkdir()
    (run / "config.yaml").write_text("seed: 1\n")
    # 2 s on 2 ranks, then 3 s on 1 rank; evaluated after the first generation.
    (run / "metrics.csv").write_text(f"{HEADER}\n1,2.0,100,2,7.5,2.0,4\n2,5.0,250,1,,,\n")
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
    (run / "metrics.csv").write_text(f"{HEADER}\n1,2.0,100,2,x,2.0,4\n2,?,150,2,,,\n3,5.0,1.2E+12,1,,,\n")
    damaged = results.refresh()[0]
    assert (damaged.generations, damaged.steps, damaged.core_seconds) == (3, 1_200_000_000_000, 7.0)
    assert math.isnan(damaged.eval_mean)
    (run / "finished.yaml").write_text("{reason: solved, generation: 2, steps: 250}\n")
    assert results.refresh()[0].state == "solved"  # what has changed is read again
