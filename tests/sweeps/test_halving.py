"""Successive halving: which settings go on, whatever the ranks and interruptions."""

import json
import math
import os
import signal

import pytest
import yaml

import mpies
from mpies.report.compare.ranking import rank_settings
from mpies.report.web.run_index import RunIndex
from mpies.runs.formats.metrics import read_digests
from mpies.runs.reader import RunView
from mpies.sweeps.folder import SweepFolder
from mpies.sweeps.table import ResultReader, write_table
from tests.support import CARTPOLE, assert_refused, invoke, ranks_of, read_csv, wait_for
from tests.sweeps.folders import add_generation, open_sweep

BASE = "{environment: {id: CartPole-v1}, stop: {generations: 27}}"
VARY = {"solver.sigma": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]}
HALVING = {"first": 3, "unit": "generations", "eta": 3}


def make_folder(path, **changes):
    return open_sweep(path, VARY, **{"base": BASE, "halving": HALVING} | changes)


def end_all(folder, generation, trials=slice(None)):
    """Let these trials have come to a generation, the better the larger their sigma, but for those that are dropped."""
    for trial in folder.trials[trials]:
        if not folder.halving.is_dropped(trial):
            add_generation(folder, trial, generation, trial.settings["solver.sigma"])


def ranked(folder):
    """The ranks and sigmas of the settings."""
    return [(one.rank, one.settings["solver.sigma"]) for one in rank_settings(ResultReader(folder).refresh())]


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
        add_generation(folder, trial, 3, mean)
    assert alive(folder) == [0.2, 0.5, 0.6] * 2 and folder.budget == 9
    states = {trial.name: folder.state(trial) for trial in folder.trials}
    assert states["sigma=0.1_seed=1"] == "dropped" and states["sigma=0.2_seed=2"] == "stopped"
    assert folder.config(folder.trials[1]).stop.generations == 9
    number, lock = folder.take()
    lock.release()
    assert folder.trials[number].name == "sigma=0.2_seed=1" and folder.count_left() == 6
    end_all(folder, 9)
    assert alive(folder) == [0.6, 0.6] and folder.budget == 0  # one is left: it is trained to its end
    assert ranked(folder)[:4] == [(1, 0.6), (2, 0.5), (3, 0.2), (4, 0.1)]
    # Another process comes to the same from the files alone.
    assert alive(SweepFolder(tmp_path / "out", folder.sweep)) == [0.6, 0.6]


def test_ties_keep_the_order_and_nan_and_failures_come_last(tmp_path):
    folder = make_folder(tmp_path / "out")
    for trial, mean in zip(folder.trials, [math.nan, None, 1, 2, 2, 2, 2, math.nan, -5], strict=True):
        if mean is None:
            folder.record_failure(trial, "it broke")
        else:
            add_generation(folder, trial, 3, mean)
    assert alive(folder) == [0.4, 0.5, 0.6]
    assert folder.state(folder.trials[1]) == "failed"
    folder.forget_failures()
    assert alive(folder) == [*VARY["solver.sigma"]] and folder.state(folder.trials[1]) == "new"


@pytest.mark.parametrize(
    ("end", "budget", "changes"), [(26, None, []), (27, None, []), (28, 27, ["stop.generations=27"])]
)
def test_a_budget_that_is_a_whole_run_is_none(end, budget, changes, tmp_path):
    """Three settings are left when the second budget is due, 9 * 3 generations."""
    folder = make_folder(tmp_path / "out", base=BASE.replace("27", str(end)), halving=HALVING | {"first": 9})
    end_all(folder, 9)
    assert alive(folder) == [0.7, 0.8, 0.9]
    assert folder.halving.budget == budget
    assert folder.halving.overrides(folder.trials[8], 27) == changes


def test_damaged_cells_of_a_trial_end_no_sweep(tmp_path):
    """As a spreadsheet, or a fault of the disk, may leave them."""
    folder = make_folder(tmp_path / "out", halving={"first": 200, "unit": "steps"})
    end_all(folder, 3)
    names = [folder.path / trial.name / "metrics.csv" for trial in folder.trials]
    names[0].write_text(names[0].read_text().replace(",3.0,300,", ",?,3.0E+02,"))
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
    assert ranked(folder)[:2] == [(1, 0.8), (2, 0.7)] and ranked(folder)[-1] == (0, 0.9)


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
    assert [row["generations"] for row in table].count("12") == 2
    assert {row["state"] for row in table} == {"finished", "dropped"}
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


@pytest.mark.parametrize("stop", [{"generations": 4}, {"generations": 9, "target": 1}])
def test_a_later_end_is_still_the_same_sweep(stop, here):
    """One trial is left at the end, and has ended by another rule than the unit of halving."""
    # A pole stands for at least 8 steps, so it is certain which one is left.  16 members take more than 100 steps.
    values, later = yaml.safe_load(CARTPOLE), {"generations": 9}
    options = {"vary": {"environment.max_steps": [7, 60]}, "halving": {"first": 100, "eta": 2}, "progress": False}
    whole = mpies.sweep(values | {"stop": later}, out="whole", **options)
    mpies.sweep(values | {"stop": stop}, out="out", **options)
    assert {row["generations"] for row in read_table(here / "out")} != {"1", "9"}
    found = mpies.sweep(values | {"stop": later}, out="out", **options)
    assert found.best == whole.best and {row["generations"] for row in found.trials} == {1, 9}
    for row in found.trials:
        assert read_digests(found.path / row["name"]) == read_digests(whole.path / row["name"])


def test_a_trial_that_waits_or_was_dropped_is_not_called_finished(here):
    folder = make_folder(here / "out")
    index = RunIndex(folder.path)
    for number, trial in enumerate(folder.trials):
        add_generation(folder, trial, 3, number)
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
    add_generation(folder, folder.trials[0], 27, 0)  # as where `mpies train` trains it to its own end
    assert RunView(folder.path, folder.trials[0].name).status() == "finished"
