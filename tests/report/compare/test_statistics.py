"""Comparison of configs over seeds: groups, labels, statistics."""

import csv
import dataclasses
import io
import json
import shutil
from functools import partial
from itertools import product

import numpy as np
import pytest
import yaml
from scipy import stats

from mpies.report.compare import statistics
from mpies.report.compare.curves import find_machine, read_curves
from mpies.report.compare.ranking import average_seeds
from mpies.report.compare.run_groups import group_by_task, group_runs, label_settings
from mpies.runs.machine import describe_machine, machines_of
from mpies.runs.reader import RunView
from tests.support import assert_refused, invoke


def test_the_command_compares_trained_runs(two_runs, tmp_path):
    runs = [read_curves(two_runs / f"one-seed-{seed}") for seed in (1, 2)]
    final = sorted(run["eval_mean"][-1] for run in runs)
    _, (label, count, solved, iqm, interval, extremes, steps) = statistics.tabulate(group_runs(runs))
    assert (label, count, solved, steps) == ("openai_es", "2", "0 of 2", "-")
    assert iqm == f"{np.mean(final):,.2f}" and extremes == interval == f"{final[0]:,.2f} to {final[1]:,.2f}"
    ended = invoke("compare", *(run.path for run in runs), "--out", tmp_path / "new/folder", code=0)
    assert "0 of 2" in ended.stdout
    pictures = [f"comparison_vs_{axis}.png" for axis in ("iteration", "steps", "time")]
    files = sorted(path.name for path in tmp_path.glob("new/folder/*"))
    assert files == ["comparison.csv", "comparison.json", *pictures]
    (tmp_path / "file").touch()
    ended = invoke("compare", *(run.path for run in runs), "--out", tmp_path / "file", code=2)
    assert "cannot be created (File exists); give another folder" in ended.stderr


def test_seconds_are_compared_only_on_the_machine_that_all_runs_recorded(two_runs, tmp_path):
    runs = [shutil.copytree(two_runs / f"one-seed-{seed}", tmp_path / str(seed)) for seed in (1, 2)]
    assert machines_of(RunView(runs[0]).config()) == [describe_machine()]
    first = read_curves(runs[0])
    assert find_machine([first, read_curves(runs[1])]) == describe_machine()
    assert "machines" not in first.versions and first.versions["numpy"]
    invoke("compare", *runs, "--out", tmp_path / "same")
    assert json.loads((tmp_path / "same/comparison.json").read_text())["machine"] == describe_machine()
    config = yaml.safe_load((runs[1] / "config.yaml").read_text())
    for machines in (["another"], [describe_machine(), "another"], None, "damaged"):
        config["versions"]["machines"] = machines
        (runs[1] / "config.yaml").write_text(yaml.safe_dump(config))
        assert find_machine(map(read_curves, runs)) == ""
    ended = invoke("compare", *runs, "--out", tmp_path / "mixed")
    assert ended.code == 0 and "openai_es" in ended.stdout and "seconds on" not in ended.stdout
    assert not list(tmp_path.glob("mixed/*time*"))
    invoke("compare", *runs, "--out", tmp_path / "mixed", "--machine", "a laptop")
    assert list(tmp_path.glob("mixed/*time*"))


def test_folders_are_searched_seconds_name_their_machine_and_what_is_left_out_is_named(two_runs, tmp_path):
    runs = tmp_path / "runs"
    first, again = (shutil.copytree(two_runs / "one-seed-1", runs / "deep" / name) for name in ("first", "again"))
    metrics = (again / "metrics.csv").read_text().splitlines(keepends=True)
    (again / "metrics.csv").write_text("".join(metrics[:-1]))
    (runs / "begun").mkdir()
    (runs / "begun/config.yaml").write_text("environment: {id: A}")
    ended = invoke("compare", runs, "--out", tmp_path, "--machine", "a laptop", "--format", "pdf", code=0)
    assert describe_machine() not in ended.stdout and "seconds on a laptop" in ended.stdout
    begun, repeated = ended.stderr.splitlines()
    assert begun.startswith("left out: ") and "begun: has no generation yet" in begun
    assert repeated == f"left out: {again}: same config and seed as {first}"
    assert (tmp_path / "comparison_vs_time.pdf").read_bytes().startswith(b"%PDF")
    (tmp_path / "nothing").mkdir()
    assert_refused(invoke("compare", tmp_path / "nothing"), "is neither a run nor a folder with runs; give one that")


def test_solved_runs_are_counted_with_their_steps_and_seconds(make_curves):
    solved = [make_curves([None] * n + [9.0], seed=n, reason="solved", target=8.0) for n in (1, 3)]
    groups = group_runs([*solved, make_curves([1.0, 2.0], seed=9, reason="generations", target=8.0)])
    heads, (_, count, share, _, interval, extremes, steps, seconds) = statistics.tabulate(groups, "a laptop")
    assert (count, share, interval, extremes) == ("3", "2 of 3", "2.00 to 9.00", "2.00 to 9.00")
    assert (steps, seconds) == ("30", "3.0")  # medians of 20 and 40 steps, of 2 and 4 seconds
    assert heads[-2:] == ("steps to target", "seconds on a laptop")


