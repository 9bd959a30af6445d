"""TensorBoard events: every generation once, whatever was cut off, lost or trained again."""

import pytest
import yaml

from mpies.core.errors import ConfigError
from mpies.runs.formats.metrics import read_metrics
from mpies.runs.trackers import tensorboard
from mpies.runs.trackers.tensorboard import FILE, TensorBoardEvents
from tests.runs import test_trackers_json
from tests.support import invoke

event_pb2 = pytest.importorskip("tensorboardX.proto.event_pb2")

CONFIG = yaml.safe_dump(test_trackers_json.CONFIG | {"tracking": {"tensorboard": True}})


def read_events(path):
    """(step, {name: value}) of each event behind the first, which holds the version."""
    content, events = (path / FILE).read_bytes(), []
    while content:
        length = int.from_bytes(content[:8], "little")
        event = event_pb2.Event.FromString(content[12 : 12 + length])
        events.append((event.step, {value.tag: value.simple_value for value in event.summary.value}))
        content = content[16 + length :]
    return events[1:]


@pytest.mark.parametrize("damage", ["cut", "removed"])
def test_a_resumed_run_has_every_generation_once_under_the_names_of_openais_starter(damage, here, write_config):
    command, run = ("train", write_config(CONFIG), "--out", "run"), here / "run"
    invoke(*command, "stop.generations=3", code=0)
    if damage == "cut":
        (run / FILE).write_bytes((run / FILE).read_bytes()[:-40])
    else:
        (run / FILE).unlink()
    invoke(*command, code=0)
    rows, events = read_metrics(run), read_events(run)
    assert [step for step, _ in events] == [1, 2, 3, 4, 5]
    for row, (_, values) in zip(rows, events, strict=True):
        assert values["EpRewMean"] == pytest.approx(float(row["return_mean"]), rel=1e-5)
        assert values["TimestepsThisIter"] == 8 and values["TimestepsSoFar"] == 8 * int(row["generation"])
        assert ("EvalEpRewMean" in values) == bool(row["eval_mean"])
        assert {"Norm", "GradNorm", "UpdateRatio", "UniqueWorkers", "TimeElapsed"} <= values.keys()


def test_events_are_the_same_to_the_bit_when_they_are_written_again(tmp_path):
    """So whoever follows the file has read nothing that changes."""
    numbers = [{"generation": n, "seconds": n / 3, "episodes": n, "steps": n, "return_mean": n / 7} for n in (1, 2, 3)]
    rows = [{name: f"{value:.9g}" for name, value in row.items()} for row in numbers]
    events = TensorBoardEvents(tmp_path)
    events.resume([])
    for row in numbers:
        events.append(row)
        events.append(row)
    content = (tmp_path / FILE).read_bytes()
    for damaged in (content, content[:-9], content[:70] + b"x" + content[71:]):
        (tmp_path / FILE).write_bytes(damaged)
        TensorBoardEvents(tmp_path).resume(rows)
        assert (tmp_path / FILE).read_bytes() == content
    events.resume(rows[:1])  # what is behind it is trained again
    events.append(numbers[1] | {"steps": 9})
    assert [(step, values["TimestepsSoFar"]) for step, values in read_events(tmp_path)] == [(1, 1), (2, 9)]


def test_without_tensorboardx_its_extra_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(tensorboard, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'mpies\[tensorboard\]'"):
        TensorBoardEvents(tmp_path)
