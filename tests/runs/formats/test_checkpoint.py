"""Which checkpoint a run goes on from, and which are kept."""

import numpy as np
import pytest

from mpies.core.errors import NewerFormat, RunError
from mpies.runs.formats.checkpoint import (
    checkpoint_path,
    first_checkpoint,
    list_checkpoints,
    newest_checkpoint,
    remove_old_checkpoints,
)
from mpies.runs.formats.hdf5 import _header, pack


def write_checkpoints(run, generations):
    (run / "checkpoints").mkdir(parents=True)
    for generation in generations:
        content = pack({"generation": np.int64(generation)}, {"generation": generation})
        checkpoint_path(run, generation).write_bytes(content)
    return run


def generations_of(run):
    return [int(path.stem.removeprefix("generation-")) for path in list_checkpoints(run)]


def test_the_newest_undamaged_checkpoint_is_taken_and_the_damaged_one_named(tmp_path):
    run, warnings = write_checkpoints(tmp_path, [5, 10, 20]), []
    (run / "checkpoints" / ".generation-00000030.h5.1.tmp").write_bytes(b"cut off")
    newest = checkpoint_path(run, 20)
    newest.write_bytes(newest.read_bytes()[:-10])
    arrays, attributes = newest_checkpoint(run, warnings.append)
    assert (arrays["generation"], attributes["generation"]) == (10, 10)
    assert len(warnings) == 1 and "generation-00000020.h5" in warnings[0] and "going back" in warnings[0]
    for before, expected in ((11, 10), (10, 5), (5, None)):  # of an earlier generation than that
        checkpoint = newest_checkpoint(run, warnings.append, before)
        assert (checkpoint and checkpoint[1]["generation"]) == expected


def test_without_an_undamaged_checkpoint_there_is_none(tmp_path):
    assert newest_checkpoint(tmp_path, print) is None
    run, warnings = write_checkpoints(tmp_path, [1]), []
    checkpoint_path(run, 1).write_bytes(b"")
    assert newest_checkpoint(run, warnings.append) is None
    assert len(warnings) == 1


def test_a_newer_format_is_no_damage(tmp_path):
    run = write_checkpoints(tmp_path, [1, 2])
    body = checkpoint_path(run, 2).read_bytes()[512:]
    checkpoint_path(run, 2).write_bytes(_header(body, b"9") + body)
    with pytest.raises(NewerFormat, match="use a newer mpies"):
        newest_checkpoint(run, print)


def test_other_files_are_no_checkpoints(tmp_path):
    run = write_checkpoints(tmp_path, [3, 12])
    for name in ("generation-3.h5", "generation-00000004.h5.bak", "generation-0000000x.h5"):
        (run / "checkpoints" / name).write_bytes(b"")
    assert generations_of(run) == [12, 3]


def test_the_first_and_the_newest_are_kept(tmp_path):
    run = write_checkpoints(tmp_path, [0, 2, 4, 6, 8])
    remove_old_checkpoints(run, keep=2)
    assert generations_of(run) == [8, 6, 0]
    remove_old_checkpoints(run, keep=2)
    assert generations_of(run) == [8, 6, 0]
    remove_old_checkpoints(run, keep=1)
    assert generations_of(run) == [8, 0]


def test_replays_need_the_checkpoint_of_generation_0(tmp_path):
    run = write_checkpoints(tmp_path, [0, 2])
    assert first_checkpoint(run)[1]["generation"] == 0
    checkpoint_path(run, 0).unlink()
    with pytest.raises(
        RunError, match=r"the first checkpoint, generation-00000000\.h5, where replays begin, is missing"
    ):
        first_checkpoint(run)
