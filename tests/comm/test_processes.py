"""Processes that are found by a variable of their environment."""

import os
import signal
import subprocess

from mpies.comm.processes import kill_with_variable, process_start, variables_with
from tests.support import wait_for

NAME = f"MPIES_TEST_{os.getpid()}"


def start(value):
    return subprocess.Popen(["sleep", "60"], env={"PATH": os.environ["PATH"], NAME: value})


def test_processes_are_found_and_killed_by_a_variable_of_their_environment():
    mine, other = start("a=1"), start("a=12")
    try:
        # The kernel shows the environment of a new process a moment after it has begun.
        wait_for(lambda: variables_with(NAME, "a=1") and variables_with(NAME, "a=12"), seconds=10)
        assert variables_with(NAME, "a=1") == [{"PATH": os.environ["PATH"], NAME: "a=1"}]
        kill_with_variable(NAME, "a=1")
        assert mine.wait(10) == -signal.SIGKILL and other.poll() is None
        assert process_start(mine.pid) is None and process_start(other.pid) is not None
        assert variables_with(NAME, "a=12") and variables_with(NAME, "a=1") == []
        kill_with_variable(NAME, "a")
        assert other.poll() is None
    finally:
        for process in (mine, other):
            process.kill()
            process.wait()
