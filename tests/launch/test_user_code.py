"""Code of a user's that leaves threads, takes signals, forks, hangs, or stands where Python's is: training goes on."""

import signal
import subprocess
import time

import pytest

from mpies.runs.formats.metrics import read_metrics
from tests.support import environment_module, wait_for

SMALL = ["noise.size=20000", "policy.hidden=[]", "solver.population=8", "evaluation.every=0", "evaluation.episodes=1"]


@pytest.fixture
def start(tmp_path, start_mpies):
    """Start `mpies train` of an environment with these lines in its methods, in a folder of its own."""

    def start(*arguments, first="pass", reset="pass", step="pass", **options):
        (tmp_path / "room.py").write_text(environment_module("Room", first, reset, step, length=4))
        return start_mpies(0, "train", "room.py:Room", "--out", "run", *SMALL, *arguments, **options)

    return start


@pytest.mark.parametrize(
    ("first", "ranks"),
    [
        ("threading.Thread(target=time.sleep, args=(1000,)).start()", []),
        ("import atexit; atexit.register(time.sleep, 1000)", []),
        ("import sys; sys.stdout.close()", ["--ranks", "2"]),
        ("import sys; sys.stdout = type('Log', (), {'write': lambda self, text: len(text)})()", []),
    ],
)
def test_a_run_ends_whatever_goes_on_behind_it_and_standard_output_is(start, first, ranks, tmp_path, monkeypatch):
    """Nor does a file of the folder stand for Python's, or is a home needed."""
    (tmp_path / "queue.py").write_text("mine = 1")
    monkeypatch.delenv("HOME", raising=False)
    job = start("stop.generations=1", *ranks, first=first, program=("-P", "-m", "mpies"))
    assert job.wait(60) == 0, job.stderr.read()
    assert (tmp_path / "run/finished.yaml").exists()


@pytest.mark.parametrize("number", ["SIGINT", "SIGUSR1"])
def test_a_signal_that_an_environment_has_taken_stops_the_run(start, number, tmp_path):
    take = f"Room.episodes == 50 and (signal.signal(signal.{number}, print), signal.raise_signal(signal.{number}))"
    first = f"signal.signal(signal.{number}, print)"
    assert start("stop.generations=1000", first=first, reset=take).wait(60) == 75
    assert 0 < len(read_metrics(tmp_path / "run")) < 20


def test_a_second_signal_ends_compiled_code_that_hangs(start, tmp_path):
    job = start("stop.generations=1000", step="Room.episodes > 100 and sum(range(10**14))")
    wait_for(lambda: len(read_metrics(tmp_path / "run")) > 3, job)
    time.sleep(1)  # the next generation begins, and hangs
    job.send_signal(signal.SIGTERM)
    with pytest.raises(subprocess.TimeoutExpired):
        job.wait(2)
    job.send_signal(signal.SIGTERM)
    assert job.wait(60) == -signal.SIGTERM


def test_a_forked_child_that_has_a_signal_or_starts_no_program_ends_alone(start, tmp_path):
    ended = "(signal.signal(signal.SIGTERM, lambda *_: os._exit(0)), signal.raise_signal(signal.SIGTERM))"
    signalled = f"Room.episodes == 9 and (os.fork() and os.wait() or {ended})"
    failing = "Room.episodes == 19 and os.fork() == 0 and os.execvp('/no/such/program', ['x'])"
    job = start("stop.generations=20", reset=f"{signalled}\n{failing}")
    assert job.wait(60) == 0  # also of the child's pipe to the test, which a clone would hold open
    assert job.stderr.read() == ""
    assert len(read_metrics(tmp_path / "run")) == 20


def test_many_short_steps_are_ended_by_the_limit_of_an_episode(start):
    wait = "time.sleep(0.001); self.steps = 0"
    job = start("stop.generations=1", "environment.episode_timeout=0.3", "stop.max_failures=1", step=wait)
    assert job.wait(60) == 1 and "took more than 0.3 s" in job.stderr.read()
