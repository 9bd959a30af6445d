"""How progress is shown: text lines, JSON lines, a bar with the time left, and every second of a slow run."""

import json
import math
import os
import re
from types import SimpleNamespace

import numpy as np
import pytest

from mpies.comm import LAUNCHED
from mpies.config.loading import validate_config
from mpies.report import display
from mpies.report.display import LineProgress, ProgressBar, TimeLeft, make_progress
from mpies.runs.formats.metrics import read_digests
from mpies.training import progress
from mpies.training.progress import EVALUATIONS, GENERATIONS, Phase
from tests.support import environment_module, run_on_terminal

ROW = {"generation": 3, "seconds": 12.34, "steps": 123456, "return_mean": -1.5, "return_max": 2e6, "length_mean": 40.0}
ROW |= {"steps_per_second": 10004.4, "eval_mean": None, "sigma": float("nan"), "failures": np.int64(2)}
EVALUATED = ROW | {"eval_mean": 2.0, "eval_std": 2**0.5, "eval_episodes": 2}
# Episodes of two steps; a step takes as long as NAP says.
CONFIG = """
environment: {id: "nap.py:Nap", rebuild: never}
policy: {hidden: []}
solver: {population: 4}
noise: {size: 10000}
evaluation: {every: 2, episodes: 3}
stop: {generations: 2}
"""
BUILD = 'time.sleep(float(os.environ.get("BUILD", "0")))\nos.environ["BUILD"] = "0"  # the first one alone'
MODULE = environment_module("Nap", init=BUILD, step='time.sleep(float(os.environ["NAP"]))', length=2)


def config(**stop):
    return validate_config({"environment": {"id": "function:sphere", "dimension": 3}, "stop": stop}, "config")


@pytest.fixture
def clock(monkeypatch):
    """A clock that `advance` moves by some seconds; the phases and the progress go by it."""
    now = SimpleNamespace(seconds=1000.0)
    now.advance = lambda seconds: setattr(now, "seconds", now.seconds + seconds)
    fake = SimpleNamespace(monotonic=lambda: now.seconds)
    monkeypatch.setattr(display, "time", fake)
    monkeypatch.setattr(progress, "time", fake)
    return now


def phase_at(clock, *arguments, **keywords):
    return Phase(*arguments, began=clock.seconds, **keywords)


def follow(shown, clock, seconds, *arguments, **keywords):
    """Show a phase that begins now four times a second."""
    phase = phase_at(clock, *arguments, **keywords)
    for _ in range(int(seconds * 4)):
        clock.advance(0.25)
        shown.show_phase(phase)


def test_text_has_one_header_and_aligned_columns(capsys):
    text = LineProgress()
    text.show(ROW)
    text.show(EVALUATED | {"return_mean": None})
    header, first, second = capsys.readouterr().out.splitlines()
    assert header.split() == ["generation", "mean", "max", "length", "evaluation", "steps", "steps/s", "seconds"]
    assert first.split() == ["3", "-1.50", "2.000e+06", "40.00", "123,456", "10,004", "12.3"]
    assert second.split() == ["3", "-", "2.000e+06", "40.00", "2.00", "+-", "1.96", "123,456", "10,004", "12.3"]
    assert len(header) == len(first) == len(second)


def test_json_has_the_numbers_under_their_names(capsys):
    LineProgress(is_json=True).show(EVALUATED | {"return_std": np.inf})
    entry = json.loads(capsys.readouterr().out)
    assert entry.pop("severity") == "INFO"
    assert entry.pop("message") == "generation 3: return -1.50, evaluation 2.00 +- 1.96"
    assert entry == {name: value for name, value in EVALUATED.items() if name != "sigma"}  # nor infinity


def test_the_time_left_is_extrapolated():
    row = {"generation": 100, "steps": 2000, "seconds": 40.0}
    for evaluations, stop, left in (
        ([], {}, "1:06:00 to the last generation"),  # 40 s for 100 generations, 9900 to go
        ([(0, 0), (10, 5)], {"target": 50}, "0:01:30 to the target"),
        ([(0, 1)], {"target": 50}, "1:06:00 to the last generation"),
        ([(0, -900), (1, 0), (2, 1), (3, 2), (4, 3), (5, 4)], {"target": 10}, "0:00:06 to the target"),  # the last 5
        ([(0, 0), (10, 60)], {"target": 50}, "0:00:00 to the target"),  # reached, and to be confirmed
        ([(0, 1), (1, math.inf)], {"target": 50}, "1:06:00 to the last generation"),  # the mean of huge returns
        ([], {"seconds": 100, "steps": 50_000}, "0:01:00 to the limit of seconds"),  # the first of the limits
    ):
        assert TimeLeft(config(generations=10_000, **stop).stop, evaluations).describe(row) == left


def test_the_bar_follows_the_target_or_the_generations():
    shown = TimeLeft(config(generations=1000, target=50).stop)
    shares = []
    for generation, mean in enumerate([10.0, 10.0, 30.0, 20.0, math.inf, 50.0], start=1):
        shown.describe({"generation": generation, "steps": 1, "seconds": 1.0 * generation, "eval_mean": mean})
        shares.append(shown.share)
    assert shares == pytest.approx([0.001, 0.002, 0.5, 0.5, 0.5, 1.0])  # it never goes back
    shown = TimeLeft(config(generations=4).stop)
    shown.describe({"generation": 3, "steps": 1, "seconds": 1.0})
    assert shown.share == 0.75


