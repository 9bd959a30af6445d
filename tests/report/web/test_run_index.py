"""The runs below a folder as values for JSON: summaries, updates, thinned curves, the end of a log, runs overlaid."""

import gzip
import json
import shutil
from itertools import product
from urllib.parse import urlencode

import numpy as np
import pytest

from mpies.report.web.run_index import TAIL, RunIndex, overlay, summarize_runs
from mpies.report.web.run_update import MAX_POINTS, read_tail, read_update, thin
from mpies.runs.reader import RunView
from tests.report.web.served_runs import HEADER, append, get, line

OVERLAID = """
seed: {seed}
environment: {{id: A-v1}}
solver: {{kind: snes, sigma: {sigma}}}
stop: {{target: {target}}}
evaluation: {{}}
"""


@pytest.fixture
def index(run_folder):
    return RunIndex(run_folder)


def test_every_run_is_listed_with_its_newest_numbers_and_the_list_follows_the_files(index, run_folder):
    listed = {one["name"]: one for one in index.summaries()}
    assert list(listed) == ["first", "group/long", "truncated"]
    long, truncated = listed["group/long"], listed["truncated"]
    assert (long["generation"], long["return_mean"], long["eval_mean"], long["state"]) == (2000, 2000, 150, "stopped")
    assert (long["environment"], long["solver"], long["target"]) == ("LunarLander-v3", "openai_es", 200)
    assert (truncated["environment"], truncated["state"]) == (None, "damaged") and "generation" not in truncated
    assert "reason" not in listed["first"]
    (run_folder / "first" / "finished.yaml").write_text("{reason: solved}")
    append(run_folder / "first/metrics.csv", line(4), line(5)[:20])
    (run_folder / "group/long/config.yaml").write_text("environment: {id: Ant-v5}\n")
    listed = {one["name"]: one for one in index.summaries()}
    assert (listed["first"]["generation"], listed["first"]["environment"]) == (4, "LunarLander-v3")
    assert listed["first"]["reason"] == "solved"
    assert (listed["group/long"]["environment"], listed["group/long"]["target"]) == ("Ant-v5", None)
    assert index.find("second") is None
    (run_folder / "first").rename(run_folder / "second")
    assert index.find("second") is not None
    assert read_update(index.find("truncated"))["columns"] == {}
    (run_folder / "truncated" / "metrics.csv").unlink()
    assert read_update(index.find("truncated"))["columns"] == {}


def test_steps_are_counted_to_the_last_one(index, run_folder):
    """The page shows them as whole numbers."""
    append(run_folder / "first/metrics.csv", line(12345678).replace(f"{12345678 * 800}", "12345678901"))
    update = read_update(index.find("first"))
    assert update["newest"]["steps"] == update["columns"]["steps"][-1] == 12345678901
    assert update["newest"]["generation"] == 12345678


def test_an_update_follows_the_files_and_a_long_run_is_thinned(index, run_folder):
    update = read_update(index.find("group/long"))
    assert update["per_point"] == 5 and len(update["columns"]["generation"]) == MAX_POINTS
    assert update["columns"]["generation"][-1] == 2000 and update["columns"]["return_min"][0] == -4
    assert update["columns"]["return_max"][0] == 10 and update["columns"]["return_mean"][0] == 3
    assert update["newest"]["return_mean"] == 2000 and update["newest"]["eval_mean"] == 150  # not the mean of several
    assert update["columns"]["eval_interval"][0] == pytest.approx(1.96 * 20 / 10)
    assert update["target"] == 200 and update["files"] == ["best.h5", "metrics.csv", "log.txt", "config.yaml"]
    append(run_folder / "group/long/metrics.csv", line(2001), line(2002)[:20])
    append(run_folder / "group/long/log.txt", "more\n")
    config = run_folder / "group/long/config.yaml"
    config.write_text(config.read_text().replace("target: 200", "target: null"))
    update = read_update(index.find("group/long"))
    assert update["columns"]["generation"][-1] == 2001 and update["log"].endswith("more\n")
    assert update["target"] is None and "target: null" in update["config"]
    (run_folder / "group/long/metrics.csv").write_text("generation,seconds\n1,2\n")
    update = read_update(index.find("group/long"))
    assert update["per_point"] == 1 and update["columns"] == {"generation": [1], "seconds": [2]}


