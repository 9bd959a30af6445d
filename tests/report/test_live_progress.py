"""What a run shows while it works: the phase it is in, how far it is, and where the time went."""

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

from mpies.comm.serial import Serial
from mpies.config.loading import validate_config
from mpies.report import display
from mpies.report.display import LineProgress, ProgressBar
from mpies.rollouts.batch import evaluation_batch
from mpies.rollouts.queue import RolloutQueue
from mpies.runs.metrics import read_digests
from mpies.training import progress as phases_module
from mpies.training.generation import QueueKey
from mpies.training.progress import EVALUATIONS, GENERATIONS, Phase, Phases, Progress, process_age
from mpies.training.trainer import make_trainer
from tests.report.test_progress import EVALUATED, ROW

# Episodes of two steps; a step takes as long as NAP says.
CONFIG = """
environment: {id: "nap.py:Nap", rebuild: never}
policy: {hidden: []}
solver: {population: 4}
noise: {size: 10000}
evaluation: {every: 2, episodes: 3}
stop: {generations: 2}
"""
MODULE = """
import os, time
import gymnasium, numpy as np
class Nap(gymnasium.Env):
    observation_space = action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
    def __init__(self):
        time.sleep(float(os.environ.get("BUILD", "0")))
        os.environ["BUILD"] = "0"  # the first one alone
    def reset(self, seed=None, options=None):
        self.left = 2
        return np.zeros(2, np.float32), {}
    def step(self, action):
        time.sleep(float(os.environ["NAP"]))
        self.left -= 1
        return np.zeros(2, np.float32), 1.0, self.left == 0, False, {}
"""


@pytest.fixture
def clock(monkeypatch):
    """A clock that `advance` moves by some seconds; the phases and the progress go by it."""
    now = SimpleNamespace(seconds=1000.0)
    now.advance = lambda seconds: setattr(now, "seconds", now.seconds + seconds)
    fake = SimpleNamespace(monotonic=lambda: now.seconds)
    monkeypatch.setattr(display, "time", fake)
    monkeypatch.setattr(phases_module, "time", fake)
    return now


def phase_at(clock, *arguments, **keywords):
    return Phase(*arguments, began=clock.seconds, **keywords)


def follow(shown, phase, clock, seconds):
    """Show a phase four times a second."""
    for _ in range(int(seconds * 4)):
        clock.advance(0.25)
        shown.show_phase(phase)


def test_a_phase_is_a_line_once_it_takes_longer_than_two_seconds(clock, capsys):
    text = LineProgress()
    follow(text, phase_at(clock, "reading the config"), clock, 2)
    assert capsys.readouterr().out == ""
    follow(text, phase_at(clock, "building the noise table"), clock, 30)
    assert capsys.readouterr().out == "building the noise table ...\n"


def test_a_line_comes_every_minute_however_long_it_takes(clock, capsys):
    text = LineProgress()
    follow(text, phase_at(clock, "building the noise table"), clock, 150)
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "building the noise table ...",
        "building the noise table: 62 s",
        "building the noise table: 123 s",
    ]
    text.show(ROW)
    follow(text, phase_at(clock, "generation 4", GENERATIONS, 3, lambda: 0.254), clock, 70)
    *_, row, silent = capsys.readouterr().out.splitlines()
    assert row.split()[0] == "3" and silent == "generation 4: 25%, 60 s"


def test_only_the_first_generation_has_a_line_of_its_own(clock, capsys):
    text = LineProgress()
    follow(text, phase_at(clock, "generation 3", GENERATIONS, 2, lambda: 0.0), clock, 10)
    text.show(ROW)
    follow(text, phase_at(clock, "generation 4", GENERATIONS, 3, lambda: 0.0), clock, 10)
    follow(text, phase_at(clock, "evaluating generation 4", EVALUATIONS), clock, 10)
    first, _, _, evaluation = capsys.readouterr().out.splitlines()
    assert first == "generation 3 ..." and evaluation == "evaluating generation 4 ..."


def test_with_json_a_phase_is_an_entry(clock, capsys):
    shown = LineProgress(is_json=True)
    follow(shown, phase_at(clock, "building the environment"), clock, 3)
    shown.show(EVALUATED)
    phase, generation = map(json.loads, capsys.readouterr().out.splitlines())
    message = "building the environment ..."
    assert phase == {"severity": "INFO", "message": message, "phase": "building the environment"}
    assert generation["generation"] == 3


