"""Every tracker has each generation once, also behind a stop, damage or a failure; that of Weights & Biases offline."""

import json

import pytest
import yaml

import mpies
from mpies.core.errors import ConfigError
from mpies.runs.formats.metrics import as_numbers, read_metrics
from mpies.runs.trackers import json_lines, tensorboard, wandb_run
from mpies.runs.trackers.base import Tracker, Trackers
from mpies.runs.trackers.json_lines import JsonLines
from mpies.runs.trackers.tensorboard import TensorBoardEvents
from tests.support import wait_for

event_pb2 = pytest.importorskip("tensorboardX.proto.event_pb2")

CONFIG = {
    "environment": {"id": "function:sphere", "dimension": 4},
    "solver": {"population": 8},
    "noise": {"size": 10000},
    "evaluation": {"every": 2},
    "checkpoint": {"every": 2, "share": 1},
    "tracking": {"json": True, "tensorboard": True},
    "stop": {"generations": 5},
}


def read_lines(run):
    return [json.loads(line) for line in (run / json_lines.FILE).read_text().splitlines()]


def read_events(path):
    """(step, {name: value}) of each event behind the first, which holds the version."""
    content, events = (path / tensorboard.FILE).read_bytes(), []
    while content:
        length = int.from_bytes(content[:8], "little")
        event = event_pb2.Event.FromString(content[12 : 12 + length])
        events.append((event.step, {value.tag: value.simple_value for value in event.summary.value}))
        content = content[16 + length :]
    return events[1:]


def train(path, *overrides):
    return mpies.train(CONFIG, *overrides, out=path, progress=False).path


