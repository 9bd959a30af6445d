"""mpies.load and mpies.runs: a run directory in Python."""

import shutil
import subprocess
import sys

import numpy as np
import pytest

import mpies
from mpies.report.evaluate import show_policy
from mpies.runs.formats.policy_file import load_policy
from tests.support import CARTPOLE, ENDLESS, HOME, invoke, read_csv, wait_for


@pytest.fixture
def path(trained):
    return trained(CARTPOLE)


@pytest.fixture
def run(path):
    return mpies.load(path)


def test_metrics_are_columns_of_numbers_that_the_caller_may_change(run, path):
    pandas = pytest.importorskip("pandas", reason="pandas is an extra")
    metrics, rows = run.metrics, read_csv(path / "metrics.csv")
    assert metrics.keys() == rows[0].keys() - {"digest"}
    for name, values in metrics.items():
        cells = [float(row[name]) if row[name] else np.nan for row in rows]
        assert values.dtype == np.float64
        np.testing.assert_array_equal(values, cells)
    assert np.isnan(metrics["eval_mean"][0]) and np.isfinite(metrics["eval_mean"][1])  # it evaluates every second one
    expected = metrics["return_mean"].tolist()
    metrics["return_mean"] -= 1
    frame = run.to_pandas()
    assert isinstance(frame, pandas.DataFrame) and len(frame) == 10
    assert run.metrics["return_mean"].tolist() == frame["return_mean"].tolist() == expected


def test_the_path_may_be_relative_and_the_working_directory_may_change(path, monkeypatch, tmp_path):
    monkeypatch.chdir(path.parent)
    run = mpies.load(path.name)
    assert [run.path for run in mpies.runs(".")] == [path]
    monkeypatch.chdir(tmp_path)
    assert run.path == path and run.status == "finished" and run.best.generation


def test_the_past_comes_from_the_ledger(run, path, tmp_path):
    last = run.policy(generation=10)
    np.testing.assert_array_equal(last.parameters, load_policy(path / "policy.h5").arrays["parameters"])
    assert last.generation == 10
    third = run.policy(generation=3)  # back, and forward again
    assert not np.array_equal(third.parameters, last.parameters)
    np.testing.assert_array_equal(run.policy(10).parameters, last.parameters)
    saved = tmp_path / "third.h5"
    assert invoke("replay", path, "--generation", 3, "--out", saved).code == 0
    np.testing.assert_array_equal(mpies.Policy.load(saved).parameters, third.parameters)
    assert run.policy(0).generation == 0


def test_the_past_is_that_of_the_run_that_is_there_now(trained, path, tmp_path):
    shutil.copytree(path, tmp_path / "run")
    run = mpies.load(tmp_path / "run")
    before = [run.policy(generation).parameters for generation in (4, 5)]
    shutil.rmtree(tmp_path / "run")
    other = shutil.copytree(trained(f"seed: 9\n{CARTPOLE}"), tmp_path / "run", copy_function=shutil.copyfile)
    after = [run.policy(generation).parameters for generation in (5, 6)]
    for generation, found in zip((5, 6), after, strict=True):
        np.testing.assert_array_equal(found, mpies.load(other).policy(generation).parameters)
    assert not np.array_equal(before[1], after[0])


def test_members_are_those_of_the_metrics_and_are_played_again(run):
    metrics = run.metrics
    for generation in (1, 7):
        members = run.members(generation)
        assert members.returns.shape == members.lengths.shape == (16,)
        assert members.returns.mean() == pytest.approx(metrics["return_mean"][generation - 1])
        assert members.returns.max() == metrics["return_max"][generation - 1]
        assert members.lengths.mean() == pytest.approx(metrics["length_mean"][generation - 1])
        for member in (0, 5):
            played = run.play(generation, member)
            assert played.played == played.recorded == members.returns[member] and played.failures == {}


def test_a_run_is_evaluated_by_its_best_policy_which_plays(run, path, tmp_path):
    np.testing.assert_array_equal(run.best.parameters, load_policy(path / "best.h5").arrays["parameters"])
    evaluation = run.evaluate(episodes=5, seed=3)
    assert evaluation.returns.tolist() == run.best.evaluate(episodes=5, seed=3).returns.tolist()
    returns = run.best.play(tmp_path / "film.gif", seed=3)
    again = show_policy(load_policy(path / "best.h5"), 1, 3, tmp_path / "again.gif")  # gymnasium draws it
    assert returns.tolist() == again.tolist()
    assert (tmp_path / "film.gif").read_bytes().startswith(b"GIF")


def test_a_run_is_shown_by_a_report_a_figure_of_matplotlib_and_a_notebook_without_scripts_or_network(run, tmp_path):
    assert run.report(tmp_path / "report.html") == tmp_path / "report.html"
    assert "CartPole-v1" in (tmp_path / "report.html").read_text()
    figure = run.plot("iteration")
    (axes,) = figure.axes
    assert figure._repr_png_().startswith(b"\x89PNG")  # for notebooks
    np.testing.assert_array_equal(axes.lines[0].get_ydata(), run.metrics["return_mean"])
    with pytest.raises(mpies.ConfigError, match="axis must be one of time, iteration, steps, but is 'rounds'"):
        run.plot("rounds")
    shown = run._repr_html_()
    assert "data:image/png;base64," in shown and "CartPole-v1" in shown and "finished" in shown
    assert "<script" not in shown and "http" not in shown


