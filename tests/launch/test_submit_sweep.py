"""What a sweep asks of a cluster: the batch script, the overlay, memory and time."""

import shlex
import shutil
import subprocess

import pytest
import yaml

from mpies.launch import submit
from mpies.launch.submit_sweep import as_sweep_file, plan_sweep
from mpies.sweeps.trials import SweepOptions, load_sweep
from tests.launch.examples import CONFIG, CONSTANTS
from tests.support import HOME, assert_refused, invoke

VALUES = ("solver.population=64,128", "solver.sigma=0.1,0.2")


def test_memory_and_time_are_those_of_all_trials(write_config):
    """Of 500 generations of 64 or 128 episodes of 3 s, two of each, with 3 seeds: 16 ranks share their sum."""
    config, constants = write_config(CONFIG), write_config(CONSTANTS, "constants.yaml")
    job, sweep = plan_sweep(submit.Request(config, VALUES, None, 2, 8, constants), options=SweepOptions("3"))
    played = 500 * (64 + 128) * 3.0 * 2 * 3
    evaluated = 12 * 500 / 10 * 100 * 3.0
    besides = 12 * 500 * 0.5
    assert job.longest == pytest.approx((played + evaluated + besides) / 16, rel=0.01)
    assert len(sweep.list_trials()) == 12
    one = submit.plan(submit.Request(config, ("solver.population=128",), None, 1, 1))
    # Eight groups on a node, each with a rank that does the work of rank 0.
    assert job.memory <= 8 * one.memory + 1
    assert job.memory > submit.MARGIN * job.shared
    assert job.command == "sweep" and job.options == ("--seeds", "3")
    assert plan_sweep(submit.Request(config, VALUES, "there", 1, 2, time="90"))[0].seconds == 5400