def test_json_is_made_where_it_is_wanted_and_a_bar_on_a_terminal(monkeypatch):
    for name in LAUNCHED:
        monkeypatch.delenv(name, raising=False)
    is_terminal = False
    monkeypatch.setattr(display.sys, "stdout", SimpleNamespace(isatty=lambda: is_terminal, write=len, flush=int))
    monkeypatch.setenv("TERM", "xterm")
    assert type(make_progress()) is LineProgress
    is_terminal = True
    assert isinstance(make_progress(), ProgressBar)
    for term in ("dumb", "unknown"):  # such as the shell of Emacs, where no bar can be drawn
        with monkeypatch.context() as inside:
            inside.setenv("TERM", term)
            assert type(make_progress()) is LineProgress
    monkeypatch.setenv("PMIX_RANK", "0")  # now mpirun's standard output decides
    monkeypatch.setattr(display.os, "readlink", lambda path: "/tmp/log.txt")
    assert type(make_progress()) is LineProgress
    first, second = os.openpty()
    try:
        terminal = os.ttyname(second)
        monkeypatch.setattr(display.os, "readlink", lambda path: terminal)
        assert isinstance(make_progress(), ProgressBar)
    finally:
        os.close(first)
        os.close(second)
    monkeypatch.setenv("MPIES_LOG", "json")
    assert make_progress()._is_json


def test_a_phase_is_a_line_once_it_takes_longer_than_two_seconds_and_then_every_minute(clock, capsys):
    text = LineProgress()
    follow(text, clock, 2, "reading the config")
    assert capsys.readouterr().out == ""
    follow(text, clock, 150, "building the noise table")
    lines = [line.removeprefix("building the noise table") for line in capsys.readouterr().out.splitlines()]
    assert lines == [" ...", ": 62 s", ": 123 s"]
    follow(text, clock, 10, "generation 3", GENERATIONS, 2, lambda: 0.0)
    text.show(ROW)
    follow(text, clock, 70, "generation 4", GENERATIONS, 3, lambda: 0.254)  # only the first has a line of its own
    follow(text, clock, 10, "evaluating generation 4", EVALUATIONS)
    first, _, row, silent, evaluation = capsys.readouterr().out.splitlines()
    assert first == "generation 3 ..." and evaluation == "evaluating generation 4 ..."
    assert row.split()[0] == "3" and silent == "generation 4: 25%, 60 s"
    shown, phase = LineProgress(is_json=True), "building the environment"
    follow(shown, clock, 3, phase)
    assert json.loads(capsys.readouterr().out) == {"severity": "INFO", "message": f"{phase} ...", "phase": phase}


def test_the_bar_moves_within_a_generation_and_never_back(clock, capsys):
    bar = ProgressBar()
    bar.set_stop(config(generations=10).stop)
    (task,) = bar._bar.tasks
    shares, positions = [0.0], []
    bar.show_phase(phase_at(clock, "building the noise table"))
    clock.advance(3)
    assert (task.completed, task.total) == (0, 10) and task.description == "building the noise table: 0 s"
    playing = phase_at(clock, "generation 3", GENERATIONS, 2, lambda: shares[-1])
    for share in (0.0, 0.25, 0.5, 0.25, 1.0):  # a second batch begins from 0 again
        shares.append(share)
        clock.advance(1)
        bar.show_phase(playing)
        positions.append(task.completed)
    assert positions == [2, 2.25, 2.5, 2.5, 3] and task.description == "generation 3: 100%, 5 s"
    bar.show_phase(phase_at(clock, "evaluating generation 3", EVALUATIONS, played=lambda: 0.5))
    assert task.completed == 3 and task.description == "evaluating generation 3: 50%, 0 s"
    bar.set_stop(config(target=10).stop)
    bar.show(EVALUATED)
    bar.show_phase(phase_at(clock, "generation 3", GENERATIONS))
    bar.close()
    shown = capsys.readouterr().out
    assert "generation 3: evaluation 2.00 +- 1.96, target 10" in shown and "10,004 steps/s" in shown
    plots = phase_at(clock, "closing the run")
    clock.advance(3)
    bar.show_phase(plots)
    assert capsys.readouterr().out == "closing the run ...\n"


def test_on_a_terminal_the_bar_tells_it_and_a_message_stands_above_it(write_config, run_mpies, tmp_path, monkeypatch):
    write_config(MODULE, "nap.py")
    write_config(CONFIG)
    monkeypatch.setenv("NAP", "0")
    run_mpies(0, "train", "config.yaml", "--out", "run", "stop.generations=1", code=0)
    monkeypatch.setenv("BUILD", "1.5")
    monkeypatch.setenv("NAP", "0.3")  # a generation takes 2.4 s, an evaluation 1.8 s
    content = run_on_terminal(tmp_path, "train", "config.yaml", "--out", "run")
    assert content.rfind(b"\x1b[?25h") > content.rfind(b"\x1b[?25l")  # the cursor is back
    screen = re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]", b"", content).decode()
    for words in ("building the environment: 1 s", "generation 2: 50%", "evaluating generation 2: 67%"):
        assert words in screen, screen
    assert re.search(r"(^|[\r\n])INFO rank 0: run: continuing from generation 1\r*\n", screen), screen
    assert len(read_digests(tmp_path / "run")) == 2
