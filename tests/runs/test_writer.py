"""The order and completeness of what a RunWriter puts on disk, also where the disk refuses."""

import os
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
import yaml

from mpies.core.errors import ConfigError, RunError
from mpies.runs import writer
from mpies.runs.directory import open_run
from mpies.runs.files import write_atomically
from mpies.runs.formats import hdf5, ledger
from mpies.runs.formats.checkpoint import list_checkpoints
from mpies.runs.formats.metrics import COLUMNS, read_digests, read_metrics
from mpies.runs.machine import describe_machine, find_processor, machines_of
from mpies.runs.reader import RunView, is_run
from mpies.runs.snapshot import Evaluation
from mpies.runs.trackers.base import Trackers
from mpies.runs.trackers.json_lines import JsonLines
from mpies.runs.writer import RunWriter
from tests.runs.conftest import CONFIG, make_snapshot, record
from tests.support import read_csv, read_files


@pytest.mark.parametrize(
    ("since", "refused"),
    [
        (1, ["metrics.csv"]),  # its header
        (1, ["metrics.csv", "metrics.csv", "ledger.bin", "metrics.csv"]),
        (1, ["best.h5"]),
        (4, ["metrics.csv"]),
        (4, ["policy.h5", "policy.h5"]),
        (4, ["generation-00000004.h5", "finished.yaml"]),
        (0, ["generation-00000000.h5", "generation-00000000.h5"]),  # before the first generation
    ],
)
def test_whatever_was_refused_is_written_later(since, refused, refusals, tmp_path):
    warnings = []
    run = open_run(tmp_path / "run", CONFIG)
    run.warn = warnings.append
    unfinished = run.path / "checkpoints" / ".generation-00000001.h5.123.tmp"
    unfinished.touch()  # by a job that was killed
    refusals += refused if since == 0 else []
    run.begin(make_snapshot(0))
    for generation in (1, 2, 3, 4):
        if generation == since:
            refusals += refused
        record(run, make_snapshot(generation, is_best=generation == 1), is_last=generation == 4)
    while not run.finish("generations", make_snapshot(4), steps=99):
        assert len(warnings) < 9
    run.close()
    assert not refusals and not unfinished.exists()
    assert warnings[-1].endswith("can be written again; nothing is lost")
    assert [row["generation"] for row in read_metrics(run.path)] == ["1", "2", "3", "4"]
    assert [int(arrays["generation"]) for arrays in ledger.read_records(run.path / "ledger.bin")] == [1, 2, 3, 4]
    expected = {"best.h5": 1, "policy.h5": 4, "checkpoints/generation-00000000.h5": 0}
    for name, generation in (expected | {"checkpoints/generation-00000004.h5": 4}).items():
        assert hdf5.read(run.path / name)[1]["generation"] == generation
    outcome = yaml.safe_load((run.path / "finished.yaml").read_text())
    assert outcome == {"reason": "generations", "generation": 4, "steps": 99}


@pytest.mark.parametrize(
    ("section", "cost", "last", "expected"),
    [
        ({"every": 1}, 1, 119, {0, 1, 50, 99}),  # a second each, which is to be one in fifty
        ({"every": 10, "seconds": 3.0, "share": 1, "keep": 2}, 0, 11, {0, 3, 6, 9, 10}),
    ],
)
def test_a_checkpoint_is_due_every_few_generations_or_seconds_unless_it_takes_too_long(
    section, cost, last, expected, monkeypatch, tmp_path
):
    now, seen = [0.0], set()
    monkeypatch.setattr(writer.time, "monotonic", lambda: now[0])

    def write_slowly(path, content, sync=True):
        write_atomically(path, content, sync)
        now[0] += cost * (path.parent.name == "checkpoints")

    monkeypatch.setattr(writer, "write_atomically", write_slowly)
    config = CONFIG.model_copy(update={"checkpoint": CONFIG.checkpoint.model_copy(update=section)})
    run = open_run(tmp_path / "run", config)
    run.begin(make_snapshot(0))
    for generation in range(1, last + 1):
        now[0] += 1
        record(run, make_snapshot(generation))
        seen |= {int(path.name[11:19]) for path in list_checkpoints(run.path)}
    run.close()
    assert seen == expected
    kept = [0, *sorted(expected - {0})[-config.checkpoint.keep :]]
    assert [int(path.name[11:19]) for path in list_checkpoints(run.path)] == kept[::-1]


def test_a_row_is_written_behind_its_record_of_the_ledger_and_trackers_are_told_when_it_is_there(refusals, run):
    told = []
    note = lambda row: told.append((row["generation"], len(read_metrics(run.path))))  # noqa: E731
    run._trackers = SimpleNamespace(append=note, resume=lambda rows: None, close=lambda reason: None)
    record(run, make_snapshot(1))
    refusals.append("metrics.csv")
    record(run, make_snapshot(2))
    assert [row["generation"] for row in read_metrics(run.path)] == ["1"] and told == [(1, 1)]
    assert [int(arrays["generation"]) for arrays in ledger.read_records(run.path / "ledger.bin")] == [1, 2]
    assert [int(arrays["generation"]) for arrays in run.load()[1]] == [1, 2]  # the ledger tells what is on disk
    record(run, make_snapshot(3))
    assert told == [(1, 1), (2, 2), (3, 3)]