def test_the_bar_moves_within_a_generation_and_never_back(clock, capsys):
    bar = ProgressBar()
    bar.set_stop(validate_config({"environment": {"id": "CartPole-v1"}, "stop": {"generations": 10}}, "x").stop)
    (task,) = bar._bar.tasks
    shares = [0.0]
    bar.show_phase(phase_at(clock, "building the noise table"))
    clock.advance(3)
    assert (task.completed, task.total) == (0, 10) and task.description == "building the noise table: 0 s"
    playing = phase_at(clock, "generation 3", GENERATIONS, 2, lambda: shares[-1])
    positions = []
    for share in (0.0, 0.25, 0.5, 0.25, 1.0):  # a second batch begins from 0 again
        shares.append(share)
        clock.advance(1)
        bar.show_phase(playing)
        positions.append(task.completed)
    assert positions == [2, 2.25, 2.5, 2.5, 3] and task.description == "generation 3: 100%, 5 s"
    bar.show_phase(phase_at(clock, "evaluating generation 3", EVALUATIONS, played=lambda: 0.5))
    assert task.completed == 3 and task.description == "evaluating generation 3: 50%, 0 s"
    bar.show(EVALUATED)
    bar.show_phase(phase_at(clock, "generation 3", GENERATIONS))
    assert task.completed == 3 and task.description == "generation 3"
    bar.close()
    capsys.readouterr()
    plots = phase_at(clock, "closing the run")
    clock.advance(3)
    bar.show_phase(plots)
    assert capsys.readouterr().out == "closing the run ...\n"


class Recorded(Progress):
    """Keeps the phases that it is asked to show."""

    def __init__(self):
        self.shown, self.is_closed = [], False

    def show(self, row):
        self.shown.append(row)

    def show_phase(self, phase):
        self.shown.append((phase.name, phase.played and phase.played()))

    def close(self):
        self.is_closed = True


def queue_of(count):
    return RolloutQueue(evaluation_batch(np.zeros(1, np.float32), np.arange(count)))


def test_the_seconds_of_all_phases_add_up(clock):
    phases = Phases(Recorded(), SimpleNamespace(is_root=False, size=1), clock.seconds - 1.5)
    for name in ("reading the config", "building the environment"):
        phases.begin_start_up(name)
        clock.advance(2)
    for generation in (0, 1):
        phases.begin_play(QueueKey(generation, "training", 0), [queue_of(4)])
        clock.advance(10)
    phases.begin_play(QueueKey(2, "evaluation", 0), [queue_of(4)])
    clock.advance(4)
    phases.show(EVALUATED)
    clock.advance(0.5)
    assert phases.describe() == "this job took 30.0 s: 5.5 s start-up, 20.5 s generations, 4.0 s evaluations"


def test_a_thread_shows_the_newest_phase_and_ends_with_the_run(monkeypatch):
    monkeypatch.setattr(phases_module, "INTERVAL", 0.01)
    shown, queue = Recorded(), queue_of(8)
    with Phases(shown, SimpleNamespace(is_root=True, size=2), time.monotonic()) as phases:  # its share is 4 of the 8
        phases.begin_play(QueueKey(6, "training", 1), [queue])
        for finished in range(6):
            queue.take(1)
            queue.finish(finished, 1.0, 1.0, 10)
            before = len(shown.shown)
            while len(shown.shown) < before + 2:
                time.sleep(0.001)
    assert shown.is_closed and not [thread for thread in threading.enumerate() if thread is phases._thread]
    assert {name for name, _ in shown.shown} == {"generation 7, batch 2"}
    shares = [share for _, share in shown.shown]
    assert shares == sorted(shares) and set(shares) >= {0.25, 0.5, 0.75, 1.0} and max(shares) == 1.0


def test_the_bar_is_closed_where_a_run_fails():
    shown = Recorded()
    with pytest.raises(ZeroDivisionError), Phases(shown, Serial(), time.monotonic()) as phases:
        phases.begin_start_up("building the environment")
        1 / 0  # noqa: B018
    assert shown.is_closed


def test_a_rank_that_is_not_the_root_shows_nothing_until_it_is(monkeypatch):
    monkeypatch.setattr(phases_module, "INTERVAL", 0.001)
    shown, comm = Recorded(), SimpleNamespace(is_root=False, size=3)
    with Phases(shown, comm, time.monotonic()) as phases:
        phases.begin_play(QueueKey(0, "training", 0), [queue_of(3)])
        time.sleep(0.05)
        assert shown.shown == []
        comm.is_root, comm.size = True, 2  # rank 0 was lost
        phases.begin_play(QueueKey(0, "training", 0), [queue_of(3)])
        until = time.monotonic() + 10
        while not shown.shown and time.monotonic() < until:
            time.sleep(0.001)
    assert shown.shown


