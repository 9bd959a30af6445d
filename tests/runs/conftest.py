"""What tests of a run's writer share: a new run, snapshots to record, and writes that are refused."""

import errno

import numpy as np
import pytest

from mpies.config.loading import validate_config
from mpies.runs import writer
from mpies.runs.directory import open_run
from mpies.runs.files import AppendOnlyFile, write_atomically
from mpies.runs.snapshot import Snapshot

CONFIG = validate_config({"environment": {"id": "function:sphere", "dimension": 2}}, "x")


def make_snapshot(generation, **values):
    row = {"generation": generation, "seconds": 0.5 * generation}
    arrays = {"solver/mean": np.full(2, generation, np.float32)}
    given = {"generation": generation, "state": arrays, "progress": {"best": 1.0}, "policy": {"parameters": np.ones(2)}}
    given |= {"row": row, "results": {"returns": np.ones(4)}, "idle": np.zeros(1)}
    return Snapshot(**(given | values))


def record(run, *snapshots, is_last=False):
    for snapshot in snapshots:
        run.record(snapshot, is_last)
        run.flush()


@pytest.fixture
def run(tmp_path):
    """A new run whose writer has begun; its warnings are collected in `run.lines`."""
    run = open_run(tmp_path / "run", CONFIG)
    run.lines = []
    run.warn = run.lines.append
    run.begin(make_snapshot(0))
    yield run
    run.close()


@pytest.fixture
def refusals(monkeypatch):
    """A list of file names: the next write to the first of them is refused, and the name removed."""
    names = []
    append, write = AppendOnlyFile.append, write_atomically

    def refuse(name):
        if names and name == names[0]:
            raise OSError(errno.EROFS, f"a read-only disk has {names.pop(0)}")

    def append_or_refuse(file, *args, **kwargs):
        refuse(file._path.name)
        append(file, *args, **kwargs)

    def write_or_refuse(path, *args, **kwargs):
        refuse(path.name)
        write(path, *args, **kwargs)

    monkeypatch.setattr(AppendOnlyFile, "append", append_or_refuse)
    monkeypatch.setattr(writer, "write_atomically", write_or_refuse)
    return names
