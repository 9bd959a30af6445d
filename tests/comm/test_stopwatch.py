import os
import signal
import subprocess
import time

from mpies.comm.stopwatch import Stopwatch


def test_a_computation_that_holds_the_lock_of_python_is_no_pause():
    """Slurm sends SIGCONT before SIGTERM to processes that were never stopped."""
    watch = Stopwatch()
    watch.start()
    began, used = time.perf_counter(), time.process_time()
    while time.process_time() - used < 0.6:
        sum(range(40_000_000))  # one call of compiled code
    idle = time.perf_counter() - began - (time.process_time() - used)  # other programs had the processor
    os.kill(os.getpid(), signal.SIGCONT)
    assert watch.paused <= idle + 0.3
    watch.stop()


def test_a_pause_is_noticed_after_a_long_computation():
    while time.process_time() < 1:
        sum(range(100_000))
    watch = Stopwatch()
    watch.start()
    is_stopped = f"grep -q '^State:.T' /proc/{os.getpid()}/status"
    wait = f"for number in $(seq 600); do {is_stopped} && break; sleep 0.05; done; sleep 0.6"
    with subprocess.Popen(["sh", "-c", f"{wait}; kill -CONT {os.getpid()}"]):
        os.kill(os.getpid(), signal.SIGSTOP)
    watch.stop()
    assert watch.paused > 0.2
