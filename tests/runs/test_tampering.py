"""Files of a run that somebody else removes, shortens or replaces while it is being trained."""

import os
import shutil
import signal

import numpy as np
import psutil
import pytest

from mpies.core.errors import TrainingFailed
from mpies.runs import files
from mpies.runs.formats import ledger
from mpies.runs.formats.checkpoint import list_checkpoints
from mpies.runs.formats.metrics import read_digests, read_metrics
from mpies.runs.snapshot import Evaluation
from mpies.training.replay import Replay
from tests.runs.conftest import make_snapshot, record
from tests.support import ENDLESS, wait_for

CONFIG = ENDLESS.replace("every: 2, share: 1", "every: 10, keep: 2, share: 1").replace("every: 0", "every: 20")
CONFIG = CONFIG.replace("1000000", "120")


def truncate(file, length):
    return lambda run: os.truncate(run / file, length)


def remove(*files):
    return lambda run: [(run / file).unlink() for file in files]


def replace(file, content):
    return lambda run: (run / file).write_bytes(content)


def empty(run):
    shutil.rmtree(run)
    run.mkdir()


# What is done to a run, and the file that the one line names.
TAMPERING = {
    "metrics cut off": (truncate("metrics.csv", 40), "metrics.csv"),
    "metrics replaced": (replace("metrics.csv", b"x" * 99_999), "metrics.csv"),
    "config removed": (remove("config.yaml"), "config.yaml"),
    "ledger cut off": (truncate("ledger.bin", 100), "ledger.bin"),
    "ledger removed": (remove("ledger.bin"), "ledger.bin"),
    "directory removed": (shutil.rmtree, "ledger.bin"),
    "directory emptied": (empty, "ledger.bin"),
}


@pytest.mark.parametrize(("what", "ranks"), [("directory removed", 0), ("ledger removed", 2)])
def test_a_run_that_was_tampered_with_ends_in_one_line_and_the_same_command_goes_on(
    what, ranks, digests_of, start_mpies, run_mpies, write_config, tmp_path
):
    tamper, file = TAMPERING[what]
    run, config = tmp_path / "run", write_config(CONFIG)
    job = start_mpies(ranks, "train", config, "--out", "run", "stop.generations=100000")
    wait_for(lambda: len(read_digests(run)) >= 25, job)
    job.send_signal(signal.SIGSTOP)  # a single rank stands still
    wait_for(lambda: psutil.Process(job.pid).status() == psutil.STATUS_STOPPED, job)
    tamper(run)
    job.send_signal(signal.SIGCONT)
    stderr = job.communicate(timeout=300)[1]
    assert job.returncode == 1 and "Traceback" not in stderr, stderr
    (line,) = [line for line in stderr.splitlines() if "was removed, shortened or replaced" in line]
    assert f"{run / file}: was removed, shortened or replaced while the run is written; the same command" in line
    assert len(list_checkpoints(run)) == (0 if what == "directory removed" else 3)
    outcome = run_mpies(0, "train", config, "--out", "run", code=0)
    assert ("continuing from generation" in outcome.stderr) == (what != "directory removed")
    assert read_digests(run)[-20:] == digests_of(CONFIG)[-20:]
    assert Replay(run, 120).is_faithful()


@pytest.fixture
def train(run_mpies, write_config):
    """Function of a number of generations: trains CONFIG so far, in tmp_path/run.  Returns its standard error."""
    config = write_config(CONFIG)
    return lambda made: run_mpies(0, "train", config, "--out", "run", f"stop.generations={made}", code=0).stderr


def test_what_was_lost_between_two_jobs_is_named_and_training_begins_again_where_it_can(digests_of, train, tmp_path):
    run = tmp_path / "run"
    train(20)
    (run / "ledger.bin").unlink()
    stderr = train(30)
    assert stderr.count("WARNING") == 1
    assert "ledger.bin: generation 20 is missing; training is not affected, but a new ledger begins" in stderr
    assert "WARNING" not in train(60) and read_digests(run) == digests_of(CONFIG)[:60]
    assert ledger.first_generation(run / "ledger.bin") == 21
    assert Replay(run, 20).is_faithful() and Replay(run, 60).is_faithful()
    shutil.rmtree(run / "checkpoints")
    (run / "ledger.bin").unlink()
    assert "run: has no readable checkpoint; training starts again at generation 0" in train(30)
    assert read_digests(run) == digests_of(CONFIG)[:30] and Replay(run, 30).is_faithful()


def test_rows_that_were_lost_between_two_jobs_come_from_the_ledger_or_are_named(train, tmp_path):
    run = tmp_path / "run"
    train(20)
    content = (run / "metrics.csv").read_text()
    for lost in ("finished.yaml", "ledger.bin"):
        (run / "metrics.csv").write_text("".join(content.splitlines(keepends=True)[:6]))
        (run / "finished.yaml").unlink()
        (run / lost).unlink(missing_ok=True)
        is_lost = "run/metrics.csv: 15 of the first 20 rows are missing; they are lost" in train(20)
        assert is_lost == (lost == "ledger.bin")
        assert len(read_metrics(run)) == (5 if is_lost else 20)
        assert is_lost or (run / "metrics.csv").read_text() == content


# The writer alone.


def record_all(run, *generations):
    for generation in generations:
        record(run, make_snapshot(generation, evaluation=Evaluation(np.ones(5), np.ones(5, np.int64))))


@pytest.fixture
def begun(run):
    """A run of three generations whose warnings are collected in `lines`."""
    run.lines = []
    run.warn = run.lines.append
    record_all(run, 1, 2, 3)
    return run


@pytest.mark.parametrize("what", TAMPERING)
def test_a_writer_names_the_file_that_was_tampered_with(what, begun):
    tamper, file = TAMPERING[what]
    tamper(begun.path)
    with pytest.raises(TrainingFailed, match=f"{file}: was removed(, shortened or replaced)? while the run is written"):
        record_all(begun, 4)
    assert begun.lines == []


def test_a_directory_whose_disk_is_gone_is_not_made_on_another_one(begun, monkeypatch):
    monkeypatch.setattr(files, "find_device", lambda path: 1 if begun.path.exists() else 2)
    begun._ledger._device = 1
    begun.path.rename(begun.path.with_name("moved"))
    record_all(begun, 4, 5)
    assert not begun.path.exists()
    assert begun.lines == [
        f"{begun.path}: cannot be written (No such file or directory); training continues, and writing is tried again"
    ]
    begun.path.with_name("moved").rename(begun.path)
    record_all(begun, 6)
    assert begun.lines[1:] == [f"{begun.path}: can be written again; nothing is lost"]
    assert len(read_metrics(begun.path)) == 6
    assert len(list(ledger.read_records(begun.path / "ledger.bin"))) == 6