def test_the_evaluator_names_each_queue_that_it_plays_once():
    environment = {"id": "CartPole-v1", "max_steps": 20}
    values = {"environment": environment, "policy": {"hidden": []}, "solver": {"population": 8}}
    values |= {"noise": {"size": 1000}, "evaluation": {"every": 1, "episodes": 3}, "stop": {"generations": 2}}
    played = []

    def on_play(key, queues):
        played.append((key, len(queues[0].pending), queues[0].is_finished.any()))

    trainer = make_trainer(validate_config(values, "x"), Serial(), on_play=on_play)
    trainer.restore()
    for _ in range(2):
        trainer.run_generation()
    assert played == [
        (QueueKey(0, "training", 0), 8, False),
        (QueueKey(1, "evaluation", 0), 3, False),
        (QueueKey(1, "training", 0), 8, False),
        (QueueKey(2, "evaluation", 0), 3, False),
    ]


def test_the_age_of_a_process_begins_with_it():
    program = "import time; time.sleep(0.3); from mpies.training.progress import process_age; print(process_age())"
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert 0.25 < float(done.stdout) < time.monotonic() - began + 0.1
    assert process_age() > 0


@pytest.fixture
def slow(tmp_path, monkeypatch):
    """A folder with a config of an environment that is slow to build and to step."""
    (tmp_path / "nap.py").write_text(MODULE)
    (tmp_path / "config.yaml").write_text(CONFIG)
    monkeypatch.setenv("BUILD", "2.5")
    monkeypatch.setenv("NAP", "0.4")  # a generation takes 3.2 s, an evaluation 2.4 s
    return tmp_path


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_every_second_of_a_slow_run_is_accounted_for(log_format, slow, run_mpies):
    began = time.monotonic()
    outcome = run_mpies(0, "train", "config.yaml", "--out", "run", "--log-format", log_format)
    took = time.monotonic() - began
    assert outcome.code == 0, outcome.stderr
    lines = outcome.stdout.splitlines()
    if log_format == "json":
        lines = [json.loads(line)["message"] for line in lines]
    phases = [line for line in lines if line.endswith(" ...")]
    for name in ("building the environment", "generation 1", "evaluating generation 2"):
        assert f"{name} ..." in phases
    words = re.search(
        r"this job took ([\d.]+) s: ([\d.]+) s start-up, ([\d.]+) s generations, ([\d.]+) s evaluations", lines[-1]
    )
    total, *parts = map(float, words.groups())
    assert sum(parts) == pytest.approx(total, abs=0.3)
    start_up, generations, evaluations = parts
    assert start_up >= 2.5 and generations >= 6.3 and evaluations >= 2.3
    assert took - 3 < total < took  # what remains is the end of the process


def test_on_a_terminal_the_bar_tells_it_and_a_message_stands_above_it(slow, run_mpies):
    assert run_mpies(0, "train", "config.yaml", "--out", "run", "stop.generations=1").code == 0
    screen = run_on_terminal(slow, "train", "config.yaml", "--out", "run")
    for words in ("building the environment: 2 s", "generation 2: 50%", "evaluating generation 2: 67%"):
        assert words in screen, screen
    assert re.search(r"(^|[\r\n])INFO rank 0: run: continuing from generation 1\r*\n", screen), screen
    assert len(read_digests(slow / "run")) == 2


def run_on_terminal(folder, *arguments):
    """Run `mpies` on a pseudo-terminal of 140 columns.  Returns what it has printed, without the escape sequences."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 140, 0, 0))
    command = [sys.executable, "-m", "mpies", *arguments]
    terminal = {"stdin": follower, "stdout": follower, "stderr": follower, "env": os.environ | {"TERM": "xterm"}}
    process = subprocess.Popen(command, cwd=folder, **terminal)
    os.close(follower)
    content = b""
    try:
        while more := os.read(leader, 65536):
            content += more
    except OSError:  # how a terminal ends
        pass
    finally:
        os.close(leader)
        assert process.wait(60) == 0, content
    assert content.rfind(b"\x1b[?25h") > content.rfind(b"\x1b[?25l")  # the cursor is back
    return re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]", b"", content).decode()
