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
from tests.support import ranks_of, wait_for

PAUSE = 3.0  # seconds
CONFIG = """
environment: {id: "tests.envs.faulty:Dawdling", max_steps: 5, episode_timeout: 2}
policy: {hidden: [4]}
solver: {population: 4}
noise: {size: 20000}
evaluation: {every: 0, episodes: 2}
stop: {generations: 5}
"""


@pytest.mark.parametrize("ranks", [0, 2])
def test_a_pause_changes_no_bits_and_does_not_count(ranks, digests_of, start_mpies, write_config, tmp_path):
    """Of one process, and of ranks whose supervisor gets what a terminal sends for Ctrl-Z and `fg`."""
    if ranks and find_version(mpiexec.find() or "") < (5,):
        pytest.skip("only Open MPI 5 hands Ctrl-Z on to the ranks")
    run = tmp_path / "run"
    job = start_mpies(0, "train", write_config(CONFIG), "--out", "run", *(("--ranks", 2) if ranks else ()))
    wait_for(lambda: read_digests(run), job)
    began, processes = time.perf_counter(), [psutil.Process(job.pid), *ranks_of(job)]
    assert len(processes) == 1 + ranks
    processes[0].send_signal(signal.SIGTSTP if ranks else signal.SIGSTOP)
    wait_for(lambda: all(process.status() == psutil.STATUS_STOPPED for process in processes), job)
    done = len(read_digests(run))
    time.sleep(PAUSE)
    assert len(read_digests(run)) == done < 5
    processes[0].send_signal(signal.SIGCONT)
    stderr = job.communicate(timeout=300)[1]
    wall = time.perf_counter() - began
    assert job.returncode == 0, stderr
    assert read_digests(run) == digests_of(CONFIG)
    rows = read_metrics(run)
    assert {row["failures"] for row in rows} == {"0"}
    assert float(rows[-1]["seconds"]) < wall - PAUSE + 5 * INTERVAL + float(rows[0]["seconds"])
    paused = [float(row["paused"]) for row in rows]
    assert PAUSE - 2 * INTERVAL <= sum(paused) <= PAUSE + 5 and sum(pause > 0 for pause in paused) == 1
    assert "was stopped for" in (run / "log.txt").read_text()


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
