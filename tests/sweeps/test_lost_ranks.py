"""A rank of a group is lost at every place where its ranks communicate: no trial fails, and all come to their bits."""

import pytest

from mpies.comm import RankLost
from mpies.comm.serial import Serial
from mpies.runs.formats.metrics import read_digests
from mpies.sweeps.train_sweep import _train_in_groups
from mpies.sweeps.trial_ranks import RankGroup, SweepRanks
from mpies.training.control import Signals
from tests.support import calling_lines, first_of_each
from tests.sweeps.folders import open_sweep

VARY = {"solver.sigma": [0.1, 0.2]}
BASE = """
environment: {id: "function:rosenbrock", dimension: 6, shift: 1}
noise: {size: 1000}
evaluation: {every: 2, episodes: 2}
stop: {generations: 2}
"""


def interrupted(name):
    """The collective operation of this name, of a rank that may find that another is lost."""

    def operate(self, *arguments):
        self._interrupt()
        return getattr(Serial, name)(self, *arguments)

    return operate


class Losing(Serial):
    """One rank; its collective operation of this number finds that another is lost, and so do all until `repair`."""

    def __init__(self, at=0):
        super().__init__()
        self.at, self.places, self.repairs, self.is_broken = at, [], 0, False

    def _interrupt(self):
        self.places.append(calling_lines("mpies/sweeps/", "training/session.py", "training/trainer.py"))
        self.is_broken |= len(self.places) == self.at
        if self.is_broken:
            raise RankLost("process 1 on another host")

    is_any, broadcast = interrupted("is_any"), interrupted("broadcast")
    allgather, first_error = interrupted("allgather"), interrupted("first_error")

    def repair(self):
        self.repairs, self.is_broken = self.repairs + 1, False
        return "process 1 on another host"


@pytest.fixture
def signals():
    signals = Signals(owns_process=False)
    yield signals
    signals.restore()


def train(path, comm, signals):
    """Train a sweep of two trials.  Returns its folder."""
    folder, shown = open_sweep(path, VARY, BASE), []
    ranks = SweepRanks(folder, "job", lambda result, ended, total, out: shown.append(result.state), signals)
    RankGroup(comm, ranks, "job.1.0").work()
    assert shown == ["finished", "finished"]
    return folder


def test_a_rank_may_be_lost_anywhere(tmp_path, signals):
    comm = Losing()
    plain = train(tmp_path / "plain", comm, signals)
    digests = [read_digests(plain.path / trial.name) for trial in plain.trials]
    numbers = first_of_each(comm.places)
    assert len(comm.places) > 50 and len(numbers) > 20
    for at in numbers:
        losing = Losing(at)
        folder = train(tmp_path / f"out-{at}", losing, signals)
        assert losing.repairs == 1, f"operation {at}"
        assert [read_digests(folder.path / trial.name) for trial in folder.trials] == digests, f"operation {at}"
        assert not [*folder.path.rglob("writer.json")] and not any(map(folder.failure, folder.trials))


def test_a_rank_that_is_lost_between_trials_is_reported(tmp_path, signals, caplog):
    """A group of one rank has nobody who could tell."""
    folder = open_sweep(tmp_path / "out", VARY, BASE)
    ranks = SweepRanks(folder, "job", lambda *_: None, signals)
    assert _train_in_groups(Losing(2), ranks, 1) == "" and folder.count_left() == 0
    found = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert found == ["lost process 1 on another host; the sweep continues on 1 rank"]
