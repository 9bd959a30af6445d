"""Reading a run while it is written: what is torn, replaced, linked or gone."""

import json
import os

import numpy as np
import pytest

from mpies.runs.lock import Lock
from mpies.runs.reader import RunView, find_runs, intervals, open_inside

HEADER = "generation,seconds,return_mean,eval_std,eval_episodes,digest\n"


@pytest.fixture
def run(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "config.yaml").write_text("seed: 3\nversions: {numpy: 2.0.0}\n")
    (tmp_path / "a" / "metrics.csv").write_text(HEADER + "1,0.5,-3,,,ab\n2,1.0,nan,4,100,cd\n3,1.5,2")
    return RunView(tmp_path, "a")


def test_whole_lines_are_columns_and_a_torn_one_waits_for_its_end(run, tmp_path):
    columns = run.metrics.refresh().columns
    assert list(columns) == HEADER.strip().split(",")[:-1]
    np.testing.assert_array_equal(columns["return_mean"], [-3, np.nan])
    np.testing.assert_array_equal(intervals(columns), [np.nan, 1.96 * 4 / 10])
    with open(tmp_path / "a" / "metrics.csv", "a") as file:
        file.write(",,,ef\n4,2.0,garbage\n5,2.5,oops,,,ef\n")
    columns = run.metrics.refresh().columns
    np.testing.assert_array_equal(columns["generation"], [1, 2, 3, 5])
    np.testing.assert_array_equal(columns["return_mean"], [-3, np.nan, 2, np.nan])
    assert run.metrics.version == 0


def test_only_what_is_new_is_read_until_the_file_is_another_one(run, tmp_path):
    file = tmp_path / "a" / "metrics.csv"
    run.metrics.refresh()
    whole = HEADER + "1,0.5,-3,,,ab\n2,1.0,nan,4,100,cd\n"
    other = file.with_name("other")
    other.write_text(whole + "3,9,9,,,ef\n")
    os.replace(other, file)  # as a resume writes it
    assert len(run.metrics.refresh()) == 3 and run.metrics.version == 0
    file.write_text(HEADER + "1,0.7,-4,,,xy\n")
    assert len(run.metrics.refresh()) == 1 and run.metrics.version == 1
    assert run.metrics.columns["return_mean"][0] == -4


def test_an_empty_or_damaged_run_is_readable_too(tmp_path):
    for name in ("config.yaml", "finished.yaml", "writer.json", "ranks.json", "metrics.csv"):
        (tmp_path / name).write_bytes(b"\xff{[: \0")
    view = RunView(tmp_path)
    assert (view.config(), view.finished(), view.writer(), view.ranks()) == ({}, {}, {}, {})
    assert len(view.metrics.refresh()) == 0 and view.state() == "stopped" and view.silence() is None


def test_the_state_follows_the_writer(run, tmp_path):
    assert run.state() == "stopped"
    writer = Lock(tmp_path / "a")
    writer.acquire()
    assert run.state() == "running" and run.silence() < 5
    writer.release()
    (tmp_path / "a" / "finished.yaml").write_text("reason: solved\n")
    assert run.state() == "finished"
    (tmp_path / "a" / "finished.yaml").unlink()
    gone = {"job": "", "token": "", "host": "elsewhere", "boot": "", "pid": 1, "start": 1, "beat": 0}
    (tmp_path / "a" / "writer.json").write_text(json.dumps(gone))
    assert run.state() == "stale"


def test_runs_are_found_in_folders_and_not_through_links(run, tmp_path):
    (tmp_path / "group" / "b").mkdir(parents=True)
    (tmp_path / "group" / "b" / "config.yaml").write_text("")
    (tmp_path / "linked").symlink_to(tmp_path / "a")
    assert find_runs(tmp_path) == ["a", "group/b"]
    assert find_runs(tmp_path / "a") == ["."]


def test_nothing_outside_is_opened(run, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("s")
    inside = tmp_path / "a"
    (inside / "link").symlink_to(secret)
    (inside / "folder").symlink_to(tmp_path)
    os.mkfifo(inside / "pipe")
    for name in ("link", "folder/secret", "../secret", "x/../../secret", str(secret), "pipe", "", ".", "absent"):
        with pytest.raises(OSError):
            open_inside(inside, name)
    assert open_inside(inside, "config.yaml").read().startswith(b"seed")
