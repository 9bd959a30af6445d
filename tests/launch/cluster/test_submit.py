"""What a run or a sweep asks of a cluster, and how commands are submitted."""

import json
import shlex
import subprocess
import sys
from dataclasses import replace

import pytest
import yaml

from mpies.config.loading import validate_config
from mpies.core.errors import ConfigError
from mpies.launch.cluster import submit
from mpies.launch.cluster.kubernetes import collect_files
from mpies.launch.forecast.cost import PROCESS
from mpies.sweeps.trials import SweepOptions, load_sweep
from tests.launch.cluster.conftest import CONFIG, CONSTANTS, JOB
from tests.support import HOME, assert_refused, invoke, write_program

SWEEP = ["slurm", "ball.yaml", "--sweep"]
VALUES = ("solver.population=64,128", "solver.sigma=0.1,0.2")


def test_memory_counts_the_table_once_a_node_and_every_rank(ball):
    one, two = (submit.plan_run(submit.Request("ball.yaml", (), None, 4, ranks)) for ranks in (1, 2))
    assert one.shared == 200_000_000
    assert one.memory > submit.MARGIN * one.shared
    assert two.memory - one.memory == pytest.approx(submit.MARGIN * PROCESS, rel=0.01)


def test_the_rest_of_a_plan_comes_from_the_config_and_the_command_line(ball):
    config = ball / "ball.yaml"
    job = submit.plan_run(submit.Request(config, ["seed=4"], None, 2, 3))
    assert (job.config, job.out, job.command) == (str(config), "runs/ball_seed=4", "train")
    assert job.warning == 10 + submit.GRACE and job.longest is None and job.seconds == submit.UNKNOWN
    assert submit.plan_run(submit.Request(config, [], "there", 1, 1)).out == "there"
    assert "mpies bench 'my ball.yaml' --out FILE" in replace(JOB, config="my ball.yaml").summary()


