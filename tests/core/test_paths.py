"""Relative paths begin where the command was started, also when an environment changes the working directory."""

import os
from pathlib import Path

import pytest
import yaml

from mpies.core.paths import absolute, fixed_start_folder, start_folder
from mpies.runs.formats.metrics import read_digests, read_metrics
from mpies.runs.reader import find_runs


def test_paths_are_fixed_in_the_block_alone(tmp_path, monkeypatch):
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    with fixed_start_folder():
        os.chdir("other")
        with fixed_start_folder():  # the outer one holds
            assert start_folder() == tmp_path
        assert absolute("a/b") == tmp_path / "a" / "b" and absolute("/x") == Path("/x")
    assert start_folder() == tmp_path / "other" and absolute("a") == tmp_path / "other" / "a"


def test_a_working_directory_that_was_removed_is_no_error(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with fixed_start_folder():
        assert absolute("/x") == Path("/x")


OWN = """
import os
import gymnasium, numpy as np
from gymnasium.spaces import Box, Discrete
from mpies.solvers.snes import SNES

def leave():
    os.makedirs("elsewhere", exist_ok=True)
    os.chdir("elsewhere")

class Leaving(gymnasium.Env):
    observation_space, action_space = Box(-1, 1, (2,), np.float32), Discrete(2)
    def __init__(self, render_mode=None): WHERE == "constructor" and leave()
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        WHERE == "reset" and leave()
        self.left = 3
        return self.np_random.random(2).astype(np.float32), {}
    def step(self, action):
        WHERE == "step" and leave()
        self.left -= 1
        return self.np_random.random(2).astype(np.float32), float(action), self.left == 0, False, {}
    def render(self): return np.zeros((16, 16, 3), np.uint8)

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
environment: {id: "own.py:Leaving", rebuild: always}
policy: {hidden: []}
solver: {kind: "own.py:MySNES", population: 8}
noise: {size: 10000}
evaluation: {every: 2, episodes: 3}
checkpoint: {every: 2, share: 1}
tracking: {tensorboard: true}
stop: {generations: 4}
"""
FUNCTION = CONFIG.replace('{id: "own.py:Leaving", rebuild: always}', '{id: "own.py:value", dimension: 3}').replace(
    "policy: {hidden: []}\n", ""
)


@pytest.fixture
def write_own(tmp_path):
    """Write own.py, whose code changes the working directory in this place."""
    return lambda where: (tmp_path / "own.py").write_text(OWN.replace('WHERE = "import"', f"WHERE = {where!r}"))


@pytest.mark.parametrize("where", ["import", "constructor", "reset", "step", "function"])
def test_a_run_stays_where_it_is(where, tmp_path, write_own, write_config, run_mpies):
    write_own(where)
    write_config(FUNCTION if where == "function" else CONFIG, "my.yaml")
    arguments = "train", "my.yaml", "--out", "runs/x"
    assert run_mpies(0, *arguments, "stop.generations=3").code == 0
    outcome = run_mpies(2 if where == "import" else 0, *arguments)
    assert outcome.code == 0 and "runs/x: continuing from generation 3" in outcome.stderr, outcome.stderr
    assert outcome.stdout.count("runs/x: all generations done; generation 4,") == 1
    run = tmp_path / "runs" / "x"
    assert find_runs(tmp_path) == ["runs/x"] and len(read_metrics(run)) == 4
    assert {"best.h5", "checkpoints", "config.yaml", "finished.yaml", "log.txt"} <= {
        path.name for path in run.iterdir()
    }
    assert list(run.glob("events.out.tfevents*")) and not (run / "writer.json").exists()


def test_every_file_that_a_config_names_is_found(tmp_path, write_own, write_config, run_mpies):
    write_own("constructor")
    write_config(CONFIG, "my.yaml")
    assert run_mpies(0, "train", "my.yaml", "--out", "first").code == 0
    run_mpies(0, "train", "my.yaml", "--out", "second", "policy.init_from=first/best.h5", "--seeds", 2, code=0)
    assert find_runs(tmp_path) == ["first", "second-seed-1", "second-seed-2"]
    again = run_mpies(0, "train", "my.yaml", "--out", "second", "policy.init_from=first/best.h5", "--seeds", 2)
    assert again.code == 0 and again.stderr == "" and again.stdout.count("is complete") == 2
    digests = read_digests(tmp_path / "second-seed-2")
    assert len(digests) == 4 and digests != read_digests(tmp_path / "second-seed-1")


def test_other_commands_write_where_they_were_started(tmp_path, write_own, write_config, run_mpies):
    pytest.importorskip("imageio_ffmpeg")
    write_own("constructor")
    write_config(CONFIG, "my.yaml")
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
