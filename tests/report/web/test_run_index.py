"""The runs below a folder as values for JSON: summaries, updates, thinned curves, the end of a log."""

import numpy as np
import pytest

from mpies.report.web.run_index import TAIL, RunIndex, summarize_runs
from mpies.report.web.run_update import MAX_POINTS, read_tail, read_update, thin
from mpies.runs.reader import RunView
from tests.report.web.served_runs import HEADER, line


@pytest.fixture
def index(run_folder):
    return RunIndex(run_folder)


def test_every_run_is_listed_with_its_newest_numbers(index):
    listed = {one["name"]: one for one in index.summaries()}
    assert list(listed) == ["first", "group/long", "truncated"]
    long, truncated = listed["group/long"], listed["truncated"]
    assert (long["generation"], long["return_mean"], long["eval_mean"], long["state"]) == (2000, 2000, 150, "stopped")
    assert (long["environment"], long["solver"], long["target"]) == ("LunarLander-v3", "openai_es", 200)
    assert (truncated["environment"], truncated["state"]) == (None, "damaged") and "generation" not in truncated


def test_the_list_follows_the_files(index, run_folder):
    assert "reason" not in index.summaries()[0]
    (run_folder / "first" / "finished.yaml").write_text("{reason: solved}")
    with open(run_folder / "first" / "metrics.csv", "a") as file:
        file.write(line(4) + line(5)[:20])
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
    with open(run_folder / "first/metrics.csv", "a") as file:
        file.write(line(12345678).replace(f"{12345678 * 800}", "12345678901"))
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
    with open(run_folder / "group/long/metrics.csv", "a") as file:
        file.write(line(2001) + line(2002)[:20])
    with open(run_folder / "group/long/log.txt", "a") as file:
        file.write("more\n")
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
        with open(metrics, "a") as file:
            file.write(new)
        first = index.summaries()[0]
        assert (first["eval_mean"], first["eval_interval"]) == (mean, pytest.approx(1.96 * 20 / 10))
    with open(metrics, "a") as file:
        file.write(line(1010).replace(",100,0.1,", ",1,0.1,"))  # a single episode
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