def test_an_evaluation_that_is_long_ago_is_found_with_its_interval(index, run_folder):
    """Also by the next look, when the file has grown or was replaced."""
    metrics = run_folder / "first" / "metrics.csv"
    rows = "".join(line(number) for number in range(1, 1000) if number % 5)
    metrics.write_text(HEADER + line(5) + rows)
    assert metrics.stat().st_size > 4 * TAIL
    assert {run["path"]: run.get("eval_mean") for run in summarize_runs(run_folder)}[str(run_folder / "first")] == 150
    for new, mean in (("", 150), (line(1001), 150), (line(1005).replace(",150,", ",170,") + rows, 170)):
        append(metrics, new)
        first = index.summaries()[0]
        assert (first["eval_mean"], first["eval_interval"]) == (mean, pytest.approx(1.96 * 20 / 10))
    append(metrics, line(1010).replace(",100,0.1,", ",1,0.1,"))  # a single episode
    assert "eval_interval" not in index.summaries()[0]
    metrics.with_suffix(".new").write_text(HEADER + rows)
    metrics.with_suffix(".new").replace(metrics)  # another run
    assert "eval_mean" not in index.summaries()[0]


def test_the_metrics_of_another_program_do_not_disturb(index, run_folder):
    metrics, compared = run_folder / "first/metrics.csv", (["first", "group/long"], "seconds", "")
    for name in ("seconds", "eval_mean"):
        metrics.write_text((HEADER + line(5)).replace(f",{name},", f",my_{name},"))
        assert index.read_overlay(*compared)["runs"] == 1
    metrics.write_text("epoch,loss\n1,0.5\n")
    assert read_update(index.find("first"))["columns"].keys() == {"epoch", "loss"}
    assert index.read_overlay(*compared)["runs"] == 1


def test_thinning_keeps_extremes_and_gaps():
    values = np.array([3.0, np.nan, 1.0, np.nan, np.nan])
    for name in ("return_min", "return_max", "sigma"):
        np.testing.assert_array_equal(thin(name, values, 2), [3, 1, np.nan])
        np.testing.assert_array_equal(thin(name, values, 1), values)
    np.testing.assert_array_equal(thin("steps", np.arange(5.0), 2), [1, 3, 4])
    extremes = np.array([2.0, 5.0, 4.0])
    assert [thin(name, extremes, 2)[0] for name in ("return_min", "return_max", "sigma")] == [2, 5, 3.5]


def test_a_long_log_begins_near_its_end_with_a_complete_line(run_folder):
    lines = [f"line {number}\n" for number in range(5000)]
    (run_folder / "first" / "log.txt").write_text("".join(lines))
    tail = read_tail(RunView(run_folder, "first"), "log.txt")
    assert "".join(lines).endswith(tail) and TAIL - 20 < len(tail) < TAIL
    assert tail.splitlines()[0] in map(str.strip, lines)


def test_a_quotation_mark_in_a_damaged_cell_hides_no_other_row(index, run_folder):
    metrics = run_folder / "first/metrics.csv"
    rows = [line(number) for number in range(6, 2000) if number % 5]
    for count in (4, len(rows)):  # few, and more than a cell of CSV may have
        metrics.write_text(HEADER + line(4).replace("4,", '4,"', 1) + "".join(rows[:count]))
        first = index.summaries()[0]
        assert first["generation"] == int(rows[count - 1].split(",")[0])


def test_seeds_are_a_median_in_a_band(make_curves):
    seeds = [make_curves([float(seed), 3.0 * seed], seed=seed, reason="solved", target=4.0) for seed in (1, 2, 3)]
    found = overlay([*seeds, make_curves([9.0, 8.0], kind="ars")], "generation", "")
    assert found["drawn"] == "eval_mean" and found["groups"] == 2
    (panel,) = found["tasks"]
    assert panel["x"] == [1, 2] and panel["targets"] == [4]
    curves = {curve["label"]: curve for curve in panel["curves"]}
    snes = curves["snes"]
    assert (snes["low"], snes["mid"], snes["high"]) == ([1.5, 4.5], [2, 6], [2.5, 7.5])
    assert snes["seeds"] == [1, 2, 3] and curves["ars"]["mid"] == [9, 8]


