"""Checkpoints, and what policies share with them: every damage is found; which a run goes on from, which are kept."""

import io
import random

import h5py
import numpy as np
import pytest

from mpies.core.errors import NewerFormat, RunError
from mpies.runs.formats import hdf5
from mpies.runs.formats.checkpoint import (
    checkpoint_path,
    first_checkpoint,
    list_checkpoints,
    newest_checkpoint,
    remove_old_checkpoints,
)
from mpies.runs.formats.hdf5 import _header, pack, unpack

ARRAYS = {
    "solver/mean": np.random.default_rng(0).standard_normal(500).astype(np.float32),
    "solver/generation": np.int64(7),
    "best": np.float64(-np.inf),
    "empty": np.zeros(0),
}


def test_what_is_unpacked_is_what_was_packed_to_the_bit_and_any_hdf5_reader_opens_it(tmp_path):
    arrays, attributes = unpack(pack(ARRAYS, {"generation": 7, "config": "seed: 1\n"}), "x.h5")
    assert hdf5.digest(arrays) == hdf5.digest(ARRAYS)
    assert (attributes["generation"], attributes["config"]) == (7, "seed: 1\n")
    with pytest.raises(RunError, match=r"x\.h5: cannot be read \(No such file or directory\)"):
        hdf5.read(tmp_path / "x.h5")
    (tmp_path / "x.h5").write_bytes(pack(ARRAYS, {}))
    with h5py.File(tmp_path / "x.h5") as file:
        np.testing.assert_array_equal(file["solver/mean"][()], ARRAYS["solver/mean"])


def test_every_flipped_bit_and_every_truncation_is_found():
    content, random_bits = pack(ARRAYS, {"generation": 7}), random.Random(1)
    places = [*range(80), *(random_bits.randrange(512, len(content)) for _ in range(150)), len(content) - 1]
    lengths = [*range(0, 600, 7), *range(600, len(content), 97), len(content) - 1]
    flipped = [
        [*content[:place], content[place] ^ 1 << random_bits.randrange(8), *content[place + 1 :]] for place in places
    ]
    for damaged in (*flipped, *(content[:length] for length in lengths)):
        with pytest.raises(RunError, match=r"^x\.h5: [^\n]*$"):
            unpack(bytes(damaged), "x.h5")


@pytest.mark.parametrize("content", [b"", b"mpies", b"\x89HDF\r\n\x1a\n" * 100])
def test_a_file_of_another_kind_is_refused(content):
    with pytest.raises(RunError, match="not a file of mpies"):
        unpack(content, "x.h5")


def test_a_newer_format_and_a_body_that_is_no_hdf5_are_refused_although_the_checksum_is_right():
    body, other = pack(ARRAYS, {})[512:], b"no HDF5" * 100
    with pytest.raises(NewerFormat, match="has format 9, this mpies reads 1; use a newer mpies"):
        unpack(_header(body, b"9") + body, "x.h5")
    with pytest.raises(RunError, match=r"x\.h5: is damaged"):
        unpack(_header(other, b"1") + other, "x.h5")


def test_a_digest_depends_on_names_types_shapes_and_bits():
    base = np.arange(6, dtype=np.float32)
    variants = [
        {"a": base},
        {"b": base},
        {"a": base.reshape(2, 3)},
        {"a": base.view(np.int32)},
        {"a": np.nextafter(base, 9)},
        {"a": np.where(base == 0, np.float32(-0.0), base)},
        {"a": base, "b": base},
    ]
    assert len({hdf5.digest(arrays) for arrays in variants}) == len(variants)
    assert hdf5.digest({"a": base, "b": base * 2}) == hdf5.digest({"b": base * 2, "a": base.copy()})


def test_numbers_that_are_not_in_the_file_are_refused(tmp_path):
    (tmp_path / "secret").write_bytes(b"secret!!")
    without_end = {"shape": (10**13,), "dtype": np.float32, "chunks": (1000,)}
    elsewhere = {"shape": (8,), "dtype": np.uint8, "external": [(str(tmp_path / "secret"), 0, 8)]}
    for options in (without_end, elsewhere):
        image = io.BytesIO()
        with h5py.File(image, "w", userblock_size=512) as file:
            file.create_dataset("parameters", **options)
        body = image.getvalue()[512:]
        with pytest.raises(RunError, match=r"x\.h5: is damaged \(parameters has .* bytes that are not in this file\)"):
            unpack(_header(body, b"1") + body, "x.h5")


def write_checkpoints(run, generations):
    (run / "checkpoints").mkdir(parents=True)
    for generation in generations:
        content = pack({"generation": np.int64(generation)}, {"generation": generation})
        checkpoint_path(run, generation).write_bytes(content)
    return run


def test_the_newest_undamaged_checkpoint_is_taken_and_the_damaged_one_named_but_a_newer_format_refused(tmp_path):
    assert newest_checkpoint(tmp_path, print) is None
    run, warnings = write_checkpoints(tmp_path, [5, 10, 20]), []
    others = ".generation-00000030.h5.1.tmp generation-3.h5 generation-00000040.h5.bak generation-0000000x.h5"
    for name in others.split():
        (run / "checkpoints" / name).write_bytes(b"other")
    newest = checkpoint_path(run, 20)
    newest.write_bytes(newest.read_bytes()[:-10])
    arrays, attributes = newest_checkpoint(run, warnings.append)
    assert (arrays["generation"], attributes["generation"]) == (10, 10)
    assert len(warnings) == 1 and "generation-00000020.h5" in warnings[0] and "going back" in warnings[0]
    for before, expected in ((11, 10), (10, 5), (5, None)):  # of an earlier generation than that
        checkpoint = newest_checkpoint(run, warnings.append, before)
        assert (checkpoint and checkpoint[1]["generation"]) == expected
    body = pack({}, {})[512:]
    newest.write_bytes(_header(body, b"9") + body)
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
