"""mpies train --dry-run says what training would do, refuses what training would refuse, and writes nothing."""

import os
import shutil
import sys

import pytest

from mpies.config.loading import validate_config
from mpies.launch.forecast.dry_run import describe_pace
from mpies.runs.formats.metrics import read_metrics
from mpies.runs.lock import Lock
from mpies.training.task import Task
from tests.support import CARTPOLE, assert_refused, invoke, read_files


@pytest.fixture
def dry_run(run_mpies, write_config, here):
    """Run `mpies train --dry-run` with CARTPOLE here, and check that nothing changes.  Returns an Outcome.

    ranks: of mpirun; 0 runs the command in this process.
    """
    config = write_config(CARTPOLE)

    def run(*arguments, ranks=0):
        before = read_files(here), sorted(here.rglob("*"))
        words = "train", "--dry-run", config, *arguments
        ended = run_mpies(ranks, *words) if ranks else invoke(*words)
        assert (read_files(here), sorted(here.rglob("*"))) == before
        return ended

    return run


def read_lines(ended):
    """The lines of the plan: name to text."""
    assert ended.code == 0, ended.stderr
    return {line[:24].strip(): line[24:] for line in ended.stdout.splitlines()}


def test_a_new_run_is_described_and_not_begun(dry_run):
    lines = read_lines(dry_run("stop.target=40", "stop.steps=5000", "--ranks", 3))
    assert lines["run"] == "runs/config_stop.target=40_stop.steps=5000: new"
    assert lines["config"].endswith("config.yaml stop.target=40 stop.steps=5000")
    assert lines["task"] == "CartPole-v1; policy mlp, solver openai_es"
    assert lines["ranks"] == "3, which are started with mpirun"
    assert lines["ends"] == "at a mean return of 40, or after 10 generations or 5,000 steps"
    assert lines["a generation takes"].startswith("about ") and "6 episodes" in lines["a generation takes"]
    assert "with 3 ranks" in lines["memory of a node"] and lines["parameters"] == "58"
    ranks = read_lines(dry_run("--ranks", "auto"))["ranks"]  # a quota of a container would lower it
    assert 1 <= int(ranks.partition(",")[0].partition(" ")[0]) <= len(os.sched_getaffinity(0))


def test_what_a_dry_run_says_of_a_run_is_what_training_then_does(dry_run, run_mpies, here):
    run_mpies(0, "train", "config.yaml", "--out", "run", "stop.generations=4", code=0)
    longer = read_lines(dry_run("--out", "run"))
    assert longer["run"] == "run: continues after generation 4"
    assert "a generation takes" not in longer
    run_mpies(0, "train", "config.yaml", "--out", "run", code=0)
    assert [row["generation"] for row in read_metrics(here / "run")] == [str(k) for k in range(1, 11)]
    assert read_lines(dry_run("--out", "run"))["run"].startswith("run: is complete (all generations done")


def test_all_ranks_of_a_job_describe_it_once(dry_run):
    ended = dry_run(ranks=2)
    assert read_lines(ended)["ranks"] == "2" and ended.stdout.count("nothing was written") == 1


def test_a_generation_takes_all_its_populations_on_the_ranks_that_play():
    environment = {"id": "gymnasium:CartPole-v1", "max_steps": 5}

    def pace(changes):
        solver = {"kind": "pgpe", "population": 200, **changes}
        task = Task(validate_config({"environment": environment, "solver": solver}, "x"))
        amount, unit = describe_pace(task, 2).removeprefix("about ").split()[:2]
        return float(amount) / {"ms": 1000, "s": 1}[unit]

    # The fastest of five, since other work on the machine slows some of them.
    seconds = [min(pace(changes) for _ in range(5)) for changes in ({}, {"interactions": 200_000})]
    assert seconds[1] > 50 * seconds[0] > 0  # 200 populations


def test_each_seed_is_a_run_of_its_own(dry_run, trained, here):
    shutil.copytree(trained(CARTPOLE), here / "x-seed-2")
    text = dry_run("--out", "x", "--seeds", "3..4").stdout
    assert "x-seed-3: new" in text and "x-seed-4: new" in text
    assert_refused(dry_run("--out", "x", "--seeds", "2"), "x-seed-2: contains a run of another config")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("solver.popluation=4", "solver.popluation"),
        ("seed=2 --out run", "run: contains a run of another config (seed: 1 there, 2 now)"),
        ("--out run --resume never", "run: contains a run already"),
        ("--out new --resume must", "new: contains no run to resume"),
        ("--out full", "full: is neither empty nor a run"),
        ("--out full/notes.txt", "full/notes.txt is a file); choose"),
        ("policy.init_from=absent.h5", "absent.h5: cannot be read"),
    ],
)
def test_what_training_refuses_is_refused(arguments, words, dry_run, trained, here):
    shutil.copytree(trained(CARTPOLE), here / "run")
    (here / "full").mkdir()
    (here / "full" / "notes.txt").write_text("mine")
    assert_refused(dry_run(*arguments.split()), words)


def test_a_sweep_that_cannot_be_written_is_refused(write_config, here):
    (here / "notes.txt").write_text("mine")
    words = "sweep", write_config(CARTPOLE), "--seeds", "2", "--dry-run", "--out", "notes.txt/sweep"
    assert_refused(invoke(*words), "notes.txt/sweep: cannot be written (", "notes.txt is a file); choose another --out")


def test_a_tracker_that_is_not_installed_is_refused(dry_run, trained, here, monkeypatch):
    key = "tracking.wandb.project=x"
    assert "run                     runs/" in dry_run(key).stdout
    monkeypatch.setitem(sys.modules, "wandb", None)  # which Python takes for a package that is absent
    assert_refused(dry_run(key), "tracking.wandb needs wandb: pip install")
    shutil.copytree(trained(CARTPOLE), here / "run")
    assert "run: is complete" in dry_run(key, "--out", "run").stdout  # training would not open it


def test_a_run_that_is_being_written_is_refused(dry_run, trained, here):
    lock = Lock(shutil.copytree(trained(CARTPOLE), here / "run"))
    lock.acquire()
    ended = dry_run("--out", "run")
    lock.release()
    assert_refused(ended, f"run: is being written by process {os.getpid()} on ")
