"""The ledger: the results of every generation, from which any mean of a run can be recomputed without an environment.

A file of records, one a generation.  Each has its length and a CRC-32, so a record that was cut off or damaged ends
the file for a reader, and the next writer removes it.  A record is a line of JSON (names, types, shapes) and the
arrays' bytes.  A generation is on disk when its record is: it holds all that the text files show of it, and these are
made again where they differ.
"""

import contextlib
import json
import os
import struct
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mpies.core.errors import RunError
from mpies.core.paths import absolute
from mpies.runs.files import open_regular, reading
from mpies.runs.formats.hdf5 import Arrays

MAGIC = b"MPL1"
_HEAD = struct.Struct("<4sQI")  # magic, bytes of the body, CRC-32 of the body


def pack_record(arrays: Mapping[str, Any]) -> bytes:
    """One record of named arrays."""
    named = {name: np.asarray(value) for name, value in arrays.items()}
    head = json.dumps([[name, value.dtype.str, value.shape] for name, value in named.items()]).encode()
    body = b"".join([head, b"\n", *(value.tobytes() for value in named.values())])
    return _HEAD.pack(MAGIC, len(body), zlib.crc32(body)) + body


def _unpack_record(body: bytes) -> Arrays:
    head, _, rest = body.partition(b"\n")
    arrays: Arrays = {}
    start = 0
    for name, kind, shape in json.loads(head):
        dtype = np.dtype(kind)
        count = int(np.prod(shape, dtype=np.int64))
        arrays[name] = np.frombuffer(rest, dtype, count, start).reshape(shape)
        start += count * dtype.itemsize
    return arrays


def read_records(path: str | Path, after: int = 0) -> Iterator[Arrays]:
    """The records of the generations after `after`, in order.

    Stops at the first record that is cut off, damaged or out of order.  Yields nothing where there is no file, and
    where the ledger begins later, because what was before is lost.
    """
    expected = after + 1
    for arrays, _ in read_all(path):
        generation = int(arrays["generation"])
        if generation > expected:
            return
        if generation == expected:
            yield arrays
            expected += 1


def read_record(run: str | Path, generation: int) -> Arrays:
    """The record of a generation of a run.  Raises RunError where its ledger does not hold it."""
    path = Path(run) / "ledger.bin"
    record = next(read_records(path, after=generation - 1), None)
    if record is None:
        newest, _ = find_end(path, 2**62)
        has = f"which has {first_generation(path)} to {newest}; give one of these" if newest else "which is empty"
        raise RunError(f"{run}: generation {generation} is not in its ledger, {has}")
    return record


def read_all(path: str | Path) -> Iterator[tuple[Arrays, int]]:
    """The complete records of consecutive generations, from the first in the file, each with the byte behind it.

    Raises Unreadable where the system refuses to read the file.
    """
    absent = contextlib.suppress(FileNotFoundError, NotADirectoryError)
    with absent, reading(path), open_regular(absolute(path)) as file:
        size = os.fstat(file.fileno()).st_size
        expected = None
        while True:
            head = file.read(_HEAD.size)
            if len(head) < _HEAD.size:
                return
            magic, length, crc = _HEAD.unpack(head)
            if magic != MAGIC or file.tell() + length > size:
                return
            body = file.read(length)
            if zlib.crc32(body) != crc:
                return
            try:
                arrays = _unpack_record(body)
                generation = int(arrays["generation"])
            except (ValueError, TypeError, KeyError, RecursionError):  # a stranger has made it
                return
            if generation < 1 or generation != (expected or generation):
                return
            yield arrays, file.tell()
            expected = generation + 1


def first_generation(path: str | Path) -> int:
    """The generation of the first record: 1 unless an earlier part was lost.  Also 1 where there is no record."""
    return next((int(arrays["generation"]) for arrays, _ in read_all(path)), 1)


def find_end(path: str | Path, generation: int) -> tuple[int | None, int]:
    """The last complete record up to `generation`: its generation, and the byte behind it; None and 0 without one."""
    newest, end = None, 0
    for arrays, stop in read_all(path):
        if arrays["generation"] > generation:
            break
        newest, end = int(arrays["generation"]), stop
    return newest, end