def test_a_loaded_run_is_the_newest_checkpoint_and_the_records_behind_it(run):
    record(run, *map(make_snapshot, range(1, 14)))
    (arrays, attributes), records = run.load()
    assert attributes["generation"] == 10
    assert arrays["solver/mean"].tolist() == [10, 10] and arrays["best"] == 1.0
    assert [int(record["generation"]) for record in records] == [11, 12, 13]
    assert str(records[0]["digest"]) == read_digests(run.path)[10]


def test_what_lies_behind_the_generation_that_a_run_goes_on_from_is_removed(run):
    record(run, *map(make_snapshot, (1, 2, 3)))
    run.lock.release()
    other = RunWriter(run.path, CONFIG)
    other.lock.acquire()
    other.begin(make_snapshot(2))
    assert [row["generation"] for row in read_metrics(run.path)] == ["1", "2"]
    record(other, make_snapshot(3, results={"returns": np.zeros(9)}))
    assert [row["generation"] for row in read_metrics(run.path)] == ["1", "2", "3"]
    records = list(ledger.read_records(run.path / "ledger.bin"))
    assert len(records) == 3 and records[2]["returns"].shape == (9,)
    other.close()


def test_the_row_has_the_digest_of_the_state_and_the_columns_in_their_order(run):
    snapshot = make_snapshot(1, row={"generation": 1, "sigma": 0.1, "return_mean": None, "seconds": 0.25})
    record(run, snapshot)
    (cells,) = read_csv(run.path / "metrics.csv")
    assert list(cells) == [*COLUMNS, "sigma"]
    assert cells["digest"] == hdf5.digest(snapshot.state) and "digest" not in snapshot.row
    assert (cells["generation"], cells["seconds"], cells["sigma"], cells["return_mean"]) == ("1", "0.25", "0.1", "")


def test_what_a_solver_reports_only_later_gets_a_column_that_is_empty_before(run):
    metrics = RunView(run.path).metrics
    for generation, reported in ((1, {"sigma": 0.1}), (2, {"late": 2.0}), (3, {"sigma": 0.3, "late": 3.0})):
        record(run, make_snapshot(generation, row={"generation": generation, "seconds": 1.0, **reported}))
        metrics.refresh()  # as one that follows the run
    assert metrics.columns["generation"].tolist() == [1, 2, 3]
    assert [(row["sigma"], row["late"]) for row in read_metrics(run.path)] == [("0.1", ""), ("", "2"), ("0.3", "3")]
    assert [int(arrays["generation"]) for arrays in ledger.read_records(run.path / "ledger.bin")] == [1, 2, 3]


def test_a_checkpoint_of_a_generation_that_was_not_recorded_is_not_written(run):
    record(run, make_snapshot(1))
    assert run.checkpoint(None)
    assert len(list_checkpoints(run.path)) == 1 and not (run.path / "policy.h5").exists()
    assert run.checkpoint(make_snapshot(1))
    assert [path.name[11:19] for path in list_checkpoints(run.path)] == ["00000001", "00000000"]
    assert hdf5.read(list_checkpoints(run.path)[0])[1]["digest"] == hdf5.digest(make_snapshot(1).state)


def test_a_policy_names_the_evaluation_of_its_generation_and_the_packages_that_change_bits(run):
    evaluation = Evaluation(np.array([1.0, 4.0]), np.array([5, 6]))
    record(run, make_snapshot(1), make_snapshot(2, evaluation=evaluation, is_best=True))
    attributes = hdf5.read(run.path / "best.h5")[1]
    assert (attributes["generation"], attributes["eval_mean"], attributes["eval_episodes"]) == (2, 2.5, 2)
    assert yaml.safe_load(attributes["config"])["environment"]["dimension"] == 2
    assert set(yaml.safe_load(attributes["versions"])) >= {"python", "mpies", "numpy", "gymnasium", "mpi4py", "cma"}


def test_training_goes_on_while_a_generation_is_written(monkeypatch, run):
    """`record` returns before the digest is computed; `flush` waits for it."""
    go_on, digest, began = threading.Event(), hdf5.digest, time.monotonic()
    monkeypatch.setattr(hdf5, "digest", lambda arrays: go_on.wait(300) and digest(arrays))
    run.record(make_snapshot(1), is_last=False)
    assert read_metrics(run.path) == []
    go_on.set()
    run.flush()
    assert len(read_metrics(run.path)) == 1
    assert 0 < run.seconds < time.monotonic() - began


