"""What tests of real ranks under the supervisor share."""

import signal
import subprocess
import sys

import psutil
import pytest

from tests.support import environment_module

CONFIG = """
environment: {id: 'sleeping.py:Sleeping'}
policy: {hidden: []}
solver: {population: 20}
noise: {size: 100000}
evaluation: {every: 0, episodes: 2}
checkpoint: {every: 1000}
stop: {generations: 12}
"""

IMPATIENT = """
from mpies.launch.ranks import rank_processes, watches
from mpies.__main__ import main
rank_processes.PATIENCE, watches.TEARDOWN = 1.0, 2.0
main()
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a config of generations that take a fifth of a second on 2 ranks; it is the working directory."""
    (tmp_path / "sleeping.py").write_text(environment_module("Sleeping", step="time.sleep(0.02)"))
    (tmp_path / "config.yaml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def start(folder):
    """Start `mpies train --ranks 2 --out run` of that config, with its messages in stderr.txt; ends what is left.

    is_patient: whether mpirun gets as long to end as the supervisor gives it, which is 10 and 5 seconds.
    """
    started = []

    def start(*arguments, is_patient=True):
        program = ["-m", "mpies"] if is_patient else ["-c", IMPATIENT]
        command = [sys.executable, *program, "train", "config.yaml", "--out", "run", "--ranks", "2", *arguments]
        # A job started in the background of a shell would ignore SIGINT, and so would its children.
        restore = lambda: signal.signal(signal.SIGINT, signal.default_int_handler)  # noqa: E731
        with open(folder / "stderr.txt", "ab") as errors, open(folder / "stdout.txt", "ab") as output:
            pipes = {"stdout": output, "stderr": errors}
            started.append(subprocess.Popen(command, start_new_session=True, preexec_fn=restore, **pipes))
        return started[-1]

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait()


def ranks_below(supervisor):
    """The ranks that the mpirun of a supervisor (a Popen) has started."""
    try:
        return [rank for mpirun in psutil.Process(supervisor.pid).children() for rank in mpirun.children()]
    except psutil.NoSuchProcess:
        return []
