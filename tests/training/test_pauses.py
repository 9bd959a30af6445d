"""A job that is stopped for a while (SIGSTOP, `scontrol suspend`) goes on to the same bits; its clock stands still."""

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from mpies.comm import mpiexec
from mpies.comm.stopwatch import INTERVAL, Stopwatch
from mpies.launch.ranks.launcher import find_version
from mpies.runs.formats.metrics import read_digests, read_metrics
from tests.support import ENDLESS, ranks_of, wait_for

PAUSE = 3.0  # seconds
CONFIG = ENDLESS.replace("max_steps: 60", "max_steps: 60, episode_timeout: 2").replace("1000000", "120")


SLOW = """
environment: {id: "tests.envs.faulty:Dawdling", max_steps: 5, episode_timeout: 2}
policy: {hidden: [4]}
solver: {population: 4}
noise: {size: 20000}
evaluation: {every: 0, episodes: 2}
stop: {generations: 5}
"""


def test_a_pause_changes_no_bits_and_does_not_count(digests_of, start_mpies, write_config, tmp_path):
    run = tmp_path / "run"
    job = start_mpies(0, "train", write_config(SLOW), "--out", "run")
    wait_for(lambda: len(read_digests(run)) >= 3, job)
    process, began = psutil.Process(job.pid), time.perf_counter()
    process.suspend()
    time.sleep(PAUSE)
    process.resume()
    stderr = job.communicate(timeout=300)[1]
    wall = time.perf_counter() - began
    assert job.returncode == 0, stderr
    assert read_digests(run) == digests_of(SLOW)
    rows = read_metrics(run)
    assert {row["failures"] for row in rows} == {"0"}
    assert float(rows[-1]["seconds"]) < wall - PAUSE + 5 * INTERVAL + float(rows[2]["seconds"])
    paused = [float(row["paused"]) for row in rows]
    assert PAUSE - 2 * INTERVAL <= sum(paused) <= PAUSE + 5 and sum(pause > 0 for pause in paused) == 1
    assert "was stopped for" in (run / "log.txt").read_text()


def test_ctrl_z_stops_the_ranks_and_fg_continues_them(digests_of, start_mpies, write_config, tmp_path):
    if find_version(mpiexec.find() or "") < (5,):
        pytest.skip("only Open MPI 5 hands Ctrl-Z on to the ranks")
    run = tmp_path / "run"
    job = start_mpies(0, "train", write_config(CONFIG), "--out", "run", "--ranks", "2")
    wait_for(lambda: len(read_digests(run)) >= 3, job)
    supervisor, ranks = psutil.Process(job.pid), ranks_of(job)
    assert len(ranks) == 2
    supervisor.send_signal(signal.SIGTSTP)  # what a terminal sends
    wait_for(lambda: all(process.status() == psutil.STATUS_STOPPED for process in (supervisor, *ranks)), job)
    done = len(read_digests(run))
    time.sleep(PAUSE)
    assert len(read_digests(run)) == done < 120
    supervisor.send_signal(signal.SIGCONT)  # what `fg` sends
    stderr = job.communicate(timeout=300)[1]
    assert job.returncode == 0, stderr
    assert read_digests(run) == digests_of(CONFIG)
    assert PAUSE - 2 * INTERVAL <= sum(float(row["paused"]) for row in read_metrics(run)) <= PAUSE + 5


@pytest.fixture
def stopwatch():
    """A Stopwatch, and what SIGCONT did before it, which it must do again afterwards."""
    stopwatch, before = Stopwatch(), signal.getsignal(signal.SIGCONT)
    yield stopwatch
    stopwatch.stop()
    assert signal.getsignal(signal.SIGCONT) == before


def test_without_a_pause_sigcont_adds_nothing_nor_does_the_time_between_two_starts(stopwatch):
    for wait in (0.6, 0):
        stopwatch.start()
        time.sleep(wait)
        os.kill(os.getpid(), signal.SIGCONT)
        stopwatch.stop()
        time.sleep(0.6)
    assert stopwatch.paused < INTERVAL


WAITING = """
import ctypes, sys
from mpies.comm.stopwatch import stopwatch
stopwatch.start()
print("ready", flush=True)
byte = ctypes.create_string_buffer(1)
ctypes.CDLL(None).read(0, byte, 1)  # as a call of MPI: it goes on behind a signal, and Python's handler waits for it
print(stopwatch.paused, flush=True)
"""


def test_a_pause_in_a_call_that_goes_on_for_long_is_found():
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", WAITING], **pipes) as process:
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.6)
        process.send_signal(signal.SIGSTOP)
        time.sleep(PAUSE)
        process.send_signal(signal.SIGCONT)
        time.sleep(1)
        assert process.poll() is None
        paused = float(process.communicate("x")[0])
    assert PAUSE - 2 * INTERVAL <= paused <= PAUSE + 2