def test_runs_without_target_or_evaluation_have_no_result(make_curves):
    _, (_, _, share, iqm, interval, *_) = statistics.tabulate(group_runs([make_curves([None, None])]))
    assert (share, iqm, interval) == ("no target", "-", "-")
    (group,) = group_runs([make_curves([None])])
    assert group.extent("steps", "eval_mean") is None and group.sample(np.ones(3), "steps", "eval_mean").shape == (0, 3)


def test_the_table_is_written_for_other_programs(make_curves):
    runs = [make_curves([mean], seed=seed, target=0.0) for seed, mean in ((1, -3.0), (2, -5.0))]
    groups = group_runs([*runs, make_curves([2.0], kind="ars")])
    rows = {row["config"]: row for row in csv.DictReader(io.StringIO(statistics.as_csv(groups)))}
    assert rows["snes"]["seeds"] == "1 2" and float(rows["snes"]["iqm"]) == -4 and rows["ars"]["solver.kind"] == "ars"
    found = json.loads(statistics.as_json(groups))
    assert found["machine"] is None and "seconds" not in found["groups"][0]
    (snes,) = (group for group in found["groups"] if group["config"] == "snes")
    assert [run["evaluation"] for run in snes["results"]] == [-3, -5] and snes["settings"]["solver.kind"] == "snes"


def test_a_run_that_has_ended_keeps_its_last_evaluation_and_the_grid_ends_with_an_unfinished_run(make_curves):
    short = make_curves([1.0, 5.0], seed=1, reason="solved")
    long = make_curves([None, 2.0, None, 4.0], seed=2, reason="generations")
    (group,) = group_runs([short, long])
    assert group.extent("generation", "eval_mean") == (2, 4)  # from where all have one to the end of the longest
    assert group.sample(np.array([2, 3, 4]), "generation", "eval_mean").tolist() == [[5, 5, 5], [2, 3, 4]]
    (group,) = group_runs([make_curves([1.0, 2.0, 3.0], seed=1), make_curves([1.0] * 5, seed=2, reason="generations")])
    assert group.extent("generation", "eval_mean") == (1, 3)


def test_groups_are_named_by_their_kinds_and_the_keys_that_differ_if_these_change_a_result(two_runs, make_curves):
    run = read_curves(two_runs / "one-seed-1")
    solver = run.config["solver"] | {"kind": "cma_es", "optimizer": None}
    groups = group_runs([run, dataclasses.replace(run, config=run.config | {"solver": solver})])
    assert [group.label for group in groups] == ["openai_es, adam", "cma_es"]
    runs = [make_curves([1.0], seed=seed, target=seed + 5.0) for seed in (1, 2)]
    assert [group.label for group in group_runs(runs)] == ["snes"]
    runs += [make_curves([1.0], kind="ars", episodes=episodes) for episodes in (1, 5)]
    assert {group.label for group in group_runs(runs)} == {"snes", "ars, episodes 1", "ars, episodes 5"}


def test_the_plot_has_a_band_and_a_line_for_each_group_and_ten_look_different(make_curves):
    runs = [make_curves([1.0, 3.0], seed=1, target=4.0), make_curves([2.0, 6.0], seed=2, target=4.0)]
    groups = group_runs([*runs, make_curves([0.0, 1.0], kind="ars")])
    for band in ("range", "bootstrap"):
        figure = statistics.draw_comparison(groups, "iteration", band=band)
        (legend,) = figure.legends
        names = sorted(text.get_text() for text in legend.get_texts())
        assert names == ["ars (1 seed)", "snes (2 seeds)", "target"]
        (axes,) = figure.axes
        assert axes.get_title() == "CartPole-v1"
        line = next(one for one in axes.lines if one.get_label() == "snes (2 seeds)")
        assert line.get_ydata()[[0, -1]] == pytest.approx([1.5, 4.5])  # means over the seeds
        (drawn,) = axes.collections  # a single run has no band
        assert drawn.get_datalim(axes.transData).intervaly == pytest.approx([1, 6])
    groups = group_runs([make_curves([1.0, 2.0], sigma=number / 10) for number in range(10)])
    (axes,) = statistics.draw_comparison(groups, "steps").axes
    assert len({(line.get_color(), line.get_marker()) for line in axes.lines}) == len(groups) == 10


def test_each_task_has_a_panel_and_a_group_one_colour(make_curves):
    kinds = product(("A-v1", "function:sphere"), (("snes", -900.0), ("ars", -800.0)))
    runs = [make_curves([worst, -1e-3], environment={"id": task}, kind=kind) for task, (kind, worst) in kinds]
    figure = statistics.draw_comparison(group_runs(runs), "steps", machine="a laptop")
    assert [axes.get_title() for axes in figure.axes] == ["A-v1", "sphere"]
    colours = [{line.get_label(): line.get_color() for line in axes.lines} for axes in figure.axes]
    assert colours[0] == colours[1] and len(colours[0]) == 2
    for axes in figure.axes:  # returns that are costs, over many orders of magnitude
        assert axes.get_yscale() == "symlog" and axes.get_ylabel() == "return, held out"
    assert statistics.draw_comparison(group_runs(runs), "steps", scale="linear").axes[0].get_yscale() == "linear"


