"""What is watched while ranks run."""

import contextlib
import signal

import psutil
import pytest

from mpies.launch.goal import Goal, Start
from mpies.launch.hosts import Host
from mpies.launch.ranks import watches
from mpies.launch.ranks.watches import StartWatch
from mpies.runs.formats.checkpoint import list_checkpoints
from mpies.runs.formats.metrics import read_metrics
from tests.launch.conftest import ranks_below
from tests.support import wait_for


@pytest.fixture
def at_once(monkeypatch):
    monkeypatch.setattr(watches, "LOOK", 0.0)
    monkeypatch.setattr(watches, "TEARDOWN", 0.0)


class Proposed(Goal):
    """The runs that are there."""

    def exit_code(self, start, hosts_answer):
        return None


def test_a_sweep_whose_sampler_has_proposed_more_has_not_come_to_its_end(at_once, tmp_path):
    """The runs of the first batch are finished and nobody writes them; those of the second are being written."""
    first, second = tmp_path / "first", tmp_path / "second"
    goal = Proposed(lambda: [run for run in (first, second) if run.exists()])
    start = Start(goal, [Host("localhost", 2)], 2)
    watch = StartWatch(None, goal, start, None)
    first.mkdir()
    (first / "writer.json").write_text(f'{{"job": "{goal.job}.1", "token": "1"}}')
    assert not start.look() and start.is_writing
    (first / "writer.json").unlink()
    assert not watch.has_hung(is_asked=False)
    (first / "finished.yaml").write_text("reason: solved\n")
    second.mkdir()
    (second / "writer.json").write_text(f'{{"job": "{goal.job}.1", "token": "2"}}')
    assert not watch.has_hung(is_asked=False)
    (second / "writer.json").unlink()
    (second / "finished.yaml").write_text("reason: solved\n")
    assert watch.has_hung(is_asked=False)


def test_mpirun_that_hangs_behind_its_ranks_is_ended(start, folder):
    """It does so now and then where all ranks have ended; here it is stopped when they are asked to stop.

    They leave a checkpoint of the newest generation.
    """
    job = start("stop.generations=1000", is_patient=False)
    wait_for(lambda: read_metrics(folder / "run"), job)
    (mpirun,) = psutil.Process(job.pid).children()
    job.send_signal(signal.SIGTERM)
    wait_for(lambda: "stopped by a signal" in (folder / "run/log.txt").read_text(), job)
    mpirun.suspend()
    assert job.wait(90) == 75
    assert not mpirun.is_running()
    newest = int(read_metrics(folder / "run")[-1]["generation"])
    assert list_checkpoints(folder / "run")[0].name == f"generation-{newest:08d}.h5"
    assert f"stopped by a signal after generation {newest}" in (folder / "stderr.txt").read_text()


def test_a_rank_killed_in_its_last_moments_keeps_no_other_one(start, folder):
    job = start("stop.generations=1", is_patient=False)
    wait_for(lambda: len(ranks_below(job)) == 2, job)
    last = ranks_below(job)[-1]
    wait_for(lambda: (folder / "run/finished.yaml").exists(), job)
    with contextlib.suppress(psutil.NoSuchProcess):
        last.kill()
    assert job.wait(90) == 0
