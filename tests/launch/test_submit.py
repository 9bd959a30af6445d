"""What a run asks of a cluster, and how commands are submitted."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from mpies.config.loading import validate_config
from mpies.core.errors import ConfigError
from mpies.launch import submit
from mpies.launch.cost import PROCESS
from tests.launch.examples import CONFIG, CONSTANTS, JOB
from tests.support import HOME, assert_refused, invoke


def test_memory_counts_the_table_once_a_node_and_every_rank(write_config):
    config = write_config(CONFIG)
    one, two, three = (submit.plan(submit.Request(config, (), None, 4, ranks)) for ranks in (1, 2, 3))
    assert one.shared == 200_000_000
    assert one.memory > submit.MARGIN * one.shared
    assert two.memory - one.memory == pytest.approx(three.memory - two.memory, rel=0.01)
    assert two.memory - one.memory == pytest.approx(submit.MARGIN * PROCESS, rel=0.01)
    smaller = submit.plan(submit.Request(config, ("noise.size=10000000",), None, 4, 1))
    assert one.memory - smaller.memory == pytest.approx(submit.MARGIN * 160_000_000, rel=0.01)


def test_the_rest_of_a_plan_comes_from_the_config_and_the_command_line(write_config):
    config = write_config(CONFIG, "ball.yaml")
    job = submit.plan(submit.Request(config, ["seed=4"], None, 2, 3, account="me", partition="long"))
    assert (job.config, job.overrides, job.out) == (str(config), ("seed=4",), "runs/ball_seed=4")
    assert (job.nodes, job.ranks_per_node, job.account, job.partition) == (2, 3, "me", "long")
    assert job.warning == 10 + submit.GRACE and job.longest is None and job.seconds == submit.UNKNOWN
    assert submit.plan(submit.Request(config, [], "there", 1, 1)).out == "there"


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
def test_the_time_limit_is_computed_from_what_was_measured(values, longest, expected):
    assert submit.time_limit(stop(**values), longest) == 60 * -(-expected // 60)


def test_the_longest_run_is_that_of_the_longest_episodes(write_config):
    """500 generations of 64 episodes of 3 s, side by side on 16 ranks, and half a second besides."""
    config, constants = write_config(CONFIG), write_config(CONSTANTS, "constants.yaml")
    job = submit.plan(submit.Request(config, ("solver.population=64",), None, 2, 8, constants))
    assert job.longest == pytest.approx(500 * (4 * 3.0 + 0.5), rel=0.01)
    assert submit.describe(job).endswith("its generations take 1.7 h at most")
    with pytest.raises(ConfigError, match="the constants are for function:sphere"):
        submit.plan(submit.Request(config, ("environment.id=function:rastrigin",), None, 2, 8, constants))


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 5400), ("4:00:00", 14400), ("1-12", None), ("1-12:30:10", 131410), ("1:30", None)]
)
def test_a_time_limit_can_be_given(text, seconds, write_config):
    config = write_config(CONFIG)
    if seconds is None:
        with pytest.raises(ConfigError, match="--time must be minutes, HH:MM:SS or D-HH:MM:SS"):
            submit.plan(submit.Request(config, (), None, 1, 1, time=text))
    else:
        assert submit.plan(submit.Request(config, (), None, 1, 1, time=text)).seconds == seconds


def test_commands_run_until_one_fails(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = []
    programs = [("first", 0), ("second", 7), ("third", 0)]
    commands = [[sys.executable, "-c", f"open('{name}', 'w'); raise SystemExit({code})"] for name, code in programs]
    assert submit.submit(commands, False, lines.append) == 0
    assert len(lines) == 3 and all(line.startswith(f"not run: {sys.executable} -c ") for line in lines)
    assert list(tmp_path.iterdir()) == []
    assert submit.submit(commands, True, lines.append) == 7
    assert {path.name for path in tmp_path.iterdir()} == {"first", "second"} and len(lines) == 5
    with pytest.raises(ConfigError, match=r"no-such-program is not on the path; .* --dry-run"):
        submit.submit([["no-such-program"]], True, lines.append)


def test_files_of_the_repository_are_found_from_anywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert submit.repository_file("slurm/train.sh") == HOME / "slurm/train.sh"
    with pytest.raises(ConfigError, match="launch needs a clone of the repository"):
        submit.repository_file("absent/train.sh")


def test_a_job_that_was_not_measured_says_how_to():
    assert submit.describe(JOB).startswith("3 nodes x 16 ranks, 5.0 GB each; its duration was not measured: ")
    assert "mpies bench 'my ball.yaml' --out FILE" in submit.describe(replace(JOB, config="my ball.yaml"))


@pytest.mark.parametrize("words", [[], ["--sweep", "--seeds", "2"]])
def test_a_slash_behind_the_run_directory_puts_no_file_into_it(words, write_config, tmp_path, monkeypatch):
    """A run refuses a folder with files that are not its own."""
    write_config(CONFIG, "ball.yaml")
    monkeypatch.chdir(tmp_path)
    for cluster in ("slurm", "k8s"):
        outcome = invoke("launch", cluster, "ball.yaml", *words, "--out", "runs/first/", "--dry-run")
        assert outcome.code == 0, outcome.stderr
    assert {path.name for path in (tmp_path / "runs").iterdir()} == {"first.sbatch", "first.k8s"}
    assert "#SBATCH --output=runs/first-%j.out\n" in (tmp_path / "runs" / "first.sbatch").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["slurm", "none.yaml"], "mpies: none.yaml: cannot be read"),
        (["slurm", "ball.yaml", "--constants", "ball.yaml"], "such a file is written by mpies bench"),
        (["k8s", "ball.yaml", "--base", "."], "contains no MPIJob"),
        (["slurm", "ball.yaml", "--out", "ball.yaml/run", "--dry-run"], "choose another --out"),
        (["slurm", "ball.yaml", "--out", ".", "--dry-run"], "--out .: must end with a name for the run"),
        (["k8s", "ball.yaml", "--out", "runs/..", "--dry-run"], "--out runs/..: must end with a name for the run"),
        (["slurm", "ball.yaml", "--sweep", "--seeds", "2", "--out", "/", "--dry-run"], "--out /: must end with a name"),
    ],
)
def test_a_mistake_is_one_line(arguments, message, write_config, tmp_path, monkeypatch):
    write_config(CONFIG, "ball.yaml")
    monkeypatch.chdir(tmp_path)
    assert_refused(invoke("launch", *arguments), message)
    assert {path.name for path in Path(tmp_path).iterdir()} == {"ball.yaml"}
