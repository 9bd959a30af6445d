"""Relative paths begin where the command was started, also when an environment changes the working directory."""

import os
from pathlib import Path

import pytest
import yaml

from mpies.core.paths import absolute, fixed_start_folder, start_folder
from mpies.runs.formats.metrics import read_digests, read_metrics
from mpies.runs.reader import find_runs


def test_paths_are_fixed_in_the_block_alone_and_a_folder_that_was_removed_is_no_error(here):
    (here / "other").mkdir()
    with fixed_start_folder():
        os.chdir("other")
        with fixed_start_folder():  # the outer one holds
            assert start_folder() == here
        assert absolute("a/b") == here / "a" / "b" and absolute("/x") == Path("/x")
    assert start_folder() == here / "other" and absolute("a") == here / "other" / "a"
    (here / "other").rmdir()
    with fixed_start_folder():
        assert absolute("/x") == Path("/x")


OWN = """
import os
from mpies.solvers.snes import SNES
from tests.envs.misbehaving import Good

def leave():
    os.makedirs("elsewhere", exist_ok=True)
    os.chdir("elsewhere")

class Leaving(Good):
    def __init__(self, render_mode=None): WHERE == "constructor" and leave()
    def step(self, action):
        WHERE == "step" and leave()
        return super().step(action)

class MySNES(SNES):
    pass

def value(x):
    WHERE == "function" and leave()
    return -float(x @ x)

WHERE = "import"
if WHERE == "import":
    leave()
"""
CONFIG = """
solver: {kind: "own.py:MySNES", population: 8}
noise: {size: 10000}
evaluation: {every: 2, episodes: 3}
checkpoint: {every: 2, share: 1}
tracking: {tensorboard: true}
stop: {generations: 4}
"""


@pytest.fixture
def write_own(tmp_path, write_config):
    """Write my.yaml, and own.py, whose code changes the working directory in this place."""

    def write(where):
        (tmp_path / "own.py").write_text(OWN.replace('WHERE = "import"', f"WHERE = {where!r}"))
        environment = "{id: 'own.py:Leaving', rebuild: always}\npolicy: {hidden: []}"
        if where == "function":
            environment = "{id: 'own.py:value', dimension: 3}"
        write_config(f"environment: {environment}{CONFIG}", "my.yaml")

    return write


@pytest.mark.parametrize("where", ["import", "step", "function"])
def test_a_run_stays_where_it_is(where, tmp_path, write_own, run_mpies):
    write_own(where)
    arguments = "train", "my.yaml", "--out", "runs/x"
    run_mpies(0, *arguments, "stop.generations=3", code=0)
    outcome = run_mpies(2 if where == "import" else 0, *arguments, code=0)
    assert "runs/x: continuing from generation 3" in outcome.stderr
    assert outcome.stdout.count("runs/x: all generations done; generation 4,") == 1
    run = tmp_path / "runs" / "x"
    assert find_runs(tmp_path) == ["runs/x"] and len(read_metrics(run)) == 4
    names = {path.name for path in run.iterdir()}
    assert {"best.h5", "checkpoints", "config.yaml", "finished.yaml", "log.txt"} <= names and "writer.json" not in names
    assert list(run.glob("events.out.tfevents*"))


def test_every_file_that_a_config_names_is_found(tmp_path, write_own, run_mpies):
    write_own("constructor")
    run_mpies(0, "train", "my.yaml", "--out", "first", code=0)
    further = "train", "my.yaml", "--out", "second", "policy.init_from=first/best.h5", "--seeds", 2
    run_mpies(0, *further, code=0)
    assert find_runs(tmp_path) == ["first", "second-seed-1", "second-seed-2"]
    again = run_mpies(0, *further, code=0)
    assert again.stderr == "" and again.stdout.count("is complete") == 2
    digests = read_digests(tmp_path / "second-seed-2")
    assert len(digests) == 4 and digests != read_digests(tmp_path / "second-seed-1")


def test_other_commands_write_where_they_were_started(tmp_path, write_own, write_config, run_mpies):
    pytest.importorskip("imageio_ffmpeg")
    write_own("constructor")
    task = {"environment": "own.py:Leaving", "parameters": 6, "rows": 4, "episodes": 8, "seconds": 0.1}
    write_config(yaml.safe_dump({"machine": {}, "task": task}), "constants.yaml")
    for words, files in {
        "train my.yaml --out run --seeds 2": "run-seed-1/best.h5 run-seed-2/best.h5",
        "play run-seed-1 --video film.gif": "film.gif",
        "export run-seed-1 --to policy.npz": "policy.npz",
        "plot run-seed-1 run-seed-2 --trajectory --grid 3 --episodes 1": "run-seed-2/trajectory.png",
        "report run-seed-1 --video": "run-seed-1/report.html run-seed-1/video.mp4",
        "simulate my.yaml --constants constants.yaml --ranks 1": "",
    }.items():
        outcome = run_mpies(0, *words.split())
        assert outcome.code == 0 and all((tmp_path / file).exists() for file in files.split()), (words, outcome)
    assert run_mpies(0, "probe", "own.py:Leaving", "own.py:Leaving", "--episodes", 0).stdout.count("reproducible") == 2
    assert {path.name for path in tmp_path.iterdir()} >= {"own.py", "elsewhere"}
    assert not [path for path in (tmp_path / "elsewhere").rglob("*") if path.is_file()]