def test_all_that_describes_a_sweep_may_be_on_the_command_line(run_mpies, write_config, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_config(CONFIG, "ball.yaml")
    described = ["--seeds", "2", "--trials", "9", "--draw-seed", "5", "--halving", "first=100,unit=generations"]
    draws = "solver.sigma={log_uniform: [0.01, 0.5]}"
    ended = run_mpies(0, "launch", "slurm", "ball.yaml", "--sweep", "--dry-run", *described, draws)
    assert ended.code == 0, ended.stderr
    script = tmp_path / "runs" / "ball_sweep_solver.sigma.sbatch"
    started = shlex.split(script.read_text().splitlines()[-1])
    assert started == ["sweep", "ball.yaml", *described, draws]
    listed = run_mpies(0, *started, "--dry-run")
    assert listed.code == 0 and "18, of which 18 are to be trained" in listed.stdout, listed.stderr
    options = SweepOptions("2", 9, 5, "first=100,unit=generations")
    job, sweep = plan_sweep(submit.Request("ball.yaml", (draws,), None, 1, 4), options=options)
    packed, text = as_sweep_file(job, sweep)
    assert packed.options == ()
    (tmp_path / packed.config).write_text(text)
    unpacked = load_sweep(packed.config)
    assert unpacked.list_trials() == sweep.list_trials() and unpacked.halving == sweep.halving
    options = SweepOptions(trials=9, sampler="kind=cma,batch=3")
    proposed = as_sweep_file(*plan_sweep(submit.Request("ball.yaml", (draws,), None, 1, 4), options=options))[1]
    assert yaml.safe_load(proposed)["sampler"] == {"kind": "cma", "batch": 3}


def test_what_to_measure_is_the_base_of_a_sweep_file(run_mpies, write_config):
    write_config(CONFIG, "ball.yaml")
    write_config("base: ball.yaml\nvary: {solver.sigma: [0.1, 0.2]}\n", "sweep.yaml")
    for cluster in ("slurm", "k8s"):
        ended = run_mpies(0, "launch", cluster, "sweep.yaml", "--sweep", "--dry-run")
        assert ended.code == 0 and "mpies bench ball.yaml --out FILE, then --constants FILE" in ended.stdout


def test_a_batch_script_starts_the_sweep(run_mpies, write_config, tmp_path):
    write_config(CONFIG, "ball.yaml")
    arguments = ["--sweep", "--seeds", "2..4", "--ranks-per-run", 2, "--dry-run", *VALUES]
    ended = run_mpies(0, "launch", "slurm", "ball.yaml", *arguments)
    assert ended.code == 0, ended.stderr
    script = tmp_path / "runs" / "ball_sweep_solver.population_solver.sigma.sbatch"
    words = "sweep ball.yaml --seeds 2..4 --ranks-per-run 2 solver.population=64,128 solver.sigma=0.1,0.2"
    assert script.read_text().splitlines()[-1] == words
    assert ended.stdout.splitlines()[-1] == f"not run: sbatch {script.relative_to(tmp_path)}"


def test_the_batch_script_of_the_repository_hands_its_words_to_mpies_sweep(tmp_path):
    """With a scontrol that knows where the script came from, and a library that prints."""
    (tmp_path / "train.sh").write_text("sweep() { printf '%s\\n' \"$@\"; }\n")
    (tmp_path / "scontrol").write_text(f"#!/bin/sh\necho '   Command={tmp_path}/sweep.sbatch pole'\n")
    (tmp_path / "scontrol").chmod(0o755)
    done = subprocess.run(
        ["bash", HOME / "slurm/sweep.sbatch", "pole.yaml", "solver.sigma=1,2", "--seeds", "5"],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_JOB_ID": "7"},
        capture_output=True,
        text=True,
    )
    assert done.stdout.splitlines() == ["pole.yaml", "solver.sigma=1,2", "--seeds", "5"], done.stderr


def test_a_container_gets_all_of_the_sweep_in_a_file(write_config, tmp_path):
    config = write_config(CONFIG, "ball.yaml")
    job, sweep = plan_sweep(submit.Request(config, VALUES, None, 1, 4), options=SweepOptions("2"), ranks_per_run=2)
    packed, text = as_sweep_file(job, sweep)
    assert (packed.config, packed.overrides, packed.options) == ("ball_sweep.yaml", (), ("--ranks-per-run", "2"))
    (tmp_path / packed.config).write_text(text)
    assert load_sweep(tmp_path / packed.config).list_trials() == sweep.list_trials()


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl")
def test_an_overlay_of_a_sweep_renders(run_mpies, write_config, tmp_path):
    write_config(CONFIG, "ball.yaml")
    ended = run_mpies(0, "launch", "k8s", "ball.yaml", "--sweep", "--seeds", 2, "--nodes", 5, "--dry-run", *VALUES)
    assert ended.code == 0, ended.stderr
    folder = ended.stdout.split()[-1]
    done = subprocess.run(["kubectl", "kustomize", folder], cwd=tmp_path, capture_output=True, text=True, check=True)
    parts = {part["kind"]: part for part in yaml.safe_load_all(done.stdout)}
    replicas = parts["MPIJob"]["spec"]["mpiReplicaSpecs"]
    launcher = replicas["Launcher"]["template"]["spec"]["containers"][0]
    assert launcher["command"][:3] == ["mpies", "sweep", "--hostfile"] and replicas["Worker"]["replicas"] == 5
    out = "/runs/ball_sweep_solver.population_solver.sigma"
    assert launcher["args"] == ["/configs/ball_sweep.yaml", "--out", out]
    assert yaml.safe_load(parts["ConfigMap"]["data"]["ball_sweep.yaml"])["seeds"] == [1, 2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--seeds", "3"], "--seeds is for a sweep; add --sweep"),
        (["--halving", "first=3"], "--halving is for a sweep; add --sweep"),
        (["--ranks-per-run", "3"], "--ranks-per-run is for a sweep; add --sweep"),
        (["--sweep", "--halving", "first=500,unit=generations"], "ends after 500 generations anyway"),
        (["--sweep", "--halving", "first=3,unit=hours"], "halving: unit must be one of"),
        (["--sweep", "solver.sigma=-1,0.1"], "1 of 2 settings cannot be trained"),
        (["--sweep", "solver.sigma={uniform: [1, 2]}"], "trials is missing"),
    ],
)
def test_a_mistake_is_one_line(arguments, message, write_config, tmp_path, monkeypatch):
    write_config(CONFIG, "ball.yaml")
    monkeypatch.chdir(tmp_path)
    assert_refused(invoke("launch", "slurm", "ball.yaml", *arguments), message)
    assert {path.name for path in tmp_path.iterdir()} == {"ball.yaml"}


def test_more_ranks_per_run_than_ranks_are_refused(write_config, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_config(CONFIG, "ball.yaml")
    ended = invoke("launch", "slurm", "ball.yaml", "--sweep", "--dry-run", "--ranks-per-run", "64", VALUES[0])
    assert_refused(ended, "--ranks-per-run is 64, but the job has 4 ranks; lower it, or start more ranks")
