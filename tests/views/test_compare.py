"""Comparison of configs over seeds: groups, labels, statistics."""

import dataclasses

import numpy as np
import pytest

from mpies.views.compare import draw_comparison, group_runs, tabulate
from mpies.views.curves import read_curves


def test_the_command_compares_trained_runs(trained, tmp_path, invoke):
    runs = [read_curves(trained / f"one-seed-{seed}") for seed in (1, 2)]
    final = sorted(run["eval_mean"][-1] for run in runs)
    ((label, count, solved, median, quartiles, steps, _),) = tabulate(group_runs(runs))
    assert (label, count, solved, steps) == ("CartPole-v1, openai_es", "2", "0 of 2", "-")
    assert median == f"{np.mean(final):,.2f}"
    low, high = final[0] + (final[1] - final[0]) / 4, final[1] - (final[1] - final[0]) / 4
    assert quartiles == f"{low:,.2f} to {high:,.2f}"
    ended = invoke("compare", *(run.path for run in runs), "--out", tmp_path / "new/folder")
    assert ended.exit_code == 0 and "0 of 2" in ended.stdout
    assert sorted(path.name for path in tmp_path.glob("new/folder/*")) == [
        f"comparison_vs_{axis}.png" for axis in ("iteration", "steps", "time")
    ]
    (tmp_path / "file").touch()
    ended = invoke("compare", *(run.path for run in runs), "--out", tmp_path / "file")
    assert ended.exit_code == 2 and "cannot be made (File exists)" in ended.output


def test_solved_runs_are_counted_with_their_steps_and_seconds(make_curves):
    solved = [make_curves([None] * n + [9.0], seed=n, reason="solved", target=8.0) for n in (1, 3)]
    unsolved = make_curves([1.0, 2.0], seed=9, reason="generations", target=8.0)
    ((_, count, share, median, quartiles, steps, seconds),) = tabulate(group_runs([*solved, unsolved]))
    assert (count, share, median, quartiles) == ("3", "2 of 3", "9.00", "5.50 to 9.00")
    assert (steps, seconds) == ("30", "3.0")  # medians of 20 and 40 steps, of 2 and 4 seconds


def test_runs_without_target_or_evaluation_have_no_result(make_curves):
    ((_, _, share, median, quartiles, *_),) = tabulate(group_runs([make_curves([None, None])]))
    assert (share, median, quartiles) == ("no target", "-", "-")
    x, y = group_runs([make_curves([None])])[0].interpolate("steps")
    assert x.shape == (0,) and y.shape == (0, 0)


def test_a_run_that_has_ended_keeps_its_last_evaluation(make_curves):
    short = make_curves([1.0, 5.0], seed=1, reason="solved")
    long = make_curves([None, 2.0, None, 4.0], seed=2, reason="generations")
    x, y = group_runs([short, long])[0].interpolate("generation", points=3)
    assert x.tolist() == [2, 3, 4]  # from where all have an evaluation to the end of the longest
    assert y.tolist() == [[5, 5, 5], [2, 3, 4]]


def test_the_grid_ends_where_the_first_unfinished_run_is(make_curves):
    unfinished = make_curves([1.0, 2.0, 3.0], seed=1)
    finished = make_curves([1.0, 1.0, 1.0, 1.0, 1.0], seed=2, reason="generations")
    x, _ = group_runs([unfinished, finished])[0].interpolate("generation", points=2)
    assert x.tolist() == [1, 3]


def test_of_two_runs_with_the_same_seed_the_longer_one_counts(make_curves):
    runs = [make_curves([1.0, 2.0], path="long"), make_curves([1.0], path="short"), make_curves([3.0], seed=2)]
    (group,) = group_runs(runs)
    assert [(run.config["seed"], len(run)) for run in group.runs] == [(1, 2), (2, 1)]


def test_what_changes_no_result_makes_no_group(make_curves):
    first, second = make_curves([1.0], seed=1, target=5.0), make_curves([1.0], seed=2, target=7.0)
    assert len(group_runs([first, second])) == 1
    assert len(group_runs([first, make_curves([1.0], sigma=0.5)])) == 2


def test_groups_are_named_by_their_kinds(trained):
    run = read_curves(trained / "one-seed-1")
    solver = run.config["solver"] | {"kind": "cma_es", "optimizer": None}
    groups = group_runs([run, dataclasses.replace(run, config=run.config | {"solver": solver})])
    assert [group.label for group in groups] == ["openai_es, adam", "cma_es"]


def test_groups_of_one_kind_are_named_by_the_keys_that_differ(make_curves):
    runs = [make_curves([1.0], kind="ars", episodes=episodes) for episodes in (1, 5)] + [make_curves([1.0])]
    labels = {group.label for group in group_runs(runs)}
    assert labels == {"snes", "ars, solver.episodes 1", "ars, solver.episodes 5"}


def test_the_plot_has_a_band_and_a_line_for_each_group(make_curves):
    runs = [make_curves([1.0, 3.0], seed=1, target=4.0), make_curves([2.0, 6.0], seed=2, target=4.0)]
    figure = draw_comparison(group_runs([*runs, make_curves([0.0, 1.0], kind="ars")]), "iteration")
    (legend,) = figure.legends
    names = sorted(text.get_text() for text in legend.get_texts())
    assert names == ["ars (1 seed)", "snes (2 seeds)", "target 4"]
    (axes,) = figure.axes
    line = next(one for one in axes.lines if one.get_label() == "snes (2 seeds)")
    assert line.get_ydata()[[0, -1]] == pytest.approx([1.5, 4.5])  # means over the seeds
    band = axes.collections[[one.get_label() for one in axes.lines].index("snes (2 seeds)")]
    assert band.get_datalim(axes.transData).intervaly == pytest.approx([1, 6])
