"""Several jobs that begin or take over the same run at the same moment: one wins, and the others are told who."""

import json
import re
import subprocess
import sys

import pytest

from mpies.runs.formats.metrics import read_digests
from mpies.runs.lock import Lock
from tests.support import ENDLESS, wait_for

JOBS, ROUNDS = 3, 12

# Opens the run whose path it reads, says how that went, and closes it when it reads another line.
JOB = """
import random
import sys
import time
from mpies.config.loading import validate_config
from mpies.core.errors import UserError
from mpies.runs.directory import open_run

config = validate_config({"environment": {"id": "function:sphere", "dimension": 2}}, "x")
print("ready", flush=True)
for line in sys.stdin:
    run = None
    time.sleep(0.03 * random.random())  # that is how long the winner takes to make the directory
    try:
        run = open_run(line.strip(), config)
        print("won", flush=True)
    except UserError as error:
        print(error, flush=True)
    sys.stdin.readline()
    if run:
        run.close()
    print("closed", flush=True)
"""


@pytest.fixture(scope="module")
def jobs():
    """Processes that open a run each."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    started = [subprocess.Popen([sys.executable, "-c", JOB], **pipes) for _ in range(JOBS)]
    for job in started:
        assert job.stdout.readline() == "ready\n"
    yield started
    for job in started:
        job.kill()
        job.communicate()


def tell(jobs, line):
    """Send a line to all jobs.  Returns their answers."""
    for job in jobs:
        job.stdin.write(f"{line}\n")
        job.stdin.flush()
    return [job.stdout.readline().strip() for job in jobs]


@pytest.mark.parametrize("what", ["new", "left by a dead job", "folder that is empty"])
def test_of_several_jobs_at_once_exactly_one_opens_a_run(what, jobs, tmp_path):
    for number in range(ROUNDS):
        run = tmp_path / f"run-{number}"
        if what != "new":
            run.mkdir()
        if what == "left by a dead job":
            dead = Lock(run)
            dead._owner |= {"start": -1}
            dead._write()
        answers = tell(jobs, run)
        assert answers.count("won") == 1, answers
        winner = jobs[answers.index("won")]
        answers.remove("won")
        for answer in answers:
            assert re.fullmatch(rf"{run}: is being written by process {winner.pid} on .*choose another --out", answer)
        assert json.loads((run / "writer.json").read_text())["pid"] == winner.pid
        assert {path.name for path in run.iterdir()} == {"writer.json", "config.yaml", "checkpoints"}
        assert tell(jobs, "") == ["closed"] * JOBS
        assert {path.name for path in run.iterdir()} == {"config.yaml", "checkpoints"}


def test_of_three_commands_at_once_one_trains(start_mpies, write_config, tmp_path):
    config = write_config(ENDLESS)
    jobs = [start_mpies(0, "train", config, "--out", "run") for _ in range(3)]
    wait_for(lambda: sum(job.poll() is not None for job in jobs) == 2)
    (winner,) = (job for job in jobs if job.poll() is None)
    wait_for(lambda: len(read_digests(tmp_path / "run")) > 3, winner)
    for job in jobs:
        if job is not winner:
            stdout, stderr = job.communicate()
            assert (job.returncode, stdout) == (2, "")
            assert re.fullmatch(rf"mpies: .*run: is being written by process {winner.pid} on .*\n", stderr), stderr
