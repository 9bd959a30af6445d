"""TensorBoard events: every generation once, whatever was torn, lost or made again."""

from mpies.runs.metrics import read_metrics
import csv

import pytest

from mpies.runs.trackers import FILE, Events
from mpies.runs.reader import RunView

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
    """(step, {name: value}) of each event behind the head, read as TensorBoard frames them."""
    content, found = (path / FILE).read_bytes(), []
    while content:
        length = int.from_bytes(content[:8], "little")
        event = event_pb2.Event.FromString(content[12 : 12 + length])
        found.append((event.step, {value.tag: value.simple_value for value in event.summary.value}))
        content = content[16 + length :]
    return found[1:]


def test_events_carry_the_names_of_openais_starter(run_mpies, write_config, tmp_path):
    ended = run_mpies(0, "train", write_config(CONFIG), "--out", "run")
    assert ended.code == 0, ended.stderr
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


def test_events_behind_the_generation_that_is_resumed_are_made_again(tmp_path):
    rows = [{"generation": str(n), "seconds": str(n), "episodes": str(n), "steps": str(n)} for n in (1, 2, 3)]
    events = Events(tmp_path)
    events.begin(rows)
    events.begin(rows[:1])
    events.append({"generation": 2, "seconds": 9.0, "episodes": 9, "steps": 9})
    assert [(step, values["TimestepsSoFar"]) for step, values in read_events(tmp_path)] == [(1, 1), (2, 9)]


def test_a_run_keeps_a_log_its_ranks_and_the_columns_people_know(run_mpies, write_config, tmp_path):
    assert run_mpies(0, "train", write_config(CONFIG), "--out", "run", "tracking.tensorboard=false").code == 0
    run = RunView(tmp_path, "run")
    assert not (tmp_path / "run" / FILE).exists()
    assert run.text("log.txt").count("INFO rank 0: generation ") == 5
    assert run.ranks()["last"] == 5 and len(run.ranks()["idle"]) == 1 and 0 <= run.ranks()["idle"][0] <= 1
    columns = run.metrics.refresh().columns
    assert ((columns["idle_mean"] >= 0) & (columns["idle_mean"] <= columns["idle_max"])).all()
    assert columns["eval_episodes"][1] == columns["eval_length"][1] == 1 and 0 <= columns["eval_rank"][1] <= 1
    assert run.state() == "finished"


def test_a_run_from_before_these_columns_goes_on_with_its_own(run_mpies, write_config, tmp_path):
    config, run = write_config(CONFIG), tmp_path / "run"
    assert run_mpies(0, "train", config, "--out", run, "stop.generations=3").code == 0
    new = ("eval_episodes", "eval_length", "eval_rank", "idle_mean", "idle_max", "observations")
    rows = [{name: cell for name, cell in row.items() if name not in new} for row in read_metrics(run)]
    with open(run / "metrics.csv", "w", newline="") as file:
        table = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
    ended = run_mpies(0, "train", config, "--out", run)
    assert ended.code == 0, ended.stderr
    columns = RunView(run).metrics.refresh().columns
    assert columns["generation"].tolist() == [1, 2, 3, 4, 5] and not set(new) & columns.keys()
