"""Whether a host has all ranks of a job that were started on it, with processes that have a rank's variables."""

import os
import subprocess
import time

import pytest

from mpies.comm.mpiexec import JOB
from mpies.launch.answers import (
    LOCAL_RANK,
    LOCAL_SIZE,
    Answer,
    ask_hosts,
    has_all_ranks,
    look_for_ranks,
)
from mpies.launch.hosts import Host


@pytest.fixture
def start():
    """Start a process with the variables of a rank."""
    processes = []

    def start(job, rank, size):
        variables = {JOB: job, LOCAL_RANK: str(rank), LOCAL_SIZE: str(size)}
        processes.append(subprocess.Popen(["sleep", "100"], env=os.environ | variables))
        time.sleep(0.1)  # it has the variables when the program has begun
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.wait()


def test_a_host_has_all_ranks_until_one_has_ended(start):
    job = f"test-{os.getpid()}"
    assert has_all_ranks(job)  # none is there yet
    first, _ = start(job, 0, 2), start(job, 1, 2)
    start("another", 0, 9)
    assert has_all_ranks(job)
    first.kill()
    first.wait()
    assert not has_all_ranks(job)


def test_a_host_that_does_not_answer_is_known_and_this_one_is_not_asked():
    hosts = [Host("localhost", 2), Host("not-there.invalid", 2)]
    assert look_for_ranks(hosts, "ssh", "a job") == {"not-there.invalid": None}


def test_a_host_whose_shell_prints_something_answers(tmp_path, monkeypatch):
    """Another host is this machine's shell here."""
    (tmp_path / "ssh").write_text('#!/bin/sh\necho Welcome!\nfor word; do :; done\nsh -c "$word"\necho 0\n')
    (tmp_path / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    host = Host("h1", 2)
    assert look_for_ranks([host], "ssh", "a job") == {"h1": True}
    assert ask_hosts([host]) == [Answer(host)]