def test_the_time_limit_is_computed_from_what_was_measured():
    for values, longest, expected in (
        ({}, 12_000, 15 * 60 + 1.3 * 12_000),
        ({}, 1e6, 24 * 3600),
        ({}, None, 4 * 3600),
        ({"seconds": 600}, None, 15 * 60 + 780),
        ({"seconds": 600}, 60, 15 * 60 + 78),
    ):
        config = validate_config({"environment": {"id": "function:sphere", "dimension": 2}, "stop": values}, "x")
        assert submit.find_time_limit(submit.Request("x"), config.stop, longest) == 60 * -(-expected // 60)


def test_the_longest_run_is_that_of_the_longest_episodes(write_config):
    """500 generations of 64 episodes of 3 s, side by side on 16 ranks, and half a second besides."""
    config, constants = write_config(CONFIG), write_config(CONSTANTS, "constants.yaml")
    job = submit.plan_run(submit.Request(config, ("solver.population=64",), None, 2, 8, constants))
    assert job.longest == pytest.approx(500 * (4 * 3.0 + 0.5), rel=0.01)
    assert job.summary().endswith("its generations take 1.7 h at most")
    with pytest.raises(ConfigError, match="the constants are for function:sphere"):
        submit.plan_run(submit.Request(config, ("environment.id=function:rastrigin",), None, 2, 8, constants))


def test_a_time_limit_can_be_given(ball):
    for text, seconds in (("90", 5400), ("4:00:00", 14400), ("1-12:30:10", 131410)):
        assert submit.plan_run(submit.Request("ball.yaml", (), None, 1, 1, time=text)).seconds == seconds
    for text in ("1-12", "1:30"):
        with pytest.raises(ConfigError, match="--time must be minutes, HH:MM:SS or D-HH:MM:SS"):
            submit.plan_run(submit.Request("ball.yaml", (), None, 1, 1, time=text))


def test_commands_run_until_one_fails(here):
    lines, programs = [], [("first", 0), ("second", 7), ("third", 0)]
    commands = [[sys.executable, "-c", f"open('{name}', 'w'); raise SystemExit({code})"] for name, code in programs]
    assert submit.submit(commands, False, lines.append) == 0
    assert len(lines) == 3 and all(line.startswith(f"not run: {sys.executable} -c ") for line in lines)
    assert list(here.iterdir()) == []
    assert submit.submit(commands, True, lines.append) == 7
    assert {path.name for path in here.iterdir()} == {"first", "second"} and len(lines) == 5
    with pytest.raises(ConfigError, match=r"no-such-program is not on the path; .* --dry-run"):
        submit.submit([["no-such-program"]], True, lines.append)


@pytest.mark.parametrize("words", [[], ["--sweep", "--seeds", "2"]])
def test_a_slash_behind_the_run_directory_puts_no_file_into_it(words, ball):
    """A run refuses a folder with files that are not its own."""
    for cluster in ("slurm", "k8s"):
        invoke("launch", cluster, "ball.yaml", *words, "--out", "runs/first/", "--dry-run", code=0)
    assert {path.name for path in (ball / "runs").iterdir()} == {"first.sbatch", "first.k8s"}
    assert "#SBATCH --output=runs/first-%j.out\n" in (ball / "runs" / "first.sbatch").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["slurm", "none.yaml"], "mpies: none.yaml: cannot be read"),
        (["slurm", "ball.yaml", "--constants", "ball.yaml"], "such a file is written by mpies bench"),
        (["k8s", "ball.yaml", "--base", "."], ".: kubectl kustomize says: "),
        (["slurm", "ball.yaml", "--out", "ball.yaml/run", "--dry-run"], "choose another --out"),
        (["slurm", "ball.yaml", "--out", ".", "--dry-run"], "--out .: must end with a name for the run"),
        (["k8s", "ball.yaml", "--out", "runs/..", "--dry-run"], "--out runs/..: must end with a name for the run"),
        (["slurm", "ball.yaml", "--out=-x", "--dry-run"], "--out -x: must end with a name for the run"),
        (["slurm", "ball.yaml", "--seeds", "3"], "--seeds is for a sweep; add --sweep"),
        (["slurm", "ball.yaml", "--ranks-per-run", "3"], "--ranks-per-run is for a sweep; add --sweep"),
        ([*SWEEP, "--halving", "first=500,unit=generations"], "ends after 500 generations anyway"),
        ([*SWEEP, "solver.sigma=-1,0.1"], "1 of 2 settings cannot be trained"),
        ([*SWEEP, "--dry-run", "--ranks-per-run", "64", VALUES[0]], "--ranks-per-run is 64, but the job has 4 ranks"),
    ],
)
def test_a_mistake_is_one_line(arguments, message, ball):
    assert_refused(invoke("launch", *arguments), message)
    assert {path.name for path in ball.iterdir()} == {"ball.yaml"}


@pytest.mark.parametrize(
    ("option", "odd"),
    [
        *((option, "\n") for option in ("CONFIG", "--out", "--account", "--partition", "--sbatch", "--time")),
        *(("environment.id", odd) for odd in "\n\r\x1b"),
    ],
)
def test_a_newline_in_a_name_is_refused_and_writes_nothing(option, odd, write_config, here):
    name = f"x{odd}touch b"
    text = f"environment: {{id: {json.dumps(f'{name}/own.py:f')}, dimension: 2}}" if option[0] == "e" else CONFIG
    config = write_config(text, f"{name}.yaml" if option == "CONFIG" else "ball.yaml").name
    (here / name).mkdir()
    (here / name / "own.py").write_text("def f(x):\n    return 0.0\n")
    before = set(here.iterdir())
    words = [option, name] if option[0] == "-" else []
    assert_refused(invoke("launch", "slurm", config, *words, "--dry-run"), option)
    assert set(here.iterdir()) == before