def test_starts_are_counted_and_the_newest_generation_is_played_again_where_the_ledger_reaches_it(run):
    for generation in (1, 2, 3):
        record(run, make_snapshot(generation, row={"generation": generation, "seconds": 1.0, "starts": 2}))
    for ledger_is_there, expected in ((True, (3, 2)), (False, (None, 0))):
        run.close()
        if not ledger_is_there:
            os.truncate(run.path / "ledger.bin", 0)
        run = open_run(run.path, CONFIG)
        records = run.load(lambda row: True)[1]
        assert (run.again, len(records)) == expected and run.starts == 3
    run.close()


def test_a_run_whose_start_is_not_on_disk_gives_way_to_one_of_another_config(tmp_path):
    open_run(tmp_path, CONFIG).close()
    assert (tmp_path / "checkpoints").is_dir()
    (tmp_path / "log.txt").touch()
    open_run(tmp_path, CONFIG.model_copy(update={"seed": 2})).close()
    assert RunView(tmp_path).config()["seed"] == 2


def test_trackers_are_left_while_the_lock_is_held_so_that_the_next_job_has_them_for_itself(run):
    class Slow(JsonLines):
        """Notes whether the lock is held when it is left."""

        def close(self, reason):
            held.append(run.lock.file.exists())
            raise OSError("the disk is gone")

    held = []
    run._trackers = Trackers([Slow(run.path)], run.warn)
    with pytest.raises(OSError, match="the disk is gone"):
        run.close()
    assert held == [True] and not run.lock.file.exists()
    run._trackers = Trackers([], run.warn)


def test_a_run_lists_the_machines_of_its_starts_once_each_and_goes_on_without_its_versions(tmp_path):
    own = describe_machine()
    assert own.endswith((f", {os.cpu_count()} CPUs", ", 1 CPU")) and "(R)" not in own and "\n" not in own
    assert find_processor() and describe_machine(3) == f"3 hosts, rank 0 on {own}"
    for hosts in (1, 2, 1):
        run = open_run(tmp_path / "run", CONFIG, hosts=hosts)
        run.begin(make_snapshot(0))
        run.close()
    file = tmp_path / "run/config.yaml"
    values = yaml.safe_load(file.read_text())
    assert machines_of(values) == [own, describe_machine(2)]
    for lost in (values["versions"], values):  # as of an earlier mpies
        lost.pop("machines" if "machines" in lost else "versions")
        file.write_text(yaml.safe_dump(values))
        assert is_run(file.parent) and machines_of(RunView(file.parent).config()) == []
    open_run(tmp_path / "run", CONFIG).close()
    assert machines_of(RunView(file.parent).config()) == [own]


NOTES = "# my notes\nenvironment: {id: 'function:sphere', dimension: 2}\n"  # the config that is trained


@pytest.mark.parametrize(
    ("name", "content", "beside", "message"),
    [
        ("thesis.tex", NOTES, [], "is neither empty nor a run; choose another --out"),
        ("config.yaml", NOTES, [], "its config.yaml is not that of a run, and would be replaced; choose another"),
        # A folder beside it is named like a part of a run.
        ("config.yaml", NOTES, ["checkpoints"], "its config.yaml is not that of a run"),
        ("config.yaml", NOTES, ["metrics.csv"], "its config.yaml is not that of a run"),
        *(("config.yaml", damaged, [], None) for damaged in ("", "a: [", "seed: 1", "solver: 5\nseed: {a: 1}")),
    ],
)
def test_a_folder_of_something_else_or_damaged_is_not_written_to(name, content, beside, message, tmp_path):
    (tmp_path / name).write_text(content)
    for folder in beside:
        (tmp_path / folder).mkdir()
    with pytest.raises((ConfigError, RunError), match=message) as caught:
        open_run(tmp_path, CONFIG)
    assert "\n" not in str(caught.value) and str(tmp_path) in str(caught.value)
    assert (tmp_path / name).read_text() == content and {file.name for file in tmp_path.iterdir()} == {name, *beside}


@pytest.mark.parametrize("out", ["file", "file/below", "/proc/mpies", "/dev/null"])
def test_a_path_that_cannot_be_a_run_directory_is_refused_in_one_line(tmp_path, out):
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigError, match="choose another --out") as caught:
        open_run(tmp_path / out, CONFIG)
    assert "\n" not in str(caught.value)
    assert (tmp_path / "file").read_text() == "x"


def test_a_run_is_reopened_as_resume_says(tmp_path):
    with pytest.raises(ConfigError, match="contains no run to resume"):
        open_run(tmp_path / "run", CONFIG, "must")
    assert not (tmp_path / "run").exists()
    for resume in ("never", "must", "auto"):
        run = open_run(tmp_path / "run", CONFIG, resume)
        (run.path / "finished.yaml").touch()  # which a run that goes on must not have
        run.close()
    before = read_files(tmp_path)
    with pytest.raises(ConfigError, match="contains a run already"):
        open_run(tmp_path / "run", CONFIG, "never")
    assert read_files(tmp_path) == before
    open_run(tmp_path / "run", CONFIG).close()
    assert not (tmp_path / "run" / "finished.yaml").exists()
