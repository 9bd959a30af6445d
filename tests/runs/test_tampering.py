"""Files of a run that somebody else removes, shortens or replaces while it is being trained."""

import dataclasses
import os
import shutil
import signal

import numpy as np
import psutil
import pytest

from mpies.config.loading import validate_config
from mpies.core.errors import RunError, RunLocked
from mpies.report.trajectory import read_trajectory
from mpies.runs import hdf5, ledger
from mpies.runs.checkpoint import checkpoint_path, list_checkpoints
from mpies.runs.files import AppendOnlyFile
from mpies.runs.lock import Lock
from mpies.runs.metrics import read_digests, read_metrics
from mpies.runs.opening import open_run
from mpies.runs.snapshot import Snapshot
from mpies.runs.trackers.tensorboard import TensorBoardEvents
from mpies.runs.writer import RunWriter
from mpies.training.replay import Replay
from tests.support import assert_refused, wait_for

CONFIG = """
environment: {id: CartPole-v1, max_steps: 50}
policy: {hidden: [8]}
solver: {population: 16, sigma: 0.1}
noise: {size: 100000}
evaluation: {every: 20, episodes: 5}
checkpoint: {every: 10, keep: 2, share: 1}
stop: {generations: 120}
"""


def truncate(file, length):
    return lambda run: os.truncate(run / file, length)


def remove(*files):
    return lambda run: [(run / file).unlink() for file in files]


def replace(file, content):
    return lambda run: (run / file).write_bytes(content)


def empty(run):
    shutil.rmtree(run)
    run.mkdir()


# What is done to a run, what the user is told of it, and whether its ledger is lost.
TAMPERING = {
    "metrics cut off": (truncate("metrics.csv", 300), "metrics.csv: was removed, shortened or replaced", False),
    "metrics removed": (remove("metrics.csv"), "metrics.csv: was removed, shortened or replaced", False),
    "metrics replaced": (replace("metrics.csv", b"x" * 99_999), "metrics.csv: was removed, shortened", False),
    "config removed": (remove("config.yaml"), "config.yaml: was removed; it is written again", False),
    "ledger cut off": (truncate("ledger.bin", 3000), "ledger.bin: was removed, shortened or replaced", True),
    "ledger removed": (remove("ledger.bin"), "ledger.bin: was removed, shortened or replaced", True),
    "ledger replaced": (replace("ledger.bin", b"x" * 999_999), "ledger.bin: was removed, shortened", True),
    "directory moved": (lambda run: run.rename(run.with_name("moved")), "run: was removed or moved", True),
    "directory removed": (shutil.rmtree, "run: was removed or moved, and is created again", True),
    "directory emptied": (empty, "run: was removed or moved, and is created again", True),
    "checkpoints removed": (lambda run: shutil.rmtree(run / "checkpoints"), "", False),
}


def tamper_with(job, run, tamper):
    """Do it while the job stands still in the middle of its run.  Returns how many generations it had recorded."""
    wait_for(lambda: len(read_digests(run)) >= 25, job)
    job.send_signal(signal.SIGSTOP)
    wait_for(lambda: psutil.Process(job.pid).status() == psutil.STATUS_STOPPED, job)
    before = len(read_digests(run))
    tamper(run)
    job.send_signal(signal.SIGCONT)
    return before


@pytest.mark.parametrize("what", TAMPERING)
def test_a_run_that_was_tampered_with_is_complete_at_the_end(what, digests_of, start_mpies, write_config, tmp_path):
    tamper, message, is_lost = TAMPERING[what]
    run = tmp_path / "run"
    job = start_mpies(0, "train", write_config(CONFIG), "--out", "run")
    before = tamper_with(job, run, tamper)
    stderr = job.communicate(timeout=60)[1]
    assert job.returncode == 0, stderr
    warnings = [line for line in stderr.splitlines() if line.startswith("WARNING")]
    assert len(warnings) == bool(message) and all(message in line for line in warnings), stderr
    assert read_digests(run) == digests_of(CONFIG)
    generations = [int(row["generation"]) for row in read_metrics(run)]
    assert generations == list(range(1, 121))
    for name in ("best.h5", "policy.h5", "finished.yaml", "config.yaml", "ranks.json", "log.txt"):
        assert (run / name).exists(), name
    assert not (run / "writer.json").exists()
    names = {path.name for path in list_checkpoints(run)}
    assert {"generation-00000120.h5", "generation-00000110.h5"} <= names
    first = ledger.first_generation(run / "ledger.bin")
    assert (first > before) == is_lost
    assert len(list(ledger.read(run / "ledger.bin", after=first - 1))) == 121 - first
    if is_lost:
        assert f"a new ledger begins with generation {first}" in stderr
        assert f"cannot reach generations before {first - 1}" in stderr
    if what == "checkpoints removed":
        with pytest.raises(RunError, match="the first checkpoint, "):
            Replay(run, 100)
        return
    assert len(names) == 3
    for generation in (first - 1, first, 120):
        assert Replay(run, generation).is_faithful()
    if first > 1:
        with pytest.raises(RunError, match=f"begins with generation {first} and earlier ones are lost; give"):
            Replay(run, first - 2)


