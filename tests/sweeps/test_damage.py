"""Damage in one trial, or an error that passes, ends neither a sweep nor the trial."""

import functools
import os
import pathlib
import shutil

import pytest

from mpies.training.evaluation import noise_tables
from tests.support import invoke

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


def sweep(tmp_path, text, *options):
    (tmp_path / "sweep.yaml").write_text(text)
    return invoke("sweep", str(tmp_path / "sweep.yaml"), "--out", str(tmp_path / "out"), *options)


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
    ended = sweep(tmp_path, SWEEP)
    assert ended.code == 2 and ended.stderr.count("\n") == 1
    assert "mpies: /dev/shm of a node is too small for the list of noise tables" in ended.stderr
