"""Code of the user, damage or an error of the disk in one trial: it fails alone with its reason, or goes on."""

import functools
import os
import pathlib
import shutil

import pytest

from mpies.runs.formats.metrics import read_digests, read_metrics
from mpies.training.evaluation import noise_tables
from tests.support import assert_refused, environment_module, invoke, read_csv, train

# Ranks of a group of two are neighbours, so the second one of each has an odd number.
SECOND = 'self.is_second = int(os.environ.get("OMPI_COMM_WORLD_RANK", 0)) % 2 == 1\n'
ENVIRONMENT = environment_module(
    "Faulty",
    SECOND + 'self.fault = fault\nif fault == "built" and self.is_second: raise RuntimeError("no licence")',
    "self.reward = np.random.default_rng(seed).random()",
    # It sleeps so that no rank has played all before the others begin.
    'time.sleep(0.002)\nif self.fault == "step" and self.is_second: raise RuntimeError("out of balance")\n'
    'action = float("nan") if self.fault == "nan" else self.reward * float(action)',
)
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


@pytest.mark.parametrize(
    ("key", "faults"),
    [
        # `write` raises on the second rank in the midst of a generation, `update` and NaN are rank 0's.
        (
            "solver.fault",
            {
                "write": "write raised RuntimeError: no such member (mine.py, line ",
                "update": "update raised RuntimeError: singular matrix (mine.py, line ",
                "nan": "mean",
            },
        ),
        # It cannot be built there, all of its episodes fail there, or they are not a number anywhere.
        ("environment.kwargs.fault", {"built": "no licence", "step": "out of balance", "nan": "nan"}),
    ],
)
def test_code_of_the_user_that_raises_on_one_rank_ends_its_trial_alone(key, faults, run_mpies, tmp_path):
    for name, text in {"faulty.py": ENVIRONMENT, "mine.py": SOLVER, "config.yaml": CONFIG}.items():
        (tmp_path / name).write_text(text)
    vary, options = f"{key}={','.join(['none', *faults])}", ["--ranks-per-run", "2", "--out", "out"]
    outcome = run_mpies(4, "sweep", "config.yaml", vary, "stop.max_failures=0", *options, code=1)
    assert "1 of 4 trials finished, 3 failed" in outcome.stdout and "Traceback" not in outcome.stderr
    rows = read_csv(tmp_path / "out" / "trials.csv")
    found = {row[key]: (row["state"], row["reason"]) for row in rows}
    assert found["none"] == ("finished", "generations")
    for fault, words in faults.items():
        state, reason = found[fault]
        assert state == "failed" and words in reason, reason
    assert read_digests(tmp_path / "out" / "fault=none_seed=1") == read_digests(train(tmp_path, CONFIG, "alone"))
    assert not [*(tmp_path / "out").rglob("writer.json")]
    if "update" in faults:
        # It fails on a small problem, before the first generation.
        assert read_metrics(tmp_path / "out" / "fault=update_seed=1") == []
        details = (tmp_path / "out" / "failures" / "fault=write_seed=1.txt").read_text()
        assert "Traceback" in details and "of the group on" in details


SWEEP = """
base:
  environment: {id: 'function:sphere', dimension: 2}
  policy: {kind: none}
  solver: {kind: openai_es, population: 8}
  noise: {size: 20000}
  evaluation: {every: 2, episodes: 1}
  stop: {generations: 8}
vary: {solver.sigma: [0.1, 0.2, 0.3]}
"""
HALVING = SWEEP + "halving: {first: 2, unit: generations, eta: 3}\n"


def sweep(tmp_path, text):
    (tmp_path / "sweep.yaml").write_text(text)
    return invoke("sweep", tmp_path / "sweep.yaml", "--out", tmp_path / "out")


@pytest.fixture(scope="module")
def complete(tmp_path_factory):
    """Function of a text: the folder of that sweep, in its end; not to be changed."""

    @functools.cache
    def train(text):
        folder = tmp_path_factory.mktemp("complete")
        assert sweep(folder, text).code == 0
        return folder

    return train


@pytest.mark.parametrize("text", [SWEEP, HALVING])
@pytest.mark.parametrize("problem", ["", "its last row is lost", "metrics.csv: cannot be read (Is a directory)"])
def test_a_trial_whose_last_row_is_lost_is_made_whole_and_a_worse_one_fails_alone(text, problem, complete, tmp_path):
    shutil.copytree(complete(text), tmp_path, dirs_exist_ok=True)
    trial = tmp_path / "out" / "sigma=0.2_seed=1"
    table = trial / "metrics.csv"
    before = table.read_text()
    table.write_text("".join(before.splitlines(keepends=True)[:-1]))
    if problem:
        (trial / "ledger.bin").unlink()
    if "directory" in problem:
        table.unlink()
        table.mkdir()
    ended = sweep(tmp_path, text)
    assert ended.code == bool(problem) and problem in ended.stdout + ended.stderr, ended
    assert problem or table.read_text() == before


@pytest.mark.parametrize(("times", "code"), [(1, 0), (2, 0), (99, 1)])
def test_an_error_of_the_disk_that_passes_fails_no_trial(times, code, tmp_path, monkeypatch):
    left, unlink = [times], pathlib.Path.unlink

    def refuse(path, missing_ok=False):
        if path.name == "finished.yaml" and "sigma=0.2" in str(path) and left[0]:
            left[0] -= 1
            raise OSError(5, os.strerror(5), str(path))
        unlink(path, missing_ok)

    monkeypatch.setattr(pathlib.Path, "unlink", refuse)
    ended = sweep(tmp_path, SWEEP)
    assert ended.code == code and left[0] in (0, 96), ended.stdout + ended.stderr


def test_a_full_shared_memory_is_one_line(monkeypatch, tmp_path):
    def refuse(file, place, length):
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(noise_tables.os, "posix_fallocate", refuse)
    words = "mpies: /dev/shm of a node is too small for the list of noise tables"
    assert_refused(sweep(tmp_path, SWEEP), words)
