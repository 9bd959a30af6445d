"""Successive halving: which settings go on, whatever the ranks and interruptions."""

import json
import math
import os
import signal

import pytest
import yaml

import mpies
from mpies.config.loading import as_yaml, resolved
from mpies.report.compare.ranking import rank_settings
from mpies.report.web.run_index import RunIndex
from mpies.runs.formats.metrics import read_digests
from mpies.runs.reader import RunView
from mpies.sweeps.folder import SweepFolder
from mpies.sweeps.table import ResultReader, write_table
from mpies.sweeps.trials import read_sweep
from tests.support import CARTPOLE, assert_refused, invoke, ranks_of, read_csv, wait_for
from tests.sweeps.test_comparison import HEADER

BASE = {"environment": {"id": "CartPole-v1"}, "stop": {"generations": 27}}
VARY = {"solver.sigma": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]}
HALVING = {"first": 3, "unit": "generations", "eta": 3}


def make_folder(path, seeds=1, **changes):
    values = {"base": BASE, "vary": VARY, "seeds": seeds, "halving": HALVING, **changes}
    folder = SweepFolder(path, read_sweep(values, "sweep"))
    folder.open()
    return folder


def end_rung(folder, trial, mean, generation):
    """What a trial leaves that has come to a generation, where it was evaluated."""
    run = folder.path / trial.name
    run.mkdir(exist_ok=True)
    (run / "config.yaml").write_text(as_yaml(resolved(folder.sweep.config(trial))))
    file = run / "metrics.csv"
    text = file.read_text() if file.exists() else f"{HEADER}\n"
    cell = "" if math.isnan(mean) else mean
    file.write_text(f"{text}{generation},{generation},{100 * generation},1,8,1.0,1.0,1.0,{cell},1.0,5,0\n")
    (run / "finished.yaml").write_text(f"{{reason: generations, generation: {generation}, steps: 1}}\n")


def end_all(folder, generation, trials=slice(None)):
    """Let these trials have come to a generation, the better the larger their sigma."""
    for trial in folder.trials[trials]:
        end_rung(folder, trial, trial.settings["solver.sigma"], generation)


def alive(folder):
    folder.refresh()
    return [trial.settings["solver.sigma"] for trial in folder.trials if not folder.halving.is_dropped(trial)]


def test_the_best_third_of_the_means_over_seeds_goes_on(tmp_path):
    folder = make_folder(tmp_path / "out", seeds=2)
    for trial in folder.trials:
        mean = 100 * trial.settings["solver.sigma"] * (1 if trial.seed == 1 else -1)
        if trial.settings["solver.sigma"] in (0.2, 0.5, 0.6):
            mean = 50.0 - trial.seed  # their mean is 48.5, that of all others 0
        if trial is folder.trials[-1]:
            assert alive(folder) == [*VARY["solver.sigma"]] * 2 and folder.budget == 3  # one is missing
        end_rung(folder, trial, mean, 3)
    assert alive(folder) == [0.2, 0.5, 0.6] * 2 and folder.budget == 9
    states = {trial.name: folder.state(trial) for trial in folder.trials}
    assert states["sigma=0.1_seed=1"] == "dropped" and states["sigma=0.2_seed=2"] == "stopped"
    assert folder.config(folder.trials[1]).stop.generations == 9
    number, lock = folder.take()
    lock.release()
    assert folder.trials[number].name == "sigma=0.2_seed=1" and folder.count_left() == 6
    for trial in folder.trials:
        if not folder.halving.is_dropped(trial):
            end_rung(folder, trial, trial.settings["solver.sigma"], 9)
    assert alive(folder) == [0.6, 0.6] and folder.budget == 0  # one is left: it is trained to its end
    standings = rank_settings(ResultReader(folder).refresh())
    order = [(one.rank, one.settings["solver.sigma"]) for one in standings]
    assert order[:4] == [(1, 0.6), (2, 0.5), (3, 0.2), (4, 0.1)]
    # Another process comes to the same from the files alone.
    assert alive(SweepFolder(tmp_path / "out", folder.sweep)) == [0.6, 0.6]