def test_a_run_is_read_while_it_goes_on_and_after_it_was_killed(write_config, start_mpies, tmp_path):
    write_config(ENDLESS.replace("every: 0", "every: 2"))
    process = start_mpies(0, "train", "config.yaml", "--out", "run")
    wait_for(lambda: (tmp_path / "run" / "config.yaml").exists(), process)
    run = mpies.load(tmp_path / "run")
    assert run.status == "running"
    assert "generation" in run._repr_html_()
    wait_for(lambda: run.generation >= 3, process)
    first = run.metrics["generation"]
    wait_for(lambda: run.generation > len(first) + 5, process)  # the same object sees the new rows
    assert run.policy(3).generation == 3
    newest = len(run.metrics["generation"])
    wait_for(lambda: run.generation > newest, process)
    assert run.policy(newest).generation == newest  # beyond where the ledger ended before
    process.kill()
    process.wait()
    assert run.status == "stale" and run.reason == ""
    assert run.generation == len(run.metrics["return_mean"])
    assert run.best.predict(np.zeros(4))[0] in (0, 1)
    assert run.play(3, 2).played == run.members(3).returns[2]


def test_the_package_of_the_same_name_is_imported_as_before():
    program = """
import mpies
try:
    mpies.runs("nowhere")
except mpies.RunError as error:
    print(error)
import mpies.runs.reader
from mpies.runs.formats import metrics
print(mpies.runs.__name__, mpies.runs.reader.RunView.__name__, callable(mpies.runs), metrics.__name__)
import sys; del sys.modules["mpies"], mpies
import mpies.runs.lock, mpies
print(callable(mpies.runs), "runs" in dir(mpies), sorted(set(mpies.__all__) - set(dir(mpies))))
from mpies import *
print(callable(runs), load.__name__, Policy.__name__)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=HOME)
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "nowhere: there is no such folder; give the one that contains your runs",
        "mpies.runs RunView True mpies.runs.formats.metrics",
        "True True []",
        "True load Policy",
    ]


def test_what_is_no_run_is_refused_in_one_line(path, tmp_path):
    for place, words in (
        (tmp_path / "absent", "no such directory"),
        (tmp_path, "contains no run"),
        (path.parent, f"is a folder with runs; give the directory of a run, such as {path.parent}/"),
        (path / "best.h5", "open policy files with mpies.Policy.load"),
        (tmp_path / ("long" * 100), r"cannot be read \(File name too long\); give the directory of a run"),
    ):
        with pytest.raises(mpies.RunError, match=words) as error:
            mpies.load(place)
        assert str(error.value).startswith(str(place)) and "\n" not in str(error.value)
    with pytest.raises(mpies.RunError, match="there is no such folder"):
        mpies.runs(tmp_path / ("long" * 100))


def test_an_argument_that_is_no_path_is_named_in_one_line(run, path, tmp_path):
    policy, search = run.best, mpies.AskTell("snes", [1.0, 2.0])
    calls = {
        "the path of a run": mpies.load,
        "the folder of runs": mpies.runs,
        "the path of a policy": mpies.Policy.load,
        "path": policy.save,
        "path ": search.save,
        "path  ": mpies.AskTell.load,
        "out": run.report,
        "video": lambda file: run.play(1, 0, video=file),
        "out ": lambda folder: mpies.train("cartpole", out=folder),
        "out  ": lambda folder: mpies.sweep("cartpole", {"solver.sigma": [0.1]}, out=folder),
    }
    for name, call in calls.items():
        for value, shown in ((5, "5"), ([path], "a list of 1"), (b"x", "a bytes")):
            with pytest.raises(mpies.UserError) as caught:
                call(value)
            assert str(caught.value) == f"{name.strip()} must be text or a pathlib.Path, but is {shown}"
    with pytest.raises(mpies.RunError, match=f"but is a Run; give its .path, '{path}'"):
        mpies.Policy.load(run)


def test_a_generation_or_member_that_does_not_exist_is_refused_in_one_line(run):
    for ask in (run.policy, run.members, lambda g: run.play(g, 0)):
        for generation in (11, -1, 1.5, "3", True):
            with pytest.raises(mpies.RunError, match=r"^[^\n]*generation[^\n]*$"):
                ask(generation)
    for member in (16, -1, None):
        with pytest.raises(mpies.RunError, match="member"):
            run.play(2, member)


def test_a_run_without_a_policy_or_a_generation_says_so(tmp_path, path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").write_text((path / "config.yaml").read_text())
    run = mpies.load(tmp_path / "run")
    assert run.status == "stopped" and run.generation == 0
    columns = run.metrics
    assert {len(column) for column in columns.values()} == {0} and "digest" not in columns
    assert list(columns) == list(mpies.load(path).metrics)[: len(columns)]
    assert [len(one.metrics["return_mean"][-1:]) for one in mpies.runs(tmp_path)] == [0]
    with pytest.raises(mpies.RunError, match="no policy yet"):
        _ = run.best
    with pytest.raises(mpies.RunError, match="no generation yet"):
        run.report()
    assert "no generation yet" in run._repr_html_()