def test_memory_and_time_are_those_of_all_trials(write_config):
    """Of 500 generations of 64 or 128 episodes of 3 s, two of each, with 3 seeds: 16 ranks share their sum."""
    config, constants = write_config(CONFIG), write_config(CONSTANTS, "constants.yaml")
    job = submit.plan_sweep(submit.Request(config, VALUES, None, 2, 8, constants), options=SweepOptions("3"))
    played, evaluated, besides = 500 * (64 + 128) * 3.0 * 2 * 3, 12 * 500 / 10 * 100 * 3.0, 12 * 500 * 0.5
    assert job.longest == pytest.approx((played + evaluated + besides) / 16, rel=0.01)
    assert len(job.sweep.list_trials()) == 12
    one = submit.plan_run(submit.Request(config, ("solver.population=128",), None, 1, 1))
    # Eight groups on a node, each with a rank that does the work of rank 0.
    assert submit.MARGIN * job.shared < job.memory <= 8 * one.memory + 1
    assert job.command == "sweep" and job.options == ("--seeds", "3")
    assert submit.plan_sweep(submit.Request(config, VALUES, "there", 1, 2, time="90")).seconds == 5400


def test_all_that_describes_a_sweep_may_be_on_the_command_line(ball):
    described = ["--seeds", "2", "--trials", "9", "--draw-seed", "5", "--halving", "first=100,unit=generations"]
    draws = "solver.sigma={log_uniform: [0.01, 0.5]}"
    ended = invoke("launch", "slurm", "ball.yaml", "--sweep", "--dry-run", *described, draws, code=0)
    script = "runs/ball_sweep_solver.sigma.sbatch"
    assert ended.stdout.splitlines()[-1] == f"not run: sbatch {script}"
    started = shlex.split((ball / script).read_text().splitlines()[-1])
    assert started == ["sweep", "ball.yaml", *described, draws]
    assert "18, of which 18 are to be trained" in invoke(*started, "--dry-run", code=0).stdout
    options = SweepOptions("2", 9, 5, "first=100,unit=generations")
    job = submit.plan_sweep(submit.Request("ball.yaml", (draws,), None, 1, 4), options=options, ranks_per_run=2)
    packed = collect_files(job)  # a container gets all of it in a file
    assert (packed.config, packed.words) == ("ball_sweep.yaml", ["--ranks-per-run", "2"])
    assert job.options == (*described, "--ranks-per-run", "2")
    (ball / packed.config).write_bytes(packed.contents[packed.config])
    unpacked = load_sweep(packed.config)
    assert unpacked.list_trials() == job.sweep.list_trials() and unpacked.halving == job.sweep.halving
    options = SweepOptions(trials=9, sampler="kind=cma,batch=3")
    proposed = collect_files(submit.plan_sweep(submit.Request("ball.yaml", (draws,), None, 1, 4), options=options))
    assert yaml.safe_load(proposed.contents["ball_sweep.yaml"])["sampler"] == {"kind": "cma", "batch": 3}


def test_what_to_measure_is_the_base_of_a_sweep_file(ball, write_config):
    write_config("base: ball.yaml\nvary: {solver.sigma: [0.1, 0.2]}\n", "sweep.yaml")
    for cluster in ("slurm", "k8s"):
        said = invoke("launch", cluster, "sweep.yaml", "--sweep", "--dry-run", code=0).stdout
        assert "mpies bench ball.yaml --out FILE, then --constants FILE" in said
        assert ("base: k8s/mpi-operator/base, whose volume many nodes" in said) == (cluster == "k8s")


def test_the_batch_script_of_the_repository_hands_its_words_to_mpies_sweep(tmp_path):
    """With a scontrol that knows where the script came from, and a library that prints."""
    (tmp_path / "train.sh").write_text("sweep() { printf '%s\\n' \"$@\"; }\n")
    write_program(tmp_path / "scontrol", f"echo '   Command={tmp_path}/sweep.sbatch pole'")
    done = subprocess.run(
        ["bash", HOME / "slurm/sweep.sbatch", "pole.yaml", "solver.sigma=1,2", "--seeds", "5"],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_JOB_ID": "7"},
        capture_output=True,
        text=True,
    )
    assert done.stdout.splitlines() == ["pole.yaml", "solver.sigma=1,2", "--seeds", "5"], done.stderr
