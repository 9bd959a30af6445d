"""A disk that is full, read-only or gone: training goes on where it can, and nothing is ever half-written."""

from mpies.runs import hdf5
from mpies.runs.checkpoint import list_checkpoints
from mpies.runs.files import write_atomically
from mpies.runs.metrics import read_metrics
from mpies.runs.writer import Growing
from mpies.runs.writer import open_run
from mpies.runs.writer import time
import os
import signal
import subprocess
import time

import numpy as np
import pytest

from mpies.runs import ledger
from mpies.config.loading import validate_config
from mpies.training.learner import Clock

CONFIG = """
environment: {id: CartPole-v1, max_steps: 50}
policy: {hidden: [8]}
solver: {population: 16, sigma: 0.1}
noise: {size: 100000}
evaluation: {every: 0, episodes: 5}
checkpoint: {every: 2, keep: 2, share: 1}
stop: {generations: 200}
"""

CONFIGURED = validate_config({"environment": {"id": "function:sphere", "dimension": 2}}, "x")


def digests(run):
    return [row["digest"] for row in read_metrics(run)]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The digests of CONFIG's undisturbed run."""
    import sys

    folder = tmp_path_factory.mktemp("undisturbed")
    (folder / "config.yaml").write_text(CONFIG)
    command = [sys.executable, "-m", "mpies", "train", "config.yaml", "--out", "run"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return digests(folder / "run")


@pytest.fixture
def disk(tmp_path):
    """A disk of half a megabyte."""
    path = tmp_path / "disk"
    path.mkdir()
    if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "none", path]).returncode:
        pytest.skip("only root can mount a small disk")
    yield path
    subprocess.run(["umount", "--lazy", path], check=True)