def test_ties_keep_the_order_and_nan_and_failures_come_last(tmp_path):
    folder = make_folder(tmp_path / "out")
    for trial, mean in zip(folder.trials, [math.nan, None, 1, 2, 2, 2, 2, math.nan, -5], strict=True):
        if mean is None:
            folder.record_failure(trial, "it broke")
        else:
            end_rung(folder, trial, mean, 3)
    assert alive(folder) == [0.4, 0.5, 0.6]
    assert folder.state(folder.trials[1]) == "failed"
    folder.forget_failures()
    assert alive(folder) == [*VARY["solver.sigma"]] and folder.state(folder.trials[1]) == "new"


@pytest.mark.parametrize(
    ("end", "budget", "changes"), [(26, None, []), (27, None, []), (28, 27, ["stop.generations=27"])]
)
def test_a_budget_that_is_a_whole_run_is_none(end, budget, changes, tmp_path):
    """Three settings are left when the second budget is due, 9 * 3 generations."""
    base = BASE | {"stop": {"generations": end}}
    folder = make_folder(tmp_path / "out", base=base, halving=HALVING | {"first": 9})
    end_all(folder, 9)
    assert alive(folder) == [0.7, 0.8, 0.9]
    assert folder.halving.budget == budget
    assert folder.halving.overrides(folder.trials[8], 27) == changes


def test_damaged_cells_of_a_trial_end_no_sweep(tmp_path):
    """As a spreadsheet, or a fault of the disk, may leave them."""
    folder = make_folder(tmp_path / "out", halving={"first": 200, "unit": "steps"})
    end_all(folder, 3)
    names = [folder.path / trial.name / "metrics.csv" for trial in folder.trials]
    names[0].write_text(names[0].read_text().replace(",3,300,", ",?,3.0E+02,"))
    names[8].write_text(names[8].read_text().replace("0.9", "0.o9"))
    assert alive(folder) == [0.8]  # the evaluation of 0.9 is not known


def test_a_trial_that_fails_in_a_later_rung_changes_no_earlier_choice(tmp_path):
    folder = make_folder(tmp_path / "out")
    end_all(folder, 3)
    assert alive(folder) == [0.7, 0.8, 0.9]
    folder.record_failure(folder.trials[8], "it broke")
    end_all(folder, 9, slice(6, 8))
    another_process = SweepFolder(folder.path, folder.sweep)
    for one in (folder, another_process):
        assert alive(one) == [0.8] and one.state(one.trials[5]) == "dropped"
    standings = rank_settings(ResultReader(folder).refresh())
    order = [(one.rank, one.settings["solver.sigma"]) for one in standings]
    assert order[:2] == [(1, 0.8), (2, 0.7)] and order[-1] == (0, 0.9)


def test_a_run_that_has_ended_by_another_rule_is_not_trained_further(tmp_path):
    folder = make_folder(tmp_path / "out")
    end_all(folder, 3)
    solved = folder.path / folder.trials[8].name / "finished.yaml"
    solved.write_text("{reason: solved, generation: 3, steps: 300}\n")
    folder.refresh()
    assert [folder.state(trial) for trial in folder.trials[6:]] == ["stopped", "stopped", "waiting"]


CONFIG = CARTPOLE.replace("generations: 10", "generations: 12")
SWEEP = ("solver.sigma=0.05,0.1,0.3,1", "--seeds", "2", "--halving", "first=3,unit=generations,eta=2", "--out", "out")


def read_table(folder):
    return [{key: row[key] for key in row if key != "core_seconds"} for row in read_csv(folder / "trials.csv")]


