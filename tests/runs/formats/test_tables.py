"""metrics.csv: what is complete is read.  evaluations.csv has each held-out episode once, whatever is cut off."""

import json
import os

import numpy as np
import pytest

from mpies.runs.files import keep_aside
from mpies.runs.formats.metrics import format_header, format_return, format_row, read_digests, read_metrics
from mpies.runs.formats.tables import EvaluationsFile, RanksFile, read_history
from mpies.runs.snapshot import Evaluation
from tests.runs.conftest import make_snapshot, record
from tests.support import read_csv

CUT_OFF = ["", "3,", "3,4.5", "3,4.5,0.1", "3,4.5,0.1,ab"]
DAMAGED = ["1;2,3,x", "q,2,3,x", ",2,3,x", "-1,2,3,x", "1,2,3,x,", "\0,2,3,x", "1.0,2,3,x", "9" * 5000 + ",2,3,x"]


@pytest.mark.parametrize(("first", "last"), [*(("1,2,3,x", last) for last in CUT_OFF), *((one, "") for one in DAMAGED)])
def test_a_line_of_metrics_that_is_cut_off_or_damaged_is_left_out(tmp_path, first, last):
    (tmp_path / "metrics.csv").write_text(f"generation,seconds,mean,digest\n{first}\n2,3,4,y\n{last}")
    complete = {"2": "y"} if first in DAMAGED else {"1": "x", "2": "y"}
    assert [row["generation"] for row in read_metrics(tmp_path)] == [*complete]
    assert read_digests(tmp_path) == [*complete.values()]


def test_without_a_file_or_its_header_there_are_no_metrics(tmp_path):
    assert read_metrics(tmp_path) == []
    for content in ("generation,sec", "genera4ion,seconds,mean,digest\n1,2,3,x\n"):
        (tmp_path / "metrics.csv").write_text(content)
        assert read_metrics(tmp_path) == []


def test_metrics_are_read_as_they_were_written(tmp_path):
    columns = ["generation", "seconds", "eval_mean", "failures", "ratio", "digest"]
    row = {"generation": 3, "seconds": 0.123456789012, "failures": True, "ratio": float("nan"), "digest": "ab"}
    (tmp_path / "metrics.csv").write_text(format_header(columns) + format_row(columns, row))
    read = {"seconds": "0.123456789", "eval_mean": "", "failures": "1", "ratio": "nan", "digest": "ab"}
    assert read_metrics(tmp_path) == [{"generation": "3", **read}]
    assert format_row(columns, read_metrics(tmp_path)[0]) == format_row(columns, row)


def test_a_return_has_as_many_digits_as_it_needs():
    shown = {-0.0: "0.00", -1e-6: "-1e-06", -0.0012345: "-0.00123", 0.1: "0.10", -123.456: "-123.46", 1e15: "1e+15"}
    assert {value: format_return(value) for value in shown} == shown


HEADER = "generation,seconds,return,length\n"
EVALUATION = Evaluation.of(np.array([1.5, np.nan, 1 / 3]), np.array([10, 0, 12]))


def write(path, generation, *numbers):
    episodes = read_history(path.parent).episodes_until(generation)
    file = EvaluationsFile(path, episodes, generation + 1, keep_aside)
    for number in numbers:
        file.add_episodes({"generation": number, "seconds": 0.5 * number}, EVALUATION)
    return file


def generations(path):
    """Of the rows, in order."""
    return [int(row["generation"]) for row in read_csv(path)]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "evaluations.csv"


def test_each_episode_that_worked_has_a_row_and_what_is_newer_than_the_run_is_evaluated_again(path):
    write(path, 0, 1)
    assert path.read_text() == f"{HEADER}1,0.5,1.5,10\n1,0.5,0.333333333,12\n"
    write(path, 1, 2, 3)
    write(path, 2, 3, 4)
    assert generations(path) == [1, 1, 2, 2, 3, 3, 4, 4]


def test_a_row_that_was_cut_off_or_damaged_costs_no_other_one_and_line_ends_of_a_spreadsheet_cost_none(path):
    write(path, 0, 1, 2)
    path.write_bytes(path.read_bytes()[:-4])
    write(path, 1, 2)
    assert generations(path) == [1, 1, 2, 2]
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:3], "\0" + lines[3], *lines[4:]]))
    write(path, 2, 3)
    assert generations(path) == [1, 1, 2, 3, 3]
    for content in (HEADER[:5], "1,2\n3,4\n"):  # also another file of that name
        path.write_text(content)
        write(path, 1, 2)
        assert generations(path) == [2, 2]
    write(path, 0, 1, 2)
    before = path.read_bytes()
    path.write_bytes(before.replace(b"\n", b"\r\n"))
    write(path, 2)
    assert path.read_bytes() == before


def test_all_of_a_generation_is_on_disk_before_its_checkpoint(run, monkeypatch):
    """Else a machine that loses power would go on behind a generation that it has lost."""
    synced, sync = [], os.fsync

    def note(descriptor):
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}").rpartition("/")[2])
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    snapshot = make_snapshot(1, evaluation=EVALUATION)
    record(run, snapshot)
    assert run.checkpoint(snapshot)
    is_checkpoint = [name.startswith(".generation-") for name in synced]
    assert {"ledger.bin", "evaluations.csv", "metrics.csv"} <= {*synced[: is_checkpoint.index(True)]}


def test_idle_shares_are_means_of_generations_on_as_many_ranks(tmp_path):
    """What was measured before ranks were lost is of other ranks."""
    file = RanksFile(tmp_path / "ranks.json")
    for generation, idle in enumerate([[0.5, 0.5], [0.25, 0.75], [0.0, 0.5], [0.5], [0.25]], 1):
        file.write(np.array(idle), generation, now=generation in (1, 5))
        written = json.loads((tmp_path / "ranks.json").read_text())
        assert written.pop("crc32")
        assert written == ({"first": 1, "last": 1, "idle": [0.5, 0.5]} if generation < 5 else written)
    assert written == {"first": 4, "last": 5, "idle": [0.375]}
