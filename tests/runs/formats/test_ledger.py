"""The ledger's file: complete records are read, whatever follows them."""

import zlib

import numpy as np
import pytest

from mpies.runs.formats import ledger

GENERATIONS = 5


def record(generation):
    random = np.random.default_rng(generation)
    return {
        "generation": generation,
        "returns": random.standard_normal(4 + generation),
        "payload": random.standard_normal((3, 2)).astype(np.float32),
        "behaviours": np.zeros((4, 0)),
        "best": -np.inf,
        "digest": "ab" * 32,
    }


@pytest.fixture
def file(tmp_path):
    """A ledger of GENERATIONS records, and the byte behind each."""
    pieces = [ledger.pack_record(record(generation)) for generation in range(1, GENERATIONS + 1)]
    (tmp_path / "ledger.bin").write_bytes(b"".join(pieces))
    return tmp_path / "ledger.bin", np.cumsum([len(piece) for piece in pieces]).tolist()


def generations(path, after=0):
    return [int(arrays["generation"]) for arrays in ledger.read_records(path, after)]


def test_what_is_read_is_what_was_packed_to_the_bit(file):
    path, ends = file
    for number, arrays in enumerate(ledger.read_records(path), 1):
        assert ledger.find_end(path, number) == (number, ends[number - 1])
        assert list(arrays) == list(record(number))
        for name, value in record(number).items():
            expected = np.asarray(value)
            assert (arrays[name].dtype, arrays[name].shape) == (expected.dtype, expected.shape), name
            assert arrays[name].tobytes() == expected.tobytes(), name


def test_the_records_before_a_cut_or_a_flipped_bit_are_read(file):
    path, ends = file
    content = path.read_bytes()
    cuts = [*range(0, len(content), 29), *(end + off for end in ends[:-1] for off in (-1, 0, 1, 15, 16, 17))]
    behind_cuts = [(place, b"") for place in cuts]
    flipped = [(at, bytes([content[at] ^ 1 << at % 8]) + content[at + 1 :]) for at in range(0, len(content), 17)]
    for place, rest in behind_cuts + flipped:
        path.write_bytes(content[:place] + rest)
        assert generations(path) == [n for n, end in enumerate(ends, 1) if end <= place], (place, len(rest))


@pytest.mark.parametrize(
    ("order", "readable"), [([1, 3, 2], [1]), ([2, 1], []), ([1, 1, 2], [1]), ([1, 2, 4], [1, 2]), ([0, 1], [])]
)
def test_a_record_out_of_order_ends_the_file(order, readable, tmp_path):
    path = tmp_path / "ledger.bin"
    path.write_bytes(b"".join(ledger.pack_record(record(generation)) for generation in order))
    assert generations(path) == readable


def test_reading_begins_after_a_generation_whose_end_is_the_byte_behind_its_record(file, tmp_path):
    path, ends = file
    assert generations(path, after=3) == [4, 5]
    assert generations(path, after=5) == generations(path, after=9) == generations(tmp_path / "none") == []
    found = [ledger.find_end(path, generation) for generation in range(GENERATIONS + 1)]
    assert found == [(None, 0), *enumerate(ends, 1)]
    assert ledger.find_end(path, 99) == (GENERATIONS, ends[-1])
    path.write_bytes(path.read_bytes()[: ends[2] + 5])
    assert ledger.find_end(path, 4) == (3, ends[2])
    assert ledger.find_end(path.with_name("none"), 4) == (None, 0)


def record_with(body):
    return ledger._HEAD.pack(ledger.MAGIC, len(body), zlib.crc32(body)) + body


@pytest.mark.parametrize(
    "garbage",
    [
        *(b"MPL1", b"MPL1" + b"\xff" * 12, b"\0" * 100, b"x" * 1000),
        record_with(b'[["generation", "|O", []]]\n12345678'),
        record_with(b'[["generation", "<i8", [99999999999]]]\n'),
        record_with(b'[["generation", "|S4", []]]\nabcd'),
        *(record_with(b"[]\n"), record_with(b"7\n"), record_with(b"[" * 10_000)),
    ],
)
def test_garbage_or_a_record_that_another_program_has_made_ends_the_file(garbage, file):
    path, _ = file
    path.write_bytes(path.read_bytes() + garbage + ledger.pack_record(record(6)))
    assert generations(path) == [1, 2, 3, 4, 5]
