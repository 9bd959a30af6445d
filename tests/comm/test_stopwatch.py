import os
import signal
import time

import pytest

from mpies.comm.stopwatch import Stopwatch


@pytest.fixture
def watch():
    """A Stopwatch that notices pauses."""
    watch = Stopwatch()
    watch.start()
    yield watch
    watch.stop()


def test_a_computation_that_holds_the_lock_of_python_is_no_pause(watch):
    """Slurm sends SIGCONT before SIGTERM to processes that were never stopped."""
    began, used = time.perf_counter(), time.process_time()
    while time.process_time() - used < 0.6:
        sum(range(40_000_000))  # one call of compiled code
    idle = time.perf_counter() - began - (time.process_time() - used)  # other programs had the processor
    os.kill(os.getpid(), signal.SIGCONT)
    assert watch.paused <= idle + 0.3
