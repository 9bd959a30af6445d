"""TensorBoard events: every generation once, whatever was cut off, lost or trained again."""

import pytest

from mpies.core.errors import ConfigError
from mpies.runs.formats.metrics import read_metrics
from mpies.runs.trackers import tensorboard
from mpies.runs.trackers.tensorboard import FILE, TensorBoardEvents

event_pb2 = pytest.importorskip("tensorboardX.proto.event_pb2")

CONFIG = """
environment: {id: "function:sphere", dimension: 4}
solver: {population: 8}
noise: {size: 10000}
evaluation: {every: 2}
checkpoint: {every: 2, share: 1}
tracking: {tensorboard: true}
stop: {generations: 5}
"""


def read_events(path):
    """(step, {name: value}) of each event behind the first, which holds the version."""
    content, events = (path / FILE).read_bytes(), []
    while content:
        length = int.from_bytes(content[:8], "little")
        event = event_pb2.Event.FromString(content[12 : 12 + length])
        events.append((event.step, {value.tag: value.simple_value for value in event.summary.value}))
        content = content[16 + length :]
    return events[1:]


def test_events_carry_the_names_of_openais_starter(run_mpies, write_config, tmp_path):
    run_mpies(0, "train", write_config(CONFIG), "--out", "run", code=0)
    rows, events = read_metrics(tmp_path / "run"), read_events(tmp_path / "run")
    assert [step for step, _ in events] == [1, 2, 3, 4, 5]
    for row, (_, values) in zip(rows, events, strict=True):
        assert values["EpRewMean"] == pytest.approx(float(row["return_mean"]), rel=1e-5)
        assert values["TimestepsThisIter"] == 8 and values["TimestepsSoFar"] == 8 * int(row["generation"])
        assert ("EvalEpRewMean" in values) == bool(row["eval_mean"])
        assert {"Norm", "GradNorm", "UpdateRatio", "UniqueWorkers", "TimeElapsed"} <= values.keys()


@pytest.mark.parametrize("lost", [40, None])
def test_a_resumed_run_has_every_generation_once(lost, run_mpies, write_config, tmp_path):
    config, run = write_config(CONFIG), tmp_path / "run"
    assert run_mpies(0, "train", config, "--out", run, "stop.generations=3").code == 0
    content = (run / FILE).read_bytes()
    if lost is None:
        (run / FILE).unlink()
    else:
        (run / FILE).write_bytes(content[:-lost])
    assert run_mpies(0, "train", config, "--out", run).code == 0
    assert [step for step, _ in read_events(run)] == [1, 2, 3, 4, 5]
    rows = {step: values for step, values in read_events(run)}
    assert rows[3]["EpRewMean"] == pytest.approx(float(read_metrics(run)[2]["return_mean"]), rel=1e-5)


def test_events_behind_the_generation_that_is_resumed_are_written_again(tmp_path):
    rows = [{"generation": str(n), "seconds": str(n), "episodes": str(n), "steps": str(n)} for n in (1, 2, 3)]
    events = TensorBoardEvents(tmp_path)
    events.resume(rows)
    events.resume(rows[:1])
    events.append({"generation": 2, "seconds": 9.0, "episodes": 9, "steps": 9})
    assert [(step, values["TimestepsSoFar"]) for step, values in read_events(tmp_path)] == [(1, 1), (2, 9)]


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


def test_a_run_without_tensorboard_has_no_events(run_mpies, write_config, tmp_path):
    assert run_mpies(0, "train", write_config(CONFIG), "--out", "run", "tracking.tensorboard=false").code == 0
    assert not (tmp_path / "run" / FILE).exists()


def test_without_tensorboardx_its_extra_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(tensorboard, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'mpies\[tensorboard\]'"):
        TensorBoardEvents(tmp_path)
