"""Signals, deaths and pauses of jobs: nothing is lost and nothing hangs.

A job that is stopped for a while (SIGSTOP, `scontrol suspend`) goes on to the same bits; its clock stands still.
"""

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
from mpies.runs.formats.checkpoint import newest_checkpoint
from mpies.runs.formats.metrics import read_digests, read_metrics
from tests.support import ENDLESS, ULFM, environment_module, mpiexec_or_skip, ranks_of, wait_for


@pytest.mark.parametrize(
    ("whom", "number", "ranks", "code", "flags"),
    [
        ("mpiexec", signal.SIGUSR1, 0, 75, ()),
        ("rank 1", signal.SIGTERM, 3, 75, ()),
        ("mpiexec", signal.SIGKILL, 0, None, ULFM),
        ("rank 0", signal.SIGKILL, 0, None, ()),
    ],
)
def test_a_signal_ends_all_ranks_and_what_is_on_disk_goes_on(
    whom, number, ranks, code, flags, start_mpies, run_mpies, write_config, tmp_path
):
    mpiexec_or_skip(has_ulfm=bool(flags))
    run = tmp_path / "run"
    process = start_mpies(2, "train", write_config(ENDLESS), "--out", "run", flags=flags)
    wait_for(lambda: len(read_digests(run)) >= 3, process)
    started = ranks_of(process)
    os.kill(process.pid if whom == "mpiexec" else started[int(whom[-1])].pid, number)
    assert process.wait(30) == code if code else process.wait(30) != 0
    alive = psutil.wait_procs(started, timeout=8)[1]
    for rank in alive:
        rank.kill()
    assert not alive
    made = len(read_digests(run))
    if code:  # with a checkpoint
        assert newest_checkpoint(run, print)[1]["generation"] == made
    train = "train", "config.yaml", f"stop.generations={made + 3}", "--out"
    run_mpies(ranks, *train, "run", "--resume", "must", code=0)
    run_mpies(0, *train, "undisturbed", code=0)
    assert read_digests(run) == read_digests(tmp_path / "undisturbed")


FAULTS = """
import mpies.solvers.openai_es
self.fault = fault if os.environ["OMPI_COMM_WORLD_RANK"] == "1" else "none"
if self.fault == "bug": mpies.solvers.openai_es.OpenAIES.compute_weights = lambda *arguments: 1 // 0
"""
EXIT = 'if self.fault == "exit": raise SystemExit("the environment leaves")'


@pytest.mark.parametrize("fault", ["bug", "exit"])
def test_a_fault_of_one_rank_ends_all_within_seconds(fault, run_mpies, write_config, tmp_path):
    """A bug with its traceback, an environment that exits in one line."""
    (tmp_path / "raising.py").write_text(environment_module("Raising", FAULTS, step=EXIT, length=5))
    environment = f"id: 'raising.py:Raising', kwargs: {{fault: {fault}}}"
    outcome = run_mpies(3, "train", write_config(ENDLESS.replace("id: CartPole-v1", environment)), timeout=25)
    if fault == "exit":
        assert outcome.code == 2 and "Traceback" not in outcome.stderr
        assert outcome.stderr.count("SystemExit: the environment leaves") == 1
    else:
        assert outcome.code not in (0, 2, 75)
        assert "rank 1" in outcome.stderr and "Traceback" in outcome.stderr and "ZeroDivisionError" in outcome.stderr


PAUSE = 3.0  # seconds
DAWDLING = """
environment: {id: "tests.envs.faulty:Dawdling", max_steps: 5, episode_timeout: 2}
policy: {hidden: [4]}
solver: {population: 4}
noise: {size: 20000}
evaluation: {every: 0, episodes: 2}
stop: {generations: 5}
"""


@pytest.mark.parametrize("ranks", [0, 2])
def test_a_pause_changes_no_bits_and_does_not_count(ranks, digests_of, start_mpies, write_config, tmp_path):
    """SIGSTOP to one process, and to the supervisor of ranks what a terminal sends for Ctrl-Z and `fg`."""
    if ranks and find_version(mpiexec.find() or "") < (5,):
        pytest.skip("only Open MPI 5 hands Ctrl-Z on to the ranks")
    run = tmp_path / "run"
    job = start_mpies(0, "train", write_config(DAWDLING), "--out", "run", *(("--ranks", 2) if ranks else ()))
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
    assert read_digests(run) == digests_of(DAWDLING)
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
