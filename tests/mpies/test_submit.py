"""mpies launch: what it writes for a config, as text, and as bash, sbatch's options and kubectl understand it."""

import shutil
import subprocess
from dataclasses import replace

import pytest
import yaml
from click.testing import CliRunner

from mpies.jobs import submit
from mpies.cli import main
from mpies.errors import ConfigError
from mpies.config.loading import validate_config
from mpies.jobs.slurm import batch_script

CONFIG = """
environment: {id: "function:sphere", dimension: 5}
noise: {size: 50000000}
stop: {generations: 500, grace: 10}
"""

JOB = submit.Job(
    config="configs/my pole.yaml",
    overrides=("solver.sigma=0.2", "environment.id=function:sphere"),
    out="runs/pole",
    nodes=3,
    ranks_per_node=16,
    memory=5 * 2**30,
    shared=2**30,
    seconds=26 * 3600 + 60,
    warning=120,
    partition="long",
)


def test_a_batch_script_asks_for_what_the_job_needs():
    text = batch_script(JOB, "train() { :; }\n", "/home/u/a venv")
    options = {line for line in text.splitlines() if line.startswith("#SBATCH")}
    assert options == {
        "#SBATCH --job-name=pole",
        "#SBATCH --nodes=3",
        "#SBATCH --ntasks-per-node=16",
        "#SBATCH --cpus-per-task=1",
        "#SBATCH --mem=5120M",
        "#SBATCH --time=1-02:01:00",
        "#SBATCH --signal=B:USR1@120",
        "#SBATCH --requeue",
        "#SBATCH --open-mode=append",
        "#SBATCH --output=runs/pole-%j.out",
        "#SBATCH --partition=long",
    }
    assert text.startswith("#!/bin/bash\n")
    body = text.splitlines()
    assert body.index("train() { :; }") > max(body.index(option) for option in options), "sbatch stops at a command"
    assert batch_script(replace(JOB, account="me"), "", "").count("#SBATCH --account=me\n") == 1


def test_a_batch_script_hands_words_on_as_they_are():
    library = 'train() { printf \'%s\\n\' "$MPIES_VENV" "$MPIES_RUN" "$@"; }'
    text = batch_script(replace(JOB, overrides=("a=$HOME 'b'",)), library, "/home/u/a venv")
    said = subprocess.run(["bash", "-c", text], capture_output=True, text=True, check=True, env={}).stdout
    assert said.splitlines() == ["/home/u/a venv", "runs/pole", "configs/my pole.yaml", "a=$HOME 'b'"]


def test_memory_counts_the_table_once_a_node_and_every_rank(write_config):
    config = write_config(CONFIG)
    one, two, three = (submit.plan(config, (), None, 4, ranks) for ranks in (1, 2, 3))
    assert one.shared == 200_000_000
    assert one.memory > submit.MARGIN * one.shared
    assert two.memory - one.memory == pytest.approx(three.memory - two.memory, rel=0.01)
    assert two.memory - one.memory > 100 * 2**20
    smaller = submit.plan(config, ("noise.size=10000000",), None, 4, 1)
    assert one.memory - smaller.memory == pytest.approx(submit.MARGIN * 160_000_000, rel=0.01)


def stop(**values):
    return validate_config({"environment": {"id": "function:sphere", "dimension": 2}, "stop": values}, "x").stop


@pytest.mark.parametrize(
    ("values", "longest", "expected"),
    [
        ({}, 12_000, 15 * 60 + 1.3 * 12_000),
        ({}, 1e6, 24 * 3600),
        ({}, None, 4 * 3600),
        ({"seconds": 600}, None, 15 * 60 + 780),
        ({"seconds": 600}, 60, 15 * 60 + 78),
    ],
)
def test_the_time_limit_is_worked_out_from_what_was_measured(values, longest, expected):
    assert submit.limit(stop(**values), longest) == 60 * -(-expected // 60)


CONSTANTS = """
machine: {core_streaming: 1.0e+12, node_streaming: 1.0e+12, generation: 0.5}
task: {environment: "function:sphere", parameters: 9, rows: 9, episodes: 9, seconds: 0.1, longest: 3.0}
"""


def test_the_longest_run_is_that_of_the_longest_episodes(write_config):
    """500 generations of 64 episodes of 3 s, side by side on 16 ranks, and half a second besides."""
    config, constants = write_config(CONFIG), write_config(CONSTANTS, "constants.yaml")
    found = submit.plan(config, ("solver.population=64",), None, 2, 8, constants).longest
    assert found == pytest.approx(500 * (4 * 3.0 + 0.5), rel=0.01)
    with pytest.raises(ConfigError, match="the constants are of function:sphere"):
        submit.plan(config, ("environment.id=function:rastrigin",), None, 2, 8, constants)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 5400), ("4:00:00", 14400), ("1-12", None), ("1-12:30:10", 131410), ("1:30", None)]
)
def test_a_time_limit_can_be_given(text, seconds, write_config):
    config = write_config(CONFIG)
    if seconds is None:
        with pytest.raises(ConfigError, match="--time must be minutes, HH:MM:SS or D-HH:MM:SS"):
            submit.plan(config, (), None, 1, 1, time=text)
    else:
        assert submit.plan(config, (), None, 1, 1, time=text).seconds == seconds


