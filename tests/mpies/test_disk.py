"""A disk that is full, read-only or gone: training goes on where it can, and nothing is ever half-written."""

import os
import signal
import subprocess
import time

import pytest

from mpies import ledger, store

CONFIG = """
environment: {id: CartPole-v1, max_steps: 50}
policy: {hidden: [8]}
solver: {population: 16, sigma: 0.1}
noise: {size: 100000}
evaluation: {every: 0, episodes: 5}
checkpoint: {every: 2, keep: 2}
stop: {generations: 300}
"""


def digests(run):
    return [row["digest"] for row in store.read_metrics(run)]


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
    subprocess.run(["mount", "-o", f"remount,{how}", path], check=True)


REFUSALS = {
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
    for path in [*store.checkpoints(run), *run.glob("*.h5")]:
        store.read(path)
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
    refuse(disk)
    job.send_signal(signal.SIGCONT)
    stderr = ""
    while "cannot be written" not in stderr:
        stderr += job.stderr.readline()
    for _ in range(20):  # generations, none of which can be written
        assert job.stdout.readline()
    job.send_signal(signal.SIGSTOP)
    rows, records = only_whole_files(run, undisturbed)
    assert rows < 300 and len(records) in (rows, rows + 1)
    allow(disk)
    job.send_signal(signal.SIGCONT)
    stderr += job.communicate(timeout=60)[1]
    assert job.returncode == 0, stderr
    assert f"{run}: cannot be written ({reason}); training goes on and tries again" in stderr
    assert stderr.count("cannot be written") == stderr.count("can be written again") == 1
    assert only_whole_files(run, undisturbed) == (300, list(range(1, 301)))
    assert [path.name for path in store.checkpoints(run)] == [f"generation-{n:08d}.h5" for n in (300, 298, 0)]
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
    assert f"{300:>10} " in stdout  # it went on to the last generation
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


def test_the_heading_of_the_metrics_is_written_when_the_disk_refuses_it_at_first(tmp_path, monkeypatch):
    from mpies.config import validate
    from mpies.learner import Clock

    class Learner:
        clock = Clock()

        def ledger_record(self):
            return {"generation": self.clock.generation}

        def everything(self):
            return {"generation": self.clock.generation}

        state = everything

    config = validate({"environment": {"id": "function:sphere", "dimension": 2}}, "x")
    run, learner = store.open_run(tmp_path / "run", config, "auto"), Learner()
    run.begin(learner)
    append, refusals = store._Growing.append, ["metrics.csv", "ledger.bin", "metrics.csv"]

    def refuse(self, piece, at=None):
        if refusals and self._path.name == refusals[0]:
            raise OSError(28, f"no room for {refusals.pop(0)}")
        append(self, piece, at)

    monkeypatch.setattr(store._Growing, "append", refuse)
    for generation in (1, 2, 3, 4):
        learner.clock.generation = generation
        row = {"generation": generation, "digest": f"{generation:064}"}
        run.record(learner, row, None, is_best=False, last=False)
    run.close()
    assert not refusals
    assert [row["generation"] for row in store.read_metrics(run.path)] == ["1", "2", "3", "4"]
    assert [int(arrays["generation"]) for arrays, _ in ledger.read(run.path / "ledger.bin")] == [1, 2, 3, 4]