@pytest.mark.parametrize("what", ["metrics cut off", "ledger cut off", "directory removed"])
def test_a_tampered_run_that_is_killed_goes_on_where_it_was(
    what, digests_of, start_mpies, run_mpies, write_config, tmp_path
):
    tamper, _, is_lost = TAMPERING[what]
    run, config = tmp_path / "run", write_config(CONFIG)
    job = start_mpies(0, "train", config, "--out", "run", "stop.generations=100000", "checkpoint.every=100000")
    before = tamper_with(job, run, tamper)
    wait_for(lambda: len(read_digests(run)) > before + 10, job)
    job.kill()
    job.communicate()
    recorded = len(read_digests(run))
    outcome = run_mpies(0, "train", config, "--out", "run", f"stop.generations={recorded + 20}")
    assert outcome.code == 0, outcome.stderr
    assert f"continuing from generation {recorded}" in outcome.stderr
    assert "WARNING" not in outcome.stderr
    assert read_digests(run)[:120] == digests_of(CONFIG)[: recorded + 20]
    first = ledger.first_generation(run / "ledger.bin")
    assert (first > 1) == is_lost
    assert Replay(run, recorded + 20).is_faithful()
    trajectory = read_trajectory(run)
    assert trajectory.generations[[0, -1]].tolist() == [first - 1, recorded + 20]
    if is_lost:
        assert_refused(run_mpies(0, "replay", "run", "--generation", 3), "cannot be replayed")
        assert_refused(run_mpies(0, "play", "run", "--member", "3,1"), "cannot be replayed")
    assert run_mpies(0, "play", "run", "--member", f"{recorded},1").code == 0


def test_a_ledger_that_was_lost_between_two_jobs_begins_again_at_the_checkpoint(
    digests_of, run_mpies, write_config, tmp_path
):
    run, config = tmp_path / "run", write_config(CONFIG)
    assert run_mpies(0, "train", config, "--out", "run", "stop.generations=20").code == 0
    (run / "ledger.bin").unlink()
    outcome = run_mpies(0, "train", config, "--out", "run", "stop.generations=30")
    assert outcome.code == 0, outcome.stderr
    assert outcome.stderr.count("WARNING") == 1
    assert "ledger.bin: generation 20 is missing; training is not affected, but a new ledger begins" in outcome.stderr
    outcome = run_mpies(0, "train", config, "--out", "run")
    assert outcome.code == 0 and "WARNING" not in outcome.stderr, outcome.stderr
    assert read_digests(run) == digests_of(CONFIG)
    assert ledger.first_generation(run / "ledger.bin") == 21
    assert Replay(run, 20).is_faithful() and Replay(run, 120).is_faithful()


def test_rows_that_were_lost_between_two_jobs_are_named(run_mpies, write_config, tmp_path):
    run, config = tmp_path / "run", write_config(CONFIG)
    assert run_mpies(0, "train", config, "--out", "run", "stop.generations=20").code == 0
    lines = (run / "metrics.csv").read_text().splitlines(keepends=True)
    (run / "metrics.csv").write_text("".join(lines[:6]))
    outcome = run_mpies(0, "train", config, "--out", "run", "stop.generations=30")
    assert outcome.code == 0, outcome.stderr
    assert "run/metrics.csv: 15 of the first 20 rows are missing; they are lost" in outcome.stderr
    assert [int(row["generation"]) for row in read_metrics(run)] == [*range(1, 6), *range(21, 31)]


def test_a_run_without_any_checkpoint_says_that_it_begins_again(digests_of, run_mpies, write_config, tmp_path):
    run, config = tmp_path / "run", write_config(CONFIG)
    assert run_mpies(0, "train", config, "--out", "run", "stop.generations=20").code == 0
    shutil.rmtree(run / "checkpoints")
    (run / "ledger.bin").unlink()
    outcome = run_mpies(0, "train", config, "--out", "run", "stop.generations=30")
    assert outcome.code == 0, outcome.stderr
    assert "run: has no readable checkpoint; training starts again at generation 0" in outcome.stderr
    assert read_digests(run) == digests_of(CONFIG)[:30]
    assert Replay(run, 30).is_faithful()


# The writer alone.

FUNCTION = validate_config({"environment": {"id": "function:sphere", "dimension": 2}, "tracking": {}}, "x")


def make_snapshot(generation):
    row = {"generation": generation, "seconds": 0.5 * generation, "episodes": generation, "steps": generation}
    arrays = {"solver/mean": np.full(2, generation, np.float32)}
    return Snapshot(
        generation, arrays, {"best": 1.0}, {"parameters": np.ones(2)}, {"returns": np.ones(4)}, row, idle=np.zeros(1)
    )