def test_a_dry_run_writes_the_script_beside_the_run_and_submits_nothing(run_mpies, write_config, tmp_path):
    write_config(CONFIG, "ball.yaml")
    write_config(CONSTANTS, "constants.yaml")
    overrides = ["solver.population=12", "seed=4"]
    arguments = ["--nodes", 2, "--ranks-per-node", 3, "--constants", "constants.yaml", "--dry-run", *overrides]
    ended = run_mpies(0, "launch", "slurm", "ball.yaml", *arguments)
    assert ended.code == 0, ended.stderr
    script = "runs/ball_solver.population=12_seed=4.sbatch"
    assert ended.stdout.splitlines()[-1] == f"not run: sbatch {script}"
    assert "its generations take 0.9 h at most" in ended.stdout
    text = (tmp_path / script).read_text()
    # 15 minutes, and 1.3 times 500 generations of twice 3 s and half a second: 85.4 minutes.
    assert "#SBATCH --time=0-01:26:00\n#SBATCH --signal=B:USR1@100\n" in text
    assert text.endswith("\ntrain ball.yaml solver.population=12 seed=4\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["slurm", "none.yaml"], "mpies: none.yaml: cannot be read"),
        (["slurm", "ball.yaml", "--constants", "ball.yaml"], "such a file is written by mpies bench"),
        (["k8s", "ball.yaml", "--base", "."], "leads to no MPIJob"),
        (["slurm", "ball.yaml", "--out", "ball.yaml/run", "--dry-run"], "take another --out"),
    ],
)
def test_a_mistake_is_one_line(arguments, message, write_config, tmp_path, monkeypatch):
    write_config(CONFIG, "ball.yaml")
    monkeypatch.chdir(tmp_path)
    ended = CliRunner().invoke(main, ["launch", *arguments])
    assert ended.exit_code == 2 and message in ended.stderr
    assert ended.stderr.count("\n") == 1


BASE = """
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {name: mpies}
spec:
  slotsPerWorker: 1
  mpiReplicaSpecs:
    Launcher:
      template: {spec: {containers: [{name: launcher, image: mpies, args: [a, b]}]}}
    Worker:
      replicas: 2
      template:
        spec:
          containers: [{name: worker, image: mpies, resources: {limits: {cpu: "1"}}}]
          volumes: [{name: runs}, {name: shared-memory, emptyDir: {medium: Memory, sizeLimit: 512Mi}}]
"""
KUSTOMIZATION = "resources: [mpijob.yaml]\nconfigMapGenerator: [{name: mpies-configs, literals: [other.yaml=x]}]\n"


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl")
def test_an_overlay_renders_to_the_job(run_mpies, write_config, tmp_path):
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "mpijob.yaml").write_text(BASE)
    (tmp_path / "base" / "kustomization.yaml").write_text(KUSTOMIZATION)
    write_config(CONFIG, "ball.yaml")
    size = ["--nodes", 5, "--ranks-per-node", 8, "--image", "registry:5000/us/mpies:2", "--base", "base"]
    ended = run_mpies(0, "launch", "k8s", "ball.yaml", *size, "--dry-run", "seed=4")
    assert ended.code == 0, ended.stderr
    assert ended.stdout.endswith("not run: kubectl apply --kustomize runs/ball_seed=4.k8s\n")
    rendered = subprocess.run(
        ["kubectl", "kustomize", "runs/ball_seed=4.k8s"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    parts = {part["kind"]: part for part in yaml.safe_load_all(rendered.stdout)}
    specs = parts["MPIJob"]["spec"]["mpiReplicaSpecs"]
    worker = specs["Worker"]["template"]["spec"]
    assert (specs["Worker"]["replicas"], parts["MPIJob"]["spec"]["slotsPerWorker"]) == (5, 8)
    expected = submit.plan(tmp_path / "ball.yaml", (), None, 5, 8)
    memory = f"{-(-expected.memory // 2**20)}Mi"
    assert worker["containers"][0]["resources"]["limits"] == {"cpu": "8", "memory": memory}
    assert worker["volumes"][1]["emptyDir"] == {"medium": "Memory", "sizeLimit": "255Mi"}
    launcher = specs["Launcher"]["template"]["spec"]["containers"][0]
    assert launcher["args"] == ["/runs/ball_seed=4", "/configs/ball.yaml", "seed=4"]
    assert launcher["image"] == worker["containers"][0]["image"] == "registry:5000/us/mpies:2"
    assert parts["ConfigMap"]["data"] == {"ball.yaml": CONFIG, "other.yaml": "x"}
