"""Reading a run while it is written: files that are cut off, replaced, linked or absent."""

import errno
import io
import json
import os

import numpy as np
import pytest

from mpies.core.errors import RunError
from mpies.runs.lock import Lock
from mpies.runs.reader import RunView, find_runs, is_run, open_inside, read_run_config
from mpies.runs.snapshot import half_interval
from tests.support import CARTPOLE

HEADER = "generation,seconds,return_mean,eval_std,eval_episodes,digest\n"


@pytest.fixture
def run(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "config.yaml").write_text("seed: 3\nversions: {numpy: 2.0.0}\n")
    (tmp_path / "a" / "metrics.csv").write_text(HEADER + "1,0.5,-3,,,ab\n2,1.0,nan,4,100,cd\n3,1.5,2")
    return RunView(tmp_path, "a")


def test_complete_lines_are_columns_and_one_that_is_cut_off_waits_for_its_end(run, tmp_path):
    columns = run.metrics.refresh().columns
    assert list(columns) == HEADER.strip().split(",")[:-1]
    np.testing.assert_array_equal(columns["return_mean"], [-3, np.nan])
    intervals = half_interval(columns["eval_std"], columns["eval_episodes"])
    np.testing.assert_array_equal(intervals, [np.nan, 1.96 * 4 / 10])
    with open(tmp_path / "a" / "metrics.csv", "a") as file:
        file.write(",,,ef\n4,2.0,garbage\n5,2.5,oops,,,ef\n")
    columns = run.metrics.refresh().columns
    np.testing.assert_array_equal(columns["generation"], [1, 2, 3, 5])
    np.testing.assert_array_equal(columns["return_mean"], [-3, np.nan, 2, np.nan])


def test_only_new_lines_are_read_unless_the_file_was_replaced(run, tmp_path):
    file = tmp_path / "a" / "metrics.csv"
    columns = run.metrics.refresh().columns
    complete = HEADER + "1,0.5,-3,,,ab\n2,1.0,nan,4,100,cd\n"
    other = file.with_name("other")
    other.write_text(complete + "3,9,9,,,ef\n")
    os.replace(other, file)  # as a resume writes it
    assert len(run.metrics.refresh()) == 3 and run.metrics.columns is columns
    file.write_text(HEADER + "1,0.7,-4,,,xy\n")
    assert len(run.metrics.refresh()) == 1 and run.metrics.columns is not columns
    assert run.metrics.columns["return_mean"][0] == -4


def test_a_file_that_cannot_be_read_is_not_an_absent_one(run, monkeypatch):
    class Refused(io.BytesIO):
        def read(self, *_):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(RunView, "open", lambda *_: Refused())
        with pytest.raises(RunError, match=r"^metrics.csv: cannot be read \(Input/output error\); try again$"):
            run.metrics.refresh()
    assert len(run.metrics.refresh()) == 2
    with monkeypatch.context() as patch:
        patch.setattr(RunView, "open", lambda *_: Refused())
        patch.setattr(RunView, "stamp", lambda *_: (1, 2, 3))
        with pytest.raises(RunError):
            run.metrics.refresh()
    assert len(run.metrics.refresh()) == 2  # what was known is kept


def test_an_empty_or_damaged_run_can_be_read_too(tmp_path):
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
    assert run.state() == "finished" and run.status() == "solved"
    (tmp_path / "a" / "finished.yaml").unlink()
    gone = {"job": "", "token": "", "host": "elsewhere", "boot": "", "namespace": "", "pid": 1, "start": 1, "beat": 0}
    (tmp_path / "a" / "writer.json").write_text(json.dumps(gone))
    assert run.state() == "stale"


def test_runs_are_found_in_folders_also_below_a_config_that_a_user_wrote_and_not_through_links(run, tmp_path):
    (tmp_path / "group" / "b").mkdir(parents=True)
    (tmp_path / "group" / "b" / "config.yaml").write_text("")
    (tmp_path / "linked").symlink_to(tmp_path / "a")
    assert find_runs(tmp_path) == ["a", "group/b"]
    assert find_runs(tmp_path / "a") == ["."]
    (tmp_path / "config.yaml").write_text("environment: {id: CartPole-v1}\n")
    assert not is_run(tmp_path) and is_run(tmp_path / "a")
    assert find_runs(tmp_path) == ["a", "group/b"]
    (tmp_path / "a" / "config.yaml").write_text("damaged")
    assert is_run(tmp_path / "a") and find_runs(tmp_path) == ["a", "group/b"]  # it has metrics


def test_nothing_outside_of_the_folder_is_opened(run, tmp_path):
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


def test_a_run_has_a_log_its_ranks_and_its_columns(trained):
    run = RunView(trained(CARTPOLE))
    assert run.text("log.txt").count("INFO rank 0: generation ") == 10
    assert run.ranks()["last"] == 10 and len(run.ranks()["idle"]) == 1 and 0 <= run.ranks()["idle"][0] <= 1
    columns = run.metrics.refresh().columns
    assert ((columns["idle_mean"] >= 0) & (columns["idle_mean"] <= columns["idle_max"])).all()
    assert columns["eval_episodes"][1] == 5 and columns["eval_length"][1] > 1 and 0 <= columns["eval_rank"][1] <= 1
    assert run.state() == "finished"


@pytest.mark.parametrize("content", [None, "", "[]", "a: [", "\x00"])
def test_a_config_that_cannot_be_read_is_one_line(content, tmp_path):
    if content is not None:
        (tmp_path / "config.yaml").write_text(content)
    with pytest.raises(RunError, match=r"config\.yaml: cannot be read \([^\n]*\); is .* a run\?$"):
        read_run_config(tmp_path)
