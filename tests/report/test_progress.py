"""Progress on standard output: text lines, JSON lines, a bar, and the time left."""

import json
import math
import os
from types import SimpleNamespace

import numpy as np
import pytest

from mpies.comm import LAUNCHED
from mpies.config.loading import validate_config
from mpies.report import display
from mpies.report.display import LineProgress, ProgressBar, TimeLeft, make_progress
from mpies.training.progress import describe_generation

ROW = {
    "generation": 3,
    "seconds": 12.34,
    "steps": 123456,
    "return_mean": -1.5,
    "return_max": 2e6,
    "length_mean": 40.0,
    "steps_per_second": 10004.4,
    "eval_mean": None,
    "sigma": float("nan"),
    "failures": np.int64(2),
}
EVALUATED = ROW | {"eval_mean": 2.0, "eval_std": 2**0.5, "eval_episodes": 2}


def config(**stop):
    return validate_config({"environment": {"id": "function:sphere", "dimension": 3}, "stop": stop}, "config")


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


def test_a_generation_without_evaluation_is_described_without_one():
    assert describe_generation(ROW) == "generation 3: return -1.50"


def test_a_single_episode_has_no_interval():
    assert describe_generation({**ROW, "eval_mean": 2.0, "eval_std": 0.0, "eval_episodes": 1}).endswith(
        ", evaluation 2.00"
    )


def test_the_bar_shows_evaluations_and_the_target(capsys):
    bar = ProgressBar()
    bar.set_stop(config(target=10).stop)
    bar.show(EVALUATED)
    bar.close()
    shown = capsys.readouterr().out
    assert "generation 3: evaluation 2.00 +- 1.96, target 10" in shown and "10,004 steps/s" in shown


@pytest.mark.parametrize(
    ("evaluations", "stop", "left"),
    [
        ([], {}, "1:06:00 to the last generation"),  # 40 s for 100 generations, 9900 to go
        ([(0, 0), (10, 5)], {"target": 50}, "0:01:30 to the target"),
        ([(0, 5), (10, 4)], {"target": 50}, "1:06:00 to the last generation"),  # it does not rise
        ([(0, 1)], {"target": 50}, "1:06:00 to the last generation"),
        ([(0, -900), (1, 0), (2, 1), (3, 2), (4, 3), (5, 4)], {"target": 10}, "0:00:06 to the target"),  # the last 5
        ([(0, 0), (10, 60)], {"target": 50}, "0:00:00 to the target"),  # reached, and to be confirmed
        ([(0, 1), (1, math.inf)], {"target": 50}, "1:06:00 to the last generation"),  # the mean of huge returns
        ([], {"seconds": 100, "steps": 50_000}, "0:01:00 to the limit of seconds"),  # the first of the limits
        ([], {"seconds": 100, "steps": 3_000}, "0:00:20 to the limit of steps"),
    ],
)
def test_the_time_left_is_extrapolated(evaluations, stop, left):
    row = {"generation": 100, "steps": 2000, "seconds": 40.0}
    assert TimeLeft(config(generations=10_000, **stop).stop, evaluations).describe(row) == left


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
