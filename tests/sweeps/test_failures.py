"""Trials that fail on one rank of a group: they are recorded with their reason, and all the others go on."""

import csv

import pytest

from mpies.runs.formats.metrics import read_digests, read_metrics
from tests.support import FAULTY, FAULTY_MODULE, train

# Ranks of a group of two are neighbours, so the second one of each has an odd number.
ENVIRONMENT = """
import os, time
import gymnasium, numpy as np
from gymnasium import spaces

IS_SECOND = int(os.environ.get("OMPI_COMM_WORLD_RANK", 0)) % 2 == 1

class Faulty(gymnasium.Env):
    observation_space, action_space = spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(2)
    def __init__(self, fault):
        self.fault = fault
        if fault == "built" and IS_SECOND:
            raise RuntimeError("no licence")
    def reset(self, seed=None, options=None):
        self.reward = np.random.default_rng(seed).random()
        return np.ones(2, np.float32), {}
    def step(self, action):
        time.sleep(0.002)  # so that no rank has played all before the others begin
        if self.fault == "step" and IS_SECOND:
            raise RuntimeError("out of balance")
        reward = float("nan") if self.fault == "nan" else self.reward * float(action)
        return np.ones(2, np.float32), reward, True, False, {}
"""
SOLVER = """
import os
import numpy as np
from mpies.solvers.snes import SNES, SNESOptions

IS_SECOND = int(os.environ.get("OMPI_COMM_WORLD_RANK", 0)) % 2 == 1

class MineOptions(SNESOptions):
    kind: str = "mine"
    fault: str = "none"

class Mine(SNES):
    Options = MineOptions
    written = 0
    def write(self, proposal, indices, member, out):
        self.written += IS_SECOND
        if self.options.fault == "write" and self.written == 10:
            raise RuntimeError("no such member")
        return super().write(proposal, indices, member, out)
    def update(self, proposal, results, moments):
        if self.options.fault == "update" and self.generation == 2:
            raise RuntimeError("singular matrix")
        super().update(proposal, results, moments)
        if self.options.fault == "nan" and self.generation == 2:
            self.mean[0] = np.nan
"""
CONFIG = """
environment: {id: "faulty.py:Faulty", kwargs: {fault: none}}
policy: {hidden: [4]}
solver: {kind: "mine.py:Mine", population: 16, fault: none}
noise: {size: 10000}
overlap: 1
evaluation: {every: 2, episodes: 3}
stop: {generations: 6}
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "faulty.py").write_text(ENVIRONMENT)
    (tmp_path / "mine.py").write_text(SOLVER)
    (tmp_path / "config.yaml").write_text(CONFIG)
    return tmp_path


def read_states(folder, key):
    """Value of the key and seed to the state and the reason of each trial."""
    with open(folder / "out" / "trials.csv") as file:
        return {(row[key], row["seed"]): (row["state"], row["reason"]) for row in csv.DictReader(file)}


def assert_complete(folder, name, seed):
    alone = train(folder, f"{CONFIG}seed: {seed}\n", f"alone-{name}")
    assert read_digests(folder / "out" / name) == read_digests(alone)


@pytest.mark.parametrize(("ranks_per_run", "seeds"), [(2, 2), (4, 1)])
def test_a_users_solver_that_raises_on_one_rank_ends_its_trial_alone(ranks_per_run, seeds, run_mpies, folder):
    """`write` raises on the second rank in the midst of a generation, `update` and NaN are rank 0's."""
    options = ["--seeds", seeds, "--ranks-per-run", ranks_per_run, "--out", "out"]
    outcome = run_mpies(4, "sweep", "config.yaml", "solver.fault=write,none,update,nan", *options, code=1)
    found = read_states(folder, "solver.fault")
    for seed in map(str, range(1, seeds + 1)):
        assert found["none", seed] == ("finished", "generations")
        for fault, words in {
            "write": "write raised RuntimeError: no such member (mine.py, line ",
            "update": "update raised RuntimeError: singular matrix (mine.py, line ",
            "nan": "mean",
        }.items():
            state, reason = found[fault, seed]
            assert state == "failed" and words in reason, reason
        made = read_metrics(folder / "out" / f"fault=update_seed={seed}")
        assert made == []  # it fails on a small problem, before the first generation
    ended = f"{seeds} of {4 * seeds} trials finished, {3 * seeds} failed"
    assert ended in outcome.stdout and "Traceback" not in outcome.stderr
    details = (folder / "out" / "failures" / "fault=write_seed=1.txt").read_text()
    assert "Traceback" in details and "of the group on" in details
    assert_complete(folder, "fault=none_seed=1", 1)
    assert not [*(folder / "out").rglob("writer.json")]


def test_an_environment_that_raises_on_one_rank_ends_its_trial_alone(run_mpies, folder):
    """It cannot be built there, all of its episodes fail there, or they are not a number anywhere."""
    faults = "environment.kwargs.fault=built,step,none,nan"
    arguments = [faults, "--seeds", "2", "stop.max_failures=0", "--ranks-per-run", "2", "--out", "out"]
    outcome = run_mpies(4, "sweep", "config.yaml", *arguments, code=1)
    found = read_states(folder, "environment.kwargs.fault")
    for seed in ("1", "2"):
        assert found["none", seed] == ("finished", "generations")
        for fault, words in {"built": "no licence", "step": "out of balance", "nan": "nan"}.items():
            state, reason = found[fault, seed]
            assert state == "failed" and words in reason, reason
    assert "2 of 8 trials finished, 6 failed" in outcome.stdout
    assert_complete(folder, "fault=none_seed=2", 2)


def test_letters_that_the_locale_lacks_end_no_sweep(run_mpies, write_config, tmp_path, monkeypatch):
    """The messages of a user's code may hold any letter; log.txt and failures/ are in UTF-8 all the same."""
    for name, value in {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "faulty.py").write_text(
        FAULTY_MODULE.replace("out of balance", "out of b\u00e4lance"), encoding="utf-8"
    )
    words = ["--seeds", "2", "stop.max_failures=0", "--out", "out"]
    outcome = run_mpies(0, "sweep", write_config(FAULTY.format(share=0.4)), *words)
    assert outcome.code == 1 and "Traceback" not in outcome.stderr, outcome.stderr
    assert "out of b\\xe4lance" in outcome.stdout and "2 failed" in outcome.stdout, outcome.stdout
    log = (tmp_path / "out" / "seed=1" / "log.txt").read_text(encoding="utf-8")
    assert "out of b\u00e4lance" in log
