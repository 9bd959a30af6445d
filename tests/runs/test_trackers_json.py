"""metrics.jsonl: each generation once, as JSON, also behind a stop or damage."""

import json

import pytest

import mpies
from mpies.core.errors import ConfigError
from mpies.runs.formats.metrics import as_numbers, read_metrics
from mpies.runs.trackers import wandb_run
from mpies.runs.trackers.base import Tracker, Trackers
from mpies.runs.trackers.json_lines import FILE, JsonLines

CONFIG = {
    "environment": {"id": "function:sphere", "dimension": 4},
    "solver": {"population": 8},
    "noise": {"size": 10000},
    "evaluation": {"every": 2},
    "checkpoint": {"every": 2, "share": 1},
    "tracking": {"json": True},
    "stop": {"generations": 5},
}


def read_lines(run):
    return [json.loads(line) for line in (run / FILE).read_text().splitlines()]


def train(path, *overrides):
    return mpies.train(CONFIG, *overrides, out=path, progress=False).path


def assert_like_metrics(run):
    rows, lines = read_metrics(run), read_lines(run)
    assert lines == [as_numbers(row) | {"digest": row["digest"]} for row in rows]
    assert [line["generation"] for line in lines] == list(range(1, len(rows) + 1))
    return rows


@pytest.mark.parametrize("damage", ["cut", "removed", "switched off"])
def test_a_resumed_run_has_every_generation_once_with_the_numbers_of_its_row(damage, tmp_path):
    run = train(tmp_path / "run", "stop.generations=3", *(["tracking.json=false"] if damage == "switched off" else []))
    content = (run / FILE).read_bytes() if (run / FILE).exists() else b""
    assert (content == b"") == (damage == "switched off")
    if damage == "cut":
        (run / FILE).write_bytes(content[:-40])
    if damage == "removed":
        (run / FILE).unlink()
    train(run)
    assert len(assert_like_metrics(run)) == 5 and (run / FILE).read_bytes().startswith(content)
    first, second = read_lines(run)[:2]
    assert first["eval_mean"] is None and isinstance(second["eval_mean"], float) and isinstance(first["steps"], int)


def test_lines_that_somebody_removes_cost_a_warning_and_are_written_at_the_next_start(tmp_path, caplog):
    def remove(run, row):
        if row["generation"] == 2:
            assert len(run.metrics["generation"]) == 2  # waits until they are on disk
            (run.path / FILE).unlink()

    run = mpies.train(CONFIG, out=tmp_path / "run", progress=False, callbacks=remove)
    assert len(run.metrics["generation"]) == 5 and not (run.path / FILE).exists()
    assert "JsonLines failed (TrainingFailed: " in caplog.text and "training continues without it" in caplog.text
    assert len(assert_like_metrics(train(run.path, "stop.generations=6"))) == 6


class Failing(Tracker):
    """Fails at the third row."""

    def __init__(self):
        self.calls = 0

    def resume(self, rows):
        self.calls = 0

    def append(self, row):
        self.calls += 1
        if self.calls == 3:
            raise ValueError("no more\nof this")


def test_a_tracker_that_fails_warns_once_and_the_others_go_on(tmp_path):
    failing, lines, warnings = Failing(), JsonLines(tmp_path), []
    trackers = Trackers([failing, lines], warnings.append)
    trackers.resume([])
    for generation in range(1, 6):
        trackers.append({"generation": generation, "digest": "d"})
    trackers.close("")
    assert warnings == ["Failing failed (ValueError: no more of this); training continues without it"]
    assert failing.calls == 3 and [line["generation"] for line in read_lines(tmp_path)] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"project": "x"}, r"tracking.wandb needs wandb: pip install 'mpies\[wandb\]'"),
        ({}, r"tracking\.wandb\.project"),
    ],
)
def test_weights_and_biases_need_their_package_and_a_project(section, words, tmp_path, monkeypatch):
    monkeypatch.setattr(wandb_run, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=words):
        mpies.train(CONFIG | {"tracking": {"wandb": section}}, out=tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()


def test_an_infinite_number_is_null(tmp_path):
    config = CONFIG | {"solver": {"kind": "pepg", "population": 4}, "evaluation": {"every": 0}}
    (tmp_path / "late.py").write_text(
        "calls = []\ndef value(x):\n    calls.append(0)\n    return 1.0 if len(calls) in (1, 6) else float('nan')\n"
    )
    environment = {"id": f"{tmp_path}/late.py:value", "dimension": 4}
    stop = {"generations": 1, "max_failures": 1}
    run = mpies.train(config | {"environment": environment, "stop": stop}, out=tmp_path / "run", progress=False).path
    assert read_metrics(run)[0]["best_return"] == "-inf"  # no member had a return
    (line,) = (run / FILE).read_text().splitlines()
    assert json.loads(line, parse_constant=pytest.fail)["best_return"] is None
