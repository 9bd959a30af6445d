import os
import signal
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