def test_a_row_with_a_damaged_count_is_left_out(two_runs, tmp_path):
    run = shutil.copytree(two_runs / "one-seed-1", tmp_path / "run")
    names, *rows = [line.split(",") for line in (run / "metrics.csv").read_text().splitlines()]
    last = rows.pop()
    for name in ("generation", "steps", "seconds", "episodes"):
        damaged = [*last]
        damaged[names.index(name)] = "1#2"
        (run / "metrics.csv").write_text("".join(",".join(row) + "\n" for row in (names, *rows, damaged)))
        assert len(read_curves(run)) == 5, name
    invoke("compare", run, "--out", tmp_path / "out", code=0)
    (group,) = json.loads((tmp_path / "out/comparison.json").read_text())["groups"]
    (result,) = group["results"]
    assert (result["generations"], result["evaluation"]) == (5, read_curves(run)["eval_mean"][3])
    (run / "metrics.csv").write_text("".join(",".join(row) + "\n" for row in (names, damaged)))
    ended = invoke("compare", run, "--out", tmp_path / "out")
    assert_refused(ended, "metrics.csv: each row has a damaged cell; give another run")


def test_different_environments_are_different_tasks_with_labels_of_their_own(make_curves):
    environments = {"id": "CartPole-v1"}, {"id": "BipedalWalker-v3", "kwargs": {"hardcore": True}}
    runs = [make_curves([1.0], environment=one, kind=kind) for one, kind in product(environments, ("snes", "ars"))]
    found = {task: sorted(one.label for one in groups) for task, groups in group_by_task(group_runs(runs)).items()}
    assert found == {task: ["ars", "snes"] for task in ("BipedalWalker-v3, hardcore True", "CartPole-v1")}


def test_a_backend_of_auto_is_that_of_the_runs_it_is_otherwise_equal_to(make_curves):
    def make(backend, seed, **solver):
        return make_curves([1.0], seed=seed, environment={"id": "CartPole-v1", "backend": backend}, **solver)

    runs = [make("auto", 1), make("envpool", 2), make("gymnasium", 3, sigma=0.5)]
    first, other = sorted(group_runs(runs), key=lambda group: -len(group.runs))
    assert [run.config["seed"] for run in first.runs] == [1, 2] and len(other.runs) == 1
    assert first.settings["environment.backend"] == "envpool"
    assert len(group_runs([make("auto", 1), make("auto", 2)])) == 1
    assert len(group_runs([make("envpool", 1), make("gymnasium", 2)])) == 2
    assert len(group_runs([make("auto", 1), make("envpool", 2), make("gymnasium", 3)])) == 3


def test_a_label_names_as_many_settings_as_tell_it_apart():
    same = {"solver.kind": "snes", "environment.id": "A"}
    found = [{**same, **{f"solver.k{key}": int(key == number) for key in range(6)}} for number in range(6)]
    labels = label_settings(found)
    assert len({*labels}) == 6 and labels[5] == "k0 0, k1 0, k2 0, k3 0, k4 0"
    assert label_settings([same]) == ["snes"]
    two = [{**same, "solver.sigma": sigma, **dict.fromkeys("abcd", sigma)} for sigma in (0.1, 0.25)]
    assert label_settings(two) == ["sigma 0.1, a 0.1, b 0.1", "sigma 0.25, a 0.25, b 0.25"]


@pytest.mark.parametrize("count", [2, 3, 10, 100])
def test_the_interval_over_seeds_is_that_of_students_t(count):
    values = np.random.default_rng(count).normal(size=count)
    low, high = stats.t.interval(0.95, count - 1, values.mean(), values.std(ddof=1) / np.sqrt(count))
    mean, interval = average_seeds(values.tolist(), values.tolist())
    assert mean == values.mean() and interval == pytest.approx((high - low) / 2, rel=2e-3)


@pytest.mark.parametrize("shape", [(2, 1), (4, 2), (11, 2)])
def test_means_and_intervals_over_runs_are_those_of_scipy(shape):
    values, mean = np.random.default_rng(shape).normal(size=shape), partial(stats.trim_mean, proportiontocut=0.25)
    np.testing.assert_allclose(statistics.interquartile_mean(values), mean(values), rtol=1e-14)
    options = {"n_resamples": 2000, "method": "percentile", "batch": 200, "rng": 0}
    interval = stats.bootstrap((values,), mean, axis=0, **options).confidence_interval
    np.testing.assert_allclose(statistics.bootstrap_interval(values), (interval.low, interval.high), rtol=1e-12)
    np.testing.assert_allclose(statistics.bootstrap_interval(values[:1]), [values[0]] * 2)
