"""Weights & Biases without a network: every generation once, resumed runs under the same identity, failures."""

import json

import pytest
import yaml

import mpies
from mpies.runs.trackers import wandb_run
from tests.runs.test_trackers import CONFIG
from tests.support import wait_for

wandb = pytest.importorskip("wandb", reason="pip install 'mpies[wandb]'")
BLOCK, HEAD = 32768, 7  # bytes of a block, and of what stands before each part of a record


@pytest.fixture(autouse=True)
def without_network(monkeypatch):
    for name, value in (("MODE", "offline"), ("ERROR_REPORTING", "false"), ("DISABLE_GIT", "true")):
        monkeypatch.setenv(f"WANDB_{name}", value)
    monkeypatch.setattr(wandb_run, "INTERVAL", 0.01)


def train(path, *overrides, **options):
    config = CONFIG | {"tracking": {"wandb": {"project": "spheres", "tags": ["small"]}}}
    return mpies.train(config, *overrides, out=path, progress=False, **options)


def read_records(path):
    """The records of an offline run's file, which is LevelDB's log behind 7 bytes."""
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


def test_a_run_is_tracked_and_goes_on_in_the_same_tracked_run(tmp_path):
    train(tmp_path / "ball", "stop.generations=3")
    run = train(tmp_path / "ball")
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


def test_a_tracked_run_of_the_user_goes_on(tmp_path):
    mine = wandb.init(project="mine", dir=tmp_path, settings=wandb.Settings(silent=True, console="off"))
    train(tmp_path / "run")
    assert wandb.run is mine
    mine.log({"x": 1})
    mine.finish()


def test_without_a_key_it_warns_once_and_training_goes_on(tmp_path, monkeypatch, run_mpies, write_config):
    for name in ("WANDB_MODE", "WANDB_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    config = write_config(yaml.safe_dump(CONFIG | {"tracking": {"wandb": {"project": "x"}}}))
    outcome = run_mpies(0, "train", config, "--out", "run")
    assert outcome.code == 0 and mpies.load(tmp_path / "run").generation == 5
    (warning,) = [line for line in outcome.stderr.splitlines() if "wandb" in line]
    assert "tracking.wandb failed" in warning and "wandb login" in warning
    assert warning.endswith("training continues without it")
