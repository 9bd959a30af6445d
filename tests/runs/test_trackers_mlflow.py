"""MLflow with a store of its own: every generation once, resumed runs in the same tracked run, failures."""

import json

import pytest

import mpies
from mpies.config.loading import validate_config
from mpies.runs.trackers import services
from tests.runs.test_trackers_json import CONFIG
from tests.support import wait_for

mlflow = pytest.importorskip("mlflow", reason="pip install 'mpies[mlflow]'")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """The address of a store; making its tables takes seconds."""
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow')}/mlflow.db"


@pytest.fixture(autouse=True)
def no_telemetry(monkeypatch):
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setattr(services, "INTERVAL", 0.01)


def train(path, uri, *overrides, **options):
    config = CONFIG | {"tracking": {"mlflow": {"uri": uri, "experiment": "spheres"}}}
    return mpies.train(config, *overrides, out=path, progress=False, **options)


def tracked_runs(client):
    return client.search_runs([client.get_experiment_by_name("spheres").experiment_id])


def test_a_run_is_tracked_and_goes_on_in_the_same_tracked_run(store, tmp_path):
    client = mlflow.MlflowClient(store)
    train(tmp_path / "ball", store, "stop.generations=3")
    (first,) = tracked_runs(client)
    assert first.info.run_name == "ball" and first.info.status == "FINISHED"
    assert first.data.tags["reason"] == "generations"
    assert first.data.params["solver.population"] == "8" and first.data.params["environment.id"] == "function:sphere"
    run = train(tmp_path / "ball", store)
    (second,) = tracked_runs(client)
    assert second.info.run_id == first.info.run_id and second.info.status == "FINISHED"
    for name in ("return_mean", "steps", "eval_mean"):
        history = [(metric.step, metric.value) for metric in client.get_metric_history(first.info.run_id, name)]
        column = run.metrics[name]
        expected = [(step, pytest.approx(value)) for step, value in enumerate(column, 1) if value == value]
        assert sorted(history) == expected, name


def test_what_a_killed_job_has_sent_and_not_noted_is_not_sent_again(store, tmp_path):
    run = train(tmp_path / "lost", store, "stop.generations=3")
    note = run.path / "tracking-mlflow.json"
    identity = json.loads(note.read_text())["id"]
    note.write_text(json.dumps({"id": identity, "generation": 1}))
    train(tmp_path / "lost", store)
    history = mlflow.MlflowClient(store).get_metric_history(identity, "generation")
    assert sorted((metric.step, metric.value) for metric in history) == [(n, n) for n in range(1, 6)]


def test_a_run_that_a_callback_interrupts_is_tracked_as_killed(store, tmp_path):
    def fail(run, row):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train(tmp_path / "killed", store, callbacks=fail)
    client = mlflow.MlflowClient(store)
    (run,) = [run for run in tracked_runs(client) if run.info.run_name == "killed"]
    assert run.info.status == "KILLED" and run.data.metrics["generation"] == 1


def test_a_store_that_cannot_be_used_warns_once_and_training_goes_on(tmp_path, caplog):
    run = train(tmp_path / "run", "nonsense://store")
    assert run.status == "finished" and run.generation == 5
    warnings = [message for message in caplog.messages if "tracking.mlflow failed" in message]
    assert len(warnings) == 1 and warnings[0].endswith("training continues without it")
    assert "tracking.mlflow failed" in (run.path / "log.txt").read_text()


def test_a_tracker_that_has_failed_keeps_no_rows(tmp_path):
    """A long run would need more and more memory."""
    config = validate_config(CONFIG | {"tracking": {"mlflow": {"uri": "nonsense://store", "experiment": "x"}}}, "x")
    lines = []
    tracker = services.MLflowRun(tmp_path, config, lines.append)
    tracker.resume([{"generation": "1"}])
    wait_for(lambda: lines)
    for generation in range(2, 9):
        tracker.append({"generation": generation})
    assert tracker._rows.qsize() == 0
    tracker.close("")
    assert len(lines) == 1


def test_an_experiment_that_another_run_makes_at_the_same_moment_is_used(store, tmp_path, monkeypatch):
    train(tmp_path / "first", store)
    find, calls = mlflow.MlflowClient.get_experiment_by_name, []

    def too_early(self, name):
        calls.append(name)
        return None if len(calls) == 1 else find(self, name)

    monkeypatch.setattr(mlflow.MlflowClient, "get_experiment_by_name", too_early)
    train(tmp_path / "second", store)
    monkeypatch.undo()
    names = [run.info.run_name for run in tracked_runs(mlflow.MlflowClient(store))]
    assert len(calls) == 2 and {"first", "second"} <= set(names)


def test_where_its_note_cannot_be_written_a_run_is_tracked_all_the_same(store, tmp_path):
    config = validate_config(CONFIG | {"tracking": {"mlflow": {"uri": store, "experiment": "spheres"}}}, "x")
    lines, run = [], tmp_path / "full"
    (run / "tracking-mlflow.json").mkdir(parents=True)  # a file of this name cannot be written
    tracker = services.MLflowRun(run, config, lines.append)
    tracker.resume([{"generation": "1"}, {"generation": "2"}])
    tracker.close("generations")
    assert lines == []
    client = mlflow.MlflowClient(store)
    (tracked,) = [one for one in tracked_runs(client) if one.info.run_name == "full"]
    assert tracked.info.status == "FINISHED" and tracked.data.metrics["generation"] == 2
