"""Run directories that commit 9510d38 wrote, before the first release: they resume and replay."""

import shutil

import pytest

from mpies.config.loading import as_yaml, resolved
from mpies.runs.formats import hdf5
from mpies.runs.formats.checkpoint import newest_checkpoint
from mpies.runs.formats.metrics import read_digests, read_metrics
from mpies.runs.reader import RunView, read_run_config
from mpies.training.replay import Replay
from tests.support import HOME, invoke

RUNS = HOME / "tests" / "data"


@pytest.fixture(params=[0, 1], ids=["no overlap", "overlap"])
def run(request, tmp_path):
    """A copy of a run."""
    return shutil.copytree(RUNS / f"run-9510d38-overlap-{request.param}", tmp_path / "run")


@pytest.fixture
def config(run, tmp_path):
    """The path of its config."""
    return shutil.copy(run / "config.yaml", tmp_path / "config.yaml")


@pytest.fixture
def fresh_digests(run, trained):
    """The digests of the same config, trained for eight generations by this version on this machine.

    Skips where the machine computes other bits than the one that made the run.
    """
    values = resolved(read_run_config(run))
    values["stop"]["generations"] = 8
    digests = read_digests(trained(as_yaml(values)))
    if digests[0] != read_digests(run)[0]:
        pytest.skip("this machine, or a package on it, computes other bits than those that were recorded")
    return digests


@pytest.mark.parametrize("lost", [None, "generation-00000006.h5"], ids=["complete", "from the ledger"])
def test_it_resumes(lost, run, config, fresh_digests, run_mpies):
    before = read_metrics(run)
    if lost:
        (run / "checkpoints" / lost).unlink()
    outcome = run_mpies(0, "train", config, "--out", run, "--resume", "must", "stop.generations=8", code=0)
    assert "continuing from generation 6" in outcome.stderr and "WARNING" not in outcome.stderr
    assert read_metrics(run)[:6] == before
    assert read_digests(run) == fresh_digests  # also those that were recorded
    assert newest_checkpoint(run, print)[1]["generation"] == 8


@pytest.mark.parametrize("generation", [3, 6])
def test_it_replays(generation, run, fresh_digests, tmp_path):
    replay = Replay(run, generation)
    assert replay.is_faithful()
    assert replay.digest == read_digests(run)[generation - 1]
    outcome = invoke("replay", run, "--generation", generation, "--out", tmp_path / "policy.h5")
    assert outcome.code == 0 and "the recorded one" in outcome.stdout
    if generation == 6:
        invoke("play", run, "--member", "5,3", code=0)
        saved = hdf5.read(tmp_path / "policy.h5")[0]
        assert hdf5.digest(saved) == hdf5.digest(hdf5.read(run / "policy.h5")[0])


def test_it_is_read_and_its_policy_is_played(run):
    """On every machine."""
    view = RunView(run)
    assert view.state() == "finished" and view.metrics.refresh().columns["generation"].tolist() == [1, 2, 3, 4, 5, 6]
    for policy in (run, run / "best.h5", run / "policy.h5"):
        invoke("evaluate", policy, "--episodes", 3, code=0)