def test_the_same_survivors_on_any_ranks_and_after_kills(run_mpies, start_mpies, write_config, tmp_path, trained):
    config = write_config(CONFIG)
    run_mpies(0, "sweep", config, *SWEEP, code=0)
    table = read_table(tmp_path / "out")
    assert [row["generations"] for row in table].count("12") == 2 and {row["state"] for row in table} == {
        *("finished", "dropped")
    }
    best = next(row for row in table if row["state"] == "finished")
    alone = f"seed: {best['seed']}\n" + CONFIG.replace("sigma: 0.1", f"sigma: {best['solver.sigma']}")
    assert read_digests(tmp_path / "out" / best["name"]) == read_digests(trained(alone))
    os.rename(tmp_path / "out", tmp_path / "serial")
    process = start_mpies(3, "sweep", config, *SWEEP)
    wait_for(lambda: len([*(tmp_path / "out").glob("*/finished.yaml")]) >= 3, process)
    for rank in ranks_of(process):
        os.kill(rank.pid, signal.SIGKILL)
    process.wait(300)
    run_mpies(0, "sweep", config, *SWEEP, "--ranks", "2", code=0)
    assert read_table(tmp_path / "out") == table
    for row in table:
        assert read_digests(tmp_path / "out" / row["name"]) == read_digests(tmp_path / "serial" / row["name"])
    other = run_mpies(0, "sweep", config, *SWEEP[:4], "first=2,unit=generations", *SWEEP[5:])
    assert_refused(other, "contains another sweep (halving: ", "first=3 unit='generations' eta=2")


@pytest.mark.parametrize(
    ("stop", "later"),
    [
        ({"generations": 4}, {"generations": 9}),
        ({"generations": 9, "target": 1}, {"generations": 9}),
    ],
)
def test_a_later_end_is_still_the_same_sweep(stop, later, tmp_path, monkeypatch):
    """One trial is left at the end, and has ended by another rule than the unit of halving."""
    monkeypatch.chdir(tmp_path)
    # A pole stands for at least 8 steps, so it is certain which one is left.  16 members take more than 100 steps.
    values, vary = yaml.safe_load(CARTPOLE), {"environment.max_steps": [7, 60]}
    options = {"halving": {"first": 100, "eta": 2}, "out": "out", "progress": False}
    whole = mpies.sweep(values | {"stop": later}, vary, **{**options, "out": "whole"})
    mpies.sweep(values | {"stop": stop}, vary, **options)
    assert {row["generations"] for row in read_table(tmp_path / "out")} != {"1", "9"}
    found = mpies.sweep(values | {"stop": later}, vary, **options)
    assert found.best == whole.best and {row["generations"] for row in found.trials} == {1, 9}
    for row in found.trials:
        assert read_digests(found.path / row["name"]) == read_digests(whole.path / row["name"])


def test_a_trial_that_waits_or_was_dropped_is_not_called_finished(here):
    folder = make_folder(here / "out")
    index = RunIndex(folder.path)
    for number, trial in enumerate(folder.trials):
        end_rung(folder, trial, number, 3)
        write_table(ResultReader(folder))
        statuses = {RunView(folder.path, one.name).status() for one in folder.trials[: number + 1]}
        assert statuses == ({"waiting"} if number < 8 else {"dropped", "finished"})
        reasons = {one["reason"] for one in index.summaries()}
        assert reasons == ({"waiting"} if number < 8 else {"dropped", "generations"})
    listed = {row["path"]: row["status"] for row in json.loads(invoke("runs", "out", "--json", code=0).stdout)}
    assert [listed[f"out/{trial.name}"] for trial in folder.trials] == ["dropped"] * 6 + ["finished"] * 3
    for trial, is_dropped in ((folder.trials[0], True), (folder.trials[8], False)):
        invoke("report", f"out/{trial.name}", code=0)
        assert (">dropped<" in (folder.path / trial.name / "report.html").read_text()) == is_dropped
    end_rung(folder, folder.trials[0], 0, 27)  # as where `mpies train` trains it to its own end
    assert RunView(folder.path, folder.trials[0].name).status() == "finished"