def fill(path):
    """Write to the last byte of the disk."""
    with open(path / "ballast", "wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass


def remount(path, how):
    """Returns whether that was possible: a file that is being written keeps the disk writable."""
    return not subprocess.run(["mount", "-o", f"remount,{how}", path]).returncode


REFUSALS = {  # what makes a disk refuse, and returns False where it must be tried again; what ends it; what is said
    "full": (fill, lambda path: (path / "ballast").unlink(), "No space left on device"),
    "read-only": (lambda path: remount(path, "ro"), lambda path: remount(path, "rw"), "Read-only file system"),
}


def wait_for_rows(run, job, count=3):
    until = time.monotonic() + 60
    while len(digests(run)) < count:
        assert job.poll() is None and time.monotonic() < until
        time.sleep(0.01)


def only_whole_files(run, expected):
    """What stands under final names is complete."""
    for path in [*list_checkpoints(run), *run.glob("*.h5")]:
        hdf5.read(path)
    made = digests(run)
    assert made == expected[: len(made)]
    return len(made), [int(arrays["generation"]) for arrays, _ in ledger.read(run / "ledger.bin")]


@pytest.mark.parametrize("how", REFUSALS)
def test_training_goes_on_while_the_disk_refuses_and_nothing_is_missing_in_the_end(
    how, undisturbed, disk, start_mpies, write_config
):
    refuse, allow, reason = REFUSALS[how]
    run = disk / "run"
    job = start_mpies(0, "train", write_config(CONFIG), "--out", run)
    wait_for_rows(run, job)
    job.send_signal(signal.SIGSTOP)
    while refuse(disk) is False:
        job.send_signal(signal.SIGCONT)
        time.sleep(0.002)
        assert job.poll() is None
        job.send_signal(signal.SIGSTOP)
    job.send_signal(signal.SIGCONT)
    stderr = ""
    while "cannot be written" not in stderr:
        stderr += job.stderr.readline()
    for _ in range(20):  # generations, none of which can be written
        assert job.stdout.readline()
    job.send_signal(signal.SIGSTOP)
    rows, records = only_whole_files(run, undisturbed)
    assert rows < 200 and len(records) in (rows, rows + 1)
    allow(disk)
    job.send_signal(signal.SIGCONT)
    stderr += job.communicate(timeout=60)[1]
    assert job.returncode == 0, stderr
    assert f"{run}: cannot be written ({reason}); training goes on and tries again" in stderr
    assert stderr.count("cannot be written") == stderr.count("can be written again") == 1
    assert only_whole_files(run, undisturbed) == (200, list(range(1, 201)))
    assert [path.name for path in list_checkpoints(run)] == [f"generation-{n:08d}.h5" for n in (200, 198, 0)]
    assert (run / "finished.yaml").exists() and (run / "best.h5").exists()
    assert not list(run.rglob("*.tmp"))


def test_a_directory_that_vanished_is_said_in_one_line_at_the_end_with_code_1(
    undisturbed, start_mpies, run_mpies, write_config, tmp_path
):
    config, run, moved = write_config(CONFIG), tmp_path / "run", tmp_path / "moved"
    job = start_mpies(0, "train", config, "--out", "run")
    wait_for_rows(run, job)
    job.send_signal(signal.SIGSTOP)
    run.rename(moved)
    job.send_signal(signal.SIGCONT)
    stdout, stderr = job.communicate(timeout=60)
    assert job.returncode == 1, stderr
    assert "Traceback" not in stderr and stderr.count("cannot be written") == 1
    assert stderr.splitlines()[-1].endswith("run: the end of the run could not be written")
    assert f"{200:>10} " in stdout  # it went on to the last generation
    assert not run.exists()
    rows, _ = only_whole_files(moved, undisturbed)
    assert rows >= 3
    ended = run_mpies(0, "train", config, "--out", "moved", "--resume", "must")
    assert ended.code == 0, ended.stderr
    assert digests(moved) == undisturbed


def test_a_signal_where_the_state_cannot_be_saved_is_no_code_75(start_mpies, write_config, tmp_path):
    config, run = write_config(CONFIG), tmp_path / "run"
    job = start_mpies(0, "train", config, "--out", "run", "stop.generations=1000000")
    wait_for_rows(run, job)
    job.send_signal(signal.SIGSTOP)
    run.rename(tmp_path / "moved")
    job.send_signal(signal.SIGUSR1)
    job.send_signal(signal.SIGCONT)
    stderr = job.communicate(timeout=60)[1]
    assert job.returncode == 1, stderr
    assert "Traceback" not in stderr


def test_a_disk_that_is_full_from_the_start_is_a_users_mistake(disk, run_mpies, write_config):
    (disk / "run").mkdir()
    fill(disk)
    ended = run_mpies(0, "train", write_config(CONFIG), "--out", disk / "run")
    assert ended.code == 2 and ended.stderr.count("\n") == 1, ended.stderr
    assert "No space left on device" in ended.stderr and "take another --out" in ended.stderr


class Learner:
    """Just enough of a learner to be recorded."""

    def __init__(self):
        self.clock = Clock()
        self.idle = np.zeros(1)

    def ledger_record(self):
        return {"generation": self.clock.generation}

    everything = state = policy = ledger_record


@pytest.fixture
def refusals(monkeypatch):
    """A list of file names; the next write to the first of them is refused, and the name crossed out."""
    names = []
    append, write = Growing.append, write_atomically

    def refuse(name):
        if names and name == names[0]:
            raise OSError(28, f"no room for {names.pop(0)}")

    def append_or_refuse(file, *args, **kwargs):
        refuse(file._path.name)
        append(file, *args, **kwargs)

    def write_or_refuse(path, *args, **kwargs):
        refuse(path.name)
        write(path, *args, **kwargs)

    monkeypatch.setattr(Growing, "append", append_or_refuse)
    monkeypatch.setattr(store, "write_atomically", write_or_refuse)
    return names


@pytest.mark.parametrize(
    ("since", "refused"),
    [
        (1, ["metrics.csv"]),  # its heading
        (1, ["metrics.csv", "metrics.csv", "ledger.bin", "metrics.csv"]),
        (1, ["best.h5"]),
        (4, ["metrics.csv"]),
        (4, ["policy.h5", "policy.h5"]),
        (4, ["generation-00000004.h5", "finished.yaml"]),
        (0, ["generation-00000000.h5", "generation-00000000.h5"]),  # before the first generation
    ],
)
def test_whatever_was_refused_is_written_later(since, refused, refusals, tmp_path):
    said = []
    run, learner = open_run(tmp_path / "run", CONFIGURED, "auto"), Learner()
    run.warn = said.append
    torn = run.path / "checkpoints" / ".generation-00000001.h5.123.tmp"
    torn.touch()  # by a job that was killed
    refusals += refused if since == 0 else []
    run.begin(learner)
    for generation in (1, 2, 3, 4):
        if generation == since:
            refusals += refused
        run.settle()
        learner.clock.generation = generation
        row = {"generation": generation, "digest": f"{generation:064}"}
        run.record(learner, row, None, is_best=generation == 1, last=generation == 4)
    while not run.finish("generations", learner):
        assert len(said) < 9
    run.close()
    assert not refusals and not torn.exists()
    assert said[-1].endswith("can be written again; nothing is missing")
    assert [row["generation"] for row in read_metrics(run.path)] == ["1", "2", "3", "4"]
    assert [int(arrays["generation"]) for arrays, _ in ledger.read(run.path / "ledger.bin")] == [1, 2, 3, 4]
    found = [("best.h5", 1), ("policy.h5", 4), ("checkpoints/generation-00000000.h5", 0)]
    for name, generation in [*found, ("checkpoints/generation-00000004.h5", 4)]:
        assert hdf5.read(run.path / name)[1]["generation"] == generation


def test_checkpoints_that_would_take_too_long_are_put_off(monkeypatch, tmp_path):
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    write = write_atomically

    def write_slowly(path, content, sync=True):
        write(path, content, sync)
        now[0] += path.parent.name == "checkpoints"

    monkeypatch.setattr(store, "write_atomically", write_slowly)
    config = CONFIGURED.model_copy(update={"checkpoint": CONFIGURED.checkpoint.model_copy(update={"every": 1})})
    run, learner = open_run(tmp_path / "run", config, "auto"), Learner()
    run.begin(learner)
    seen = set()
    for generation in range(1, 120):
        now[0] += 1
        learner.clock.generation = generation
        run.record(learner, {"generation": generation, "digest": "0"}, None, is_best=False, last=False)
        run.settle()
        seen |= {int(path.name[11:19]) for path in list_checkpoints(run.path)}
    run.close()
    assert seen == {0, 1, 50, 99}  # one second in fifty