def test_repeated_runs_are_counted_those_without_values_not_drawn_and_unfinished_ones_end_a_group(make_curves):
    runs = [make_curves([1.0] * count, path=str(count)) for count in (2, 3, 1)]
    found = overlay([*runs, make_curves([1.0], seed=2)], "generation", "")
    assert found["repeated"] == 2 and found["tasks"][0]["curves"][0]["seeds"] == [1, 2]
    found = overlay([make_curves([None])], "generation", "sigma")
    assert found["drawn"] == "return_mean" and found["groups"] == 1
    assert overlay([], "generation", "")["tasks"] == []
    runs = [make_curves([1.0, 2.0], seed=1), make_curves([1.0, 2.0, 3.0, 4.0], seed=2, reason="generations")]
    (panel,) = overlay(runs, "generation", "")["tasks"]
    assert panel["x"] == [1, 2] and panel["curves"][0]["mid"] == [1, 2]


def test_however_many_runs_are_compared_an_answer_stays_small(make_curves):
    random = np.random.default_rng(0)
    runs = [make_curves(random.normal(size=300).tolist(), seed=k % 5, sigma=k // 5, path=f"s{k}") for k in range(300)]
    found = overlay(runs, "steps", "eval_mean")
    assert found["groups"] == 60
    assert len(gzip.compress(json.dumps(found, separators=(",", ":")).encode(), 5)) < 50_000


def make_run(folder, sigma, seed, target=9):
    """Make a run of a sweep with the numbers of `first`.  Returns its name."""
    name = f"sweep/sigma={sigma}_target={target}_seed={seed}"
    shutil.copytree(folder / "first", folder / name)
    (folder / name / "config.yaml").write_text(OVERLAID.format(sigma=sigma, seed=seed, target=target))
    return name


def test_the_server_follows_the_runs_and_compares_nothing_outside_the_folder(server, run_folder):
    names = [make_run(run_folder, sigma, seed) for sigma, seed in product((0.1, 0.2), (1, 2))]
    query = urlencode([("run", name) for name in (*names, "absent", "truncated", "../secret.txt", "/etc")])
    path = f"/api/compare?axis=steps&drawn=return_mean&{query}"
    status, content = get(server, path)
    found = json.loads(content)
    assert status == 200 and (found["runs"], found["groups"]) == (4, 2)
    curves = found["tasks"][0]["curves"]
    assert [curve["label"] for curve in curves] == ["sigma 0.1", "sigma 0.2"] and curves[0]["mid"][-1] == 3
    assert get(server, path)[1] == content
    for name in names[:2]:
        append(run_folder / name / "metrics.csv", line(4))
    assert json.loads(get(server, path)[1])["tasks"][0]["curves"][0]["mid"][-1] == 4


def test_settings_of_a_sweep_that_differ_in_stop_alone_are_groups(index, run_folder):
    """A setting that trains for longer must not hide one that ends sooner.  Beside other runs both are one config."""
    names, rows = [], ["stop.target,checkpoint.every,seed,state,name\n"]
    for target, seed in product((5, 9), (1, 2)):
        names.append(make_run(run_folder, 0.1, seed, target))
        rows.append(f"{target},10,{seed},finished,{names[-1].removeprefix('sweep/')}\n")
    (run_folder / "sweep/sweep.yaml").touch()
    (run_folder / "sweep/trials.csv").write_text("".join(rows))
    assert [one["name"] for one in index.summaries() if one["name"].startswith("sweep/")] == names
    found = index.read_overlay(names, "generation", "return_mean")
    assert [curve["label"] for curve in found["tasks"][0]["curves"]] == ["target 5", "target 9"]
    assert found["repeated"] == 0
    beside = index.read_overlay([*names, "first"], "generation", "return_mean")
    assert beside["repeated"] == 2 and beside["groups"] == 2
