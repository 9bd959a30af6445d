"""Checkpoints and policies as bytes: what is read is what was written, and every damage is found."""

import io
import random

import h5py
import numpy as np
import pytest

from mpies.core.errors import NewerFormat, RunError
from mpies.runs.formats import hdf5
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


@pytest.mark.parametrize("kind", ["without end", "elsewhere"])
def test_numbers_that_are_not_in_the_file_are_refused(kind, tmp_path):
    (tmp_path / "secret").write_bytes(b"secret!!")
    image = io.BytesIO()
    with h5py.File(image, "w", userblock_size=512) as file:
        if kind == "without end":
            file.create_dataset("parameters", (10**13,), np.float32, chunks=(1000,))
        else:
            file.create_dataset("parameters", (8,), np.uint8, external=[(str(tmp_path / "secret"), 0, 8)])
    body = image.getvalue()[512:]
    with pytest.raises(RunError, match=r"x\.h5: is damaged \(parameters has .* bytes that are not in this file\)"):
        unpack(_header(body, b"1") + body, "x.h5")
