"""mpies.sweep: in this process, and on ranks of a job of its own."""

import sys

import pytest
import yaml

import mpies
from mpies.api.sweep import SweepResult
from mpies.runs.metrics import read_digests
from tests.support import CARTPOLE

VALUES = yaml.safe_load(CARTPOLE.replace("generations: 10", "generations: 3"))
VARY = {"solver.sigma": [0.05, 0.3]}


@pytest.fixture(autouse=True)
def in_tmp_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def digests(found):
    return {row["name"]: read_digests(found.path / row["name"]) for row in found.trials}


def test_a_sweep_in_this_process_is_that_of_a_job_of_its_own(capsys):
    here = mpies.sweep(VALUES, VARY, seeds=[1, 4], out="here", progress=False)
    assert capsys.readouterr().out == ""
    assert here.best in ({"solver.sigma": 0.05}, {"solver.sigma": 0.3})
    assert here.standings[0].mean >= here.standings[1].mean and here.standings[0].rank == 1
    assert {(row["seed"], row["state"], row["generations"]) for row in here.trials} == {
        (seed, "finished", 3) for seed in (1, 4)
    }
    lone = mpies.train(VALUES, "solver.sigma=0.3", "seed=4", out="lone", progress=False)
    assert digests(here)["sigma=0.3_seed=4"] == read_digests(lone.path)
    assert here.run("sigma=0.3_seed=4").metrics["generation"].tolist() == [1, 2, 3]
    assert len(here.to_pandas()) == 4
    job = mpies.sweep(VALUES, VARY, seeds=[1, 4], out="job", ranks=2, progress=False)
    assert digests(job) == digests(here) and job.best == here.best


def test_without_pandas_the_error_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)  # which Python takes for a package that is absent
    with pytest.raises(mpies.ConfigError, match=r'pip install "mpies\[pandas\]"'):
        SweepResult(tmp_path, []).to_pandas()


@pytest.mark.parametrize("ranks", [None, 2])
def test_mistakes_are_raised_before_anything_is_written(ranks, tmp_path):
    with pytest.raises(mpies.ConfigError, match=r"1 of 2 settings cannot be trained.*sigma=-1: "):
        mpies.sweep(VALUES, {"solver.sigma": [-1, 0.1]}, out="out", ranks=ranks)
    with pytest.raises(mpies.ConfigError, match=r"vary: solver\.sigma must be a list"):
        mpies.sweep(VALUES, {"solver.sigma": 3}, out="out", ranks=ranks)
    with pytest.raises(mpies.ConfigError, match="ranks_per_run must be a whole number"):
        mpies.sweep(VALUES, VARY, out="out", ranks=ranks, ranks_per_run=0)
    assert list(tmp_path.iterdir()) == []