@pytest.fixture
def run(tmp_path):
    """A run of three generations whose warnings are collected in `lines`."""
    run = open_run(tmp_path / "run", FUNCTION)
    run.lines = []
    run.warn = run.lines.append
    run.begin(make_snapshot(0))
    record(run, 1, 2, 3)
    yield run
    run.close()


def record(run, *generations):
    for generation in generations:
        run.record(make_snapshot(generation), False)
        run.flush()


def test_of_metrics_that_are_damaged_again_and_again_there_is_one_warning(run):
    for generation in range(4, 9):
        os.truncate(run.path / "metrics.csv", 10 * generation)
        record(run, generation)
    assert len(run.lines) == 1
    assert [int(row["generation"]) for row in read_metrics(run.path)] == list(range(1, 9))
    assert ledger.first_generation(run.path / "ledger.bin") == 1


def test_each_ledger_that_is_lost_is_named_and_replays_begin_behind_the_newest(run):
    (run.path / "ledger.bin").unlink()
    record(run, 4, 5)
    os.truncate(run.path / "ledger.bin", 1)
    record(run, 6, 7)
    assert [line.partition("begins with ")[2].partition(",")[0] for line in run.lines] == [
        "generation 5",
        "generation 7",
    ]
    assert [path.name for path in list_checkpoints(run.path)] == [
        f"generation-{generation:08d}.h5" for generation in (6, 4, 0)
    ]
    assert [int(arrays["generation"]) for arrays, _ in ledger.read(run.path / "ledger.bin", after=6)] == [7]


def test_a_moved_directory_in_which_another_job_has_begun_is_left_to_it(run):
    run.path.rename(run.path.with_name("moved"))
    run.path.mkdir()
    Lock(run.path)._write()
    with pytest.raises(RunLocked):
        record(run, 4)
    assert sorted(path.name for path in run.path.iterdir()) == ["writer.json"]


def test_a_directory_whose_disk_is_gone_is_not_made_on_another_one(run):
    run.path.rename(run.path.with_name("moved"))
    run._device = -1
    record(run, 4, 5)
    assert not run.path.exists()
    assert run.lines == [
        f"{run.path}: cannot be written (No such file or directory); training continues, and writing is tried again"
    ]
    run.path.with_name("moved").rename(run.path)
    record(run, 6)
    assert run.lines[1:] == [f"{run.path}: can be written again; nothing is lost"]
    assert len(read_metrics(run.path)) == 6
    assert len(list(ledger.read(run.path / "ledger.bin"))) == 6


def test_the_best_policy_is_written_again_also_by_a_later_job(run):
    content = b"of an earlier generation"
    (run.path / "best.h5").write_bytes(content)
    run.lock.release()
    later = RunWriter(run.path, FUNCTION, warn=lambda line: None)
    later.load()
    later.begin(make_snapshot(3))
    shutil.rmtree(run.path)
    record(later, 4)
    assert (run.path / "best.h5").read_bytes() == content
    assert hdf5.read(run.path / "policy.h5")[1]["generation"] == 4
    assert hdf5.read(checkpoint_path(run.path, 4))[1]["generation"] == 4
    later.close()


def test_tensorboards_events_are_written_again(tmp_path):
    pytest.importorskip("tensorboardX")
    tracked = FUNCTION.model_copy(update={"tracking": FUNCTION.tracking.model_copy(update={"tensorboard": True})})
    run = open_run(tmp_path / "run", tracked)
    run.warn = lambda line: None
    run.begin(make_snapshot(0))
    record(run, 1, 2)
    file = run.path / "events.out.tfevents.mpies"
    size = file.stat().st_size
    for generation, tamper in enumerate(
        (file.unlink, lambda: os.truncate(file, 30), lambda: shutil.rmtree(run.path)), 3
    ):
        tamper()
        record(run, generation)
        assert file.stat().st_size > size
        assert TensorBoardEvents(run.path)._complete_part(range(1, 100))[1] == generation
    run.close()


def test_a_file_is_intact_while_it_ends_as_it_was_left(tmp_path):
    path = tmp_path / "log"
    file = AppendOnlyFile(path, 0)
    assert file.is_intact()
    file.append(b"first record;")
    assert file.is_intact()
    with open(path, "ab") as other:
        other.write(b"half a rec")  # the next record removes it
    assert file.is_intact()
    file.append(b"second record;" * 99)
    assert file.is_intact() and AppendOnlyFile(path, None).is_intact()
    for content in (path.read_bytes()[:-1], b"x" * 9999, b""):
        path.write_bytes(content)
        assert not file.is_intact()
    path.unlink()
    assert not file.is_intact()


@pytest.mark.parametrize("tamper", [lambda file: file.unlink(), lambda file: os.truncate(file, 9)])
def test_the_best_policy_is_written_again_if_it_alone_is_removed_or_shortened(tamper, run):
    best = dataclasses.replace(make_snapshot(4), is_best=True)
    run.record(best, False)
    run.flush()
    content = (run.path / "best.h5").read_bytes()
    tamper(run.path / "best.h5")
    record(run, 5)
    assert (run.path / "best.h5").read_bytes() == content
