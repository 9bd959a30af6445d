"""environment.instances limits how many objects exist at a time, on a rank or on a node, and changes no bit."""

import os

import pytest

from mpies.comm.serial import Serial
from mpies.config.loading import make_config, parse_value, validate_config
from mpies.runs.directory import open_run
from mpies.runs.formats.metrics import read_digests
from mpies.training.task import Task, build_task
from mpies.training.trainer import make_trainer
from tests.envs.licensed import Licensed
from tests.support import assert_refused, invoke, mpiexec_or_skip, ranks_of, wait_for


def text(licences=0, instances="", overlap=0):
    return f"""
environment: {{id: "tests.envs.licensed:Licensed", kwargs: {{licences: {licences}}}{instances}}}
policy: {{hidden: []}}
solver: {{kind: pepg, population: 24}}
noise: {{size: 10000}}
evaluation: {{every: 2, episodes: 7}}
stop: {{generations: 6}}
overlap: {overlap}
"""


@pytest.fixture
def licences(tmp_path, monkeypatch):
    """The folder of the licences."""
    monkeypatch.setenv("LICENCES", str(tmp_path / "licences"))
    return tmp_path / "licences"


@pytest.mark.parametrize(("instances", "overlap", "rebuild"), [(1, 0, "auto"), (1, 0, "always"), (3, 1, "never")])
def test_a_rank_never_holds_more_objects(instances, rebuild, overlap, monkeypatch, tmp_path):
    monkeypatch.setattr(Licensed, "peak", 0)
    monkeypatch.setattr(Licensed, "held", 0)
    options = f", instances: {instances}, rebuild: {rebuild}"
    config = make_config(parse_value(text(0, options, overlap), "x"), ["stop.generations=4"], "x")
    trainer = make_trainer(config, Serial(), run=open_run(tmp_path / "run", config))
    assert trainer.train() == "generations"
    trainer.run.close()
    assert Licensed.peak == instances
    trainer.task.env.close()
    assert Licensed.held == 0


@pytest.mark.parametrize(
    ("ranks", "count", "limit"), [(2, 2, "instances: 1"), (3, 1, "instances: 1, instances_per: node")]
)
def test_ranks_of_a_node_never_hold_more_objects(
    ranks, count, limit, licences, digests_of, run_mpies, write_config, tmp_path
):
    config = write_config(text(count, f", {limit}", overlap=1))
    outcome = run_mpies(ranks, "train", config, "--out", "run", code=0)
    assert "failed" not in outcome.stderr, outcome.stderr
    assert read_digests(tmp_path / "run") == digests_of(text(overlap=1))
    # Every rank builds the environment once, to learn its sizes; the ranks that play also hold it.
    assert len(set((licences / "users").read_text().split())) == ranks
    if count == 1:
        verdict = run_mpies(0, "probe", str(config), "--episodes", 0, code=0)
        assert "reproducible" in verdict.stdout and "fail" not in verdict.stdout


@pytest.mark.parametrize("command", ["train --dry-run", "check"])
def test_a_forecast_gives_its_licence_back(command, licences, write_config):
    config = write_config(text(1, ", instances: 1"))
    for _ in range(2):  # in this process
        invoke(*command.split(), config, code=0)


def test_bench_takes_no_more_licences_than_a_node_has(licences, run_mpies, write_config, tmp_path):
    config = write_config(text(1, ", instances: 1, instances_per: node"))
    run_mpies(2, "bench", config, "--out", "constants.yaml", "--repeats", 1, "--generations", 1, code=0)
    for _ in range(2):
        invoke("simulate", config, "--constants", tmp_path / "constants.yaml", "--ranks", 2, code=0)


def test_without_a_limit_most_members_fail_and_so_does_the_run(licences, run_mpies, write_config, tmp_path):
    outcome = run_mpies(0, "train", write_config(text(1)), "--out", "run", "stop.max_failures=1.0")
    assert outcome.code == 1
    assert outcome.stderr.count("no licence left") <= 2 * 6 + 4 and "so the run has no result" in outcome.stderr
    mended = run_mpies(0, "train", write_config(text(1, ", instances: 1")), "--out", "run")
    assert mended.code == 0, mended.stderr  # the limit is no other config


def test_when_the_rank_that_plays_is_lost_another_one_plays(licences, digests_of, start_mpies, write_config, tmp_path):
    mpiexec_or_skip()
    long = text(1, ", instances: 1, instances_per: node").replace("generations: 6", "generations: 150")
    plain, run = text().replace("generations: 6", "generations: 150"), tmp_path / "run"
    job = start_mpies(3, "train", write_config(long), "--out", "run", flags=("--with-ft", "ulfm"))
    wait_for(lambda: len(read_digests(run)) >= 3, job)
    ranks_of(job)[0].kill()
    stderr = job.communicate(timeout=300)[1]
    assert (run / "finished.yaml").exists(), stderr[-3000:]
    assert read_digests(run) == digests_of(plain) and "failed" not in stderr
    assert os.path.exists(licences / "users")


def test_the_ranks_that_play():
    values = {"environment": {"id": "CartPole-v1", "backend": "gymnasium"}, "policy": {"hidden": []}}

    def players(size, **limits):
        config = validate_config(values | {"environment": values["environment"] | limits}, "x")
        task = Task(config, node_size=size)
        return task.count_players(size), task.env.slots

    assert players(4) == (4, 8)
    assert players(4, instances=2) == (4, 2)
    assert players(4, instances=3, instances_per="node") == (3, 1)
    assert players(4, instances=11, instances_per="node") == (4, 2)
    assert players(4, instances=100, instances_per="node") == (4, 8)
    assert build_task(validate_config(values, "x"), Serial()).count_players(3) == 3


def test_a_limit_of_a_backend_without_objects_is_refused(write_config):
    config = write_config("environment: {id: CartPole-v1, backend: envpool, instances: 1}\n")
    assert_refused(invoke("check", config), "EnvPool runs CartPole-v1; use backend: gymnasium")
