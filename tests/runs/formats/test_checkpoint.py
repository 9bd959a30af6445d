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


def test_the_newest_undamaged_checkpoint_is_taken_and_the_damaged_one_named(tmp_path):
    assert newest_checkpoint(tmp_path, print) is None
    run, warnings = write_checkpoints(tmp_path, [5, 10, 20]), []
    for name in (
        ".generation-00000030.h5.1.tmp",
        "generation-3.h5",
        "generation-00000040.h5.bak",
        "generation-0000000x.h5",
    ):
        (run / "checkpoints" / name).write_bytes(b"other")
    newest = checkpoint_path(run, 20)
    newest.write_bytes(newest.read_bytes()[:-10])
    arrays, attributes = newest_checkpoint(run, warnings.append)
    assert (arrays["generation"], attributes["generation"]) == (10, 10)
    assert len(warnings) == 1 and "generation-00000020.h5" in warnings[0] and "going back" in warnings[0]
    for before, expected in ((11, 10), (10, 5), (5, None)):  # of an earlier generation than that
        checkpoint = newest_checkpoint(run, warnings.append, before)
        assert (checkpoint and checkpoint[1]["generation"]) == expected


def test_a_newer_format_is_no_damage(tmp_path):
    run = write_checkpoints(tmp_path, [1, 2])
    body = checkpoint_path(run, 2).read_bytes()[512:]
    checkpoint_path(run, 2).write_bytes(_header(body, b"9") + body)
    with pytest.raises(NewerFormat, match="use a newer mpies"):
        newest_checkpoint(run, print)


def test_the_first_where_replays_begin_and_the_newest_are_kept(tmp_path):
    run = write_checkpoints(tmp_path, [0, 2, 4, 6, 8])
    for keep, left in ((2, [8, 6, 0]), (2, [8, 6, 0]), (1, [8, 0])):
        remove_old_checkpoints(run, keep)
        assert [int(path.stem.removeprefix("generation-")) for path in list_checkpoints(run)] == left
    assert first_checkpoint(run)[1]["generation"] == 0
    checkpoint_path(run, 0).unlink()
    words = r"the first checkpoint, generation-00000000\.h5, where replays begin, is missing"
    with pytest.raises(RunError, match=words):
        first_checkpoint(run)
