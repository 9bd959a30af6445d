"""evaluations.csv has a row for each held-out episode, once, whatever is cut off or refused."""

import csv
import json
import os

import numpy as np
import pytest

from mpies.runs.files import keep_aside
from mpies.runs.formats.tables import EvaluationsFile, RanksFile, read_history
from mpies.runs.snapshot import Evaluation
from tests.runs.conftest import make_snapshot, record

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
    return [int(row["generation"]) for row in csv.DictReader(path.read_text().splitlines())]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "evaluations.csv"


def test_each_episode_that_worked_has_a_row_and_what_is_newer_than_the_run_is_evaluated_again(path):
    write(path, 0, 1)
    assert path.read_text() == f"{HEADER}1,0.5,1.5,10\n1,0.5,0.333333333,12\n"
    write(path, 1, 2, 3)
    write(path, 2, 3, 4)
    assert generations(path) == [1, 1, 2, 2, 3, 3, 4, 4]


def test_a_row_that_was_cut_off_or_damaged_costs_no_other_one(path):
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


def test_the_line_ends_of_a_spreadsheet_cost_no_row(path):
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