DAMAGES = {
    "cut off": lambda path: path.write_bytes(path.read_bytes()[:-40]),
    "removed": lambda path: path.unlink(),
    "switched off": lambda path: None,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_resumed_run_has_every_generation_once_with_the_numbers_of_its_row(damage, tmp_path):
    is_off = ["tracking={}"] if damage == "switched off" else []
    run = train(tmp_path / "run", "stop.generations=3", *is_off)
    for file in (json_lines.FILE, tensorboard.FILE):
        assert (run / file).exists() == (not is_off)
        DAMAGES[damage](run / file)
    train(run)
    rows, lines, events = read_metrics(run), read_lines(run), read_events(run)
    assert lines == [as_numbers(row) | {"digest": row["digest"]} for row in rows]
    assert [line["generation"] for line in lines] == [step for step, _ in events] == [1, 2, 3, 4, 5]
    assert lines[0]["eval_mean"] is None and isinstance(lines[1]["eval_mean"], float)
    for line, (_, values) in zip(lines, events, strict=True):
        assert values["EpRewMean"] == pytest.approx(line["return_mean"], rel=1e-5)
        assert values["TimestepsThisIter"] == 8 and values["TimestepsSoFar"] == 8 * line["generation"]
        assert ("EvalEpRewMean" in values) == (line["eval_mean"] is not None)
        assert {"Norm", "GradNorm", "UpdateRatio", "UniqueWorkers", "TimeElapsed"} <= values.keys()


class Failing(Tracker):
    """Fails at the third row."""

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


def test_an_infinite_number_is_null(tmp_path):
    config = CONFIG | {"solver": {"kind": "pepg", "population": 4}, "evaluation": {"every": 0}}
    (tmp_path / "late.py").write_text(
        "calls = []\ndef value(x):\n    calls.append(0)\n    return 1.0 if len(calls) in (1, 6) else float('nan')\n"
    )
    environment = {"id": f"{tmp_path}/late.py:value", "dimension": 4}
    stop = {"generations": 1, "max_failures": 1}
    run = mpies.train(config | {"environment": environment, "stop": stop}, out=tmp_path / "run", progress=False).path
    assert read_metrics(run)[0]["best_return"] == "-inf"  # no member had a return
    (line,) = (run / json_lines.FILE).read_text().splitlines()
    assert json.loads(line, parse_constant=pytest.fail)["best_return"] is None


def test_events_are_the_same_to_the_bit_when_they_are_written_again(tmp_path):
    """So whoever follows the file has read nothing that changes."""
    numbers = [{"generation": n, "seconds": n / 3, "episodes": n, "steps": n, "return_mean": n / 7} for n in (1, 2, 3)]
    rows = [{name: f"{value:.9g}" for name, value in row.items()} for row in numbers]
    events = TensorBoardEvents(tmp_path)
    events.resume([])
    for row in numbers:
        events.append(row)
        events.append(row)
    content = (tmp_path / tensorboard.FILE).read_bytes()
    for damaged in (content, content[:-9], content[:70] + b"x" + content[71:]):
        (tmp_path / tensorboard.FILE).write_bytes(damaged)
        TensorBoardEvents(tmp_path).resume(rows)
        assert (tmp_path / tensorboard.FILE).read_bytes() == content
    events.resume(rows[:1])  # what is behind it is trained again
    events.append(numbers[1] | {"steps": 9})
    assert [(step, values["TimestepsSoFar"]) for step, values in read_events(tmp_path)] == [(1, 1), (2, 9)]


def test_without_tensorboardx_its_extra_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(tensorboard, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'mpies\[tensorboard\]'"):
        TensorBoardEvents(tmp_path)


# Weights & Biases without a network.
BLOCK, HEAD = 32768, 7  # bytes of a block, and of what stands before each part of a record
WANDB = "tracking={wandb: {project: spheres, tags: [small]}}"


@pytest.fixture
def wandb(monkeypatch):
    for name, value in (("MODE", "offline"), ("ERROR_REPORTING", "false"), ("DISABLE_GIT", "true")):
        monkeypatch.setenv(f"WANDB_{name}", value)
    monkeypatch.setattr(wandb_run, "INTERVAL", 0.01)
    return pytest.importorskip("wandb", reason="pip install 'mpies[wandb]'")


def read_records(path):
    """The records of an offline run's file of wandb, which is LevelDB's log behind 7 bytes."""
    from wandb.proto.wandb_internal_pb2 import Record

    content, place, parts = path.read_bytes(), HEAD, []
    while place + HEAD <= len(content):
        left = BLOCK - place % BLOCK
        if left < HEAD:
            place += left
            continue
        length, kind = int.from_bytes(content[place + 4 : place + 6], "little"), content[place + 6]
        parts.append(content[place + HEAD : place + HEAD + length])
        place += HEAD + length
        if kind in (1, 4):  # whole, or the last part
            yield Record.FromString(b"".join(parts))
            parts = []


def read_tracked(run):
    """Identities, projects and rows of a run's offline files; the rows as (step, column name to value)."""
    identities, rows = set(), []
    for file in sorted((run / "wandb").glob("offline-run-*/*.wandb")):
        for record in read_records(file):
            if record.WhichOneof("record_type") == "run":
                identities.add((record.run.run_id, record.run.project, record.run.display_name))
            if record.WhichOneof("record_type") == "history":
                items = {item.key or item.nested_key[0]: json.loads(item.value_json) for item in record.history.item}
                rows.append((record.history.step.num, items))
    return identities, rows


def test_a_run_is_tracked_and_goes_on_in_the_same_tracked_run(wandb, tmp_path):
    train(tmp_path / "ball", WANDB, "stop.generations=3")
    run = mpies.load(train(tmp_path / "ball", WANDB))
    # wandb's own process closes the file after `finish` has returned: measured by stopping that process there
    wait_for(lambda: len(read_tracked(run.path)[1]) >= 5)
    identities, rows = read_tracked(run.path)
    ((identity, project, name),) = identities
    assert (project, name) == ("spheres", "ball")
    assert json.loads((run.path / "tracking-wandb.json").read_text()) == {"id": identity, "generation": 5}
    assert [step for step, _ in rows] == [1, 2, 3, 4, 5]
    for name in ("return_mean", "steps", "sigma"):
        assert [items[name] for _, items in rows] == pytest.approx(run.metrics[name])
    assert ["eval_mean" in items for _, items in rows] == [value == value for value in run.metrics["eval_mean"]]


def test_a_tracked_run_of_the_user_goes_on(wandb, tmp_path):
    mine = wandb.init(project="mine", dir=tmp_path, settings=wandb.Settings(silent=True, console="off"))
    train(tmp_path / "run", WANDB)
    assert wandb.run is mine
    mine.log({"x": 1})
    mine.finish()


def test_without_a_key_it_warns_once_and_training_goes_on(wandb, tmp_path, monkeypatch, run_mpies, write_config):
    for name in ("WANDB_MODE", "WANDB_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    config = write_config(yaml.safe_dump(CONFIG | {"tracking": {"wandb": {"project": "x"}}}))
    outcome = run_mpies(0, "train", config, "--out", "run")
    assert outcome.code == 0 and mpies.load(tmp_path / "run").generation == 5
    (warning,) = [line for line in outcome.stderr.splitlines() if "wandb" in line]
    assert "tracking.wandb failed" in warning and "wandb login" in warning
    assert warning.endswith("training continues without it")
