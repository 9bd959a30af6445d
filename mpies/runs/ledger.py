"""The ledger: the results of every generation, from which any mean of a run can be recomputed without an environment.

A file of records, one a generation.  Each has its length and a CRC-32, so a record that was cut off or damaged ends
the file for a reader, and the next writer removes it.  A record is a line of JSON (names, types, shapes) and the
arrays' bytes.
"""

import json
import struct
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mpies.runs.hdf5 import Arrays

_MAGIC = b"MPL1"
_HEAD = struct.Struct("<4sQI")  # magic, bytes of the body, CRC-32 of the body


def pack(arrays: Mapping[str, Any]) -> bytes:
    """One record of named arrays."""
    named = {name: np.asarray(value) for name, value in arrays.items()}
    head = json.dumps([[name, value.dtype.str, value.shape] for name, value in named.items()]).encode()
    body = b"".join([head, b"\n", *(value.tobytes() for value in named.values())])
    return _HEAD.pack(_MAGIC, len(body), zlib.crc32(body)) + body


def _unpack(body: bytes) -> Arrays:
    head, _, rest = body.partition(b"\n")
    arrays: Arrays = {}
    start = 0
    for name, kind, shape in json.loads(head):
        dtype = np.dtype(kind)
        count = int(np.prod(shape, dtype=np.int64))
        arrays[name] = np.frombuffer(rest, dtype, count, start).reshape(shape)
        start += count * dtype.itemsize
    return arrays


def read(path: str | Path, after: int = 0) -> Iterator[tuple[Arrays, int]]:
    """The records of the generations after `after`, in order, each with the byte that it ends at.

    Stops at the first record that is cut off, damaged or out of order.  Yields nothing where there is no file.
    """
    path = Path(path)
    if not path.exists():
        return
    size = path.stat().st_size
    with open(path, "rb") as file:
        generation = 0
        while True:
            head = file.read(_HEAD.size)
            if len(head) < _HEAD.size:
                return
            magic, length, crc = _HEAD.unpack(head)
            if magic != _MAGIC or file.tell() + length > size:
                return
            body = file.read(length)
            if zlib.crc32(body) != crc:
                return
            arrays = _unpack(body)
            generation += 1
            if int(arrays["generation"]) != generation:
                return
            if generation > after:
                yield arrays, file.tell()


def end(path: str | Path, generation: int) -> int:
    """The byte behind the record of `generation`, or behind the last complete one before it; 0 without any."""
    last = 0
    for arrays, stop in read(path):
        if arrays["generation"] > generation:
            break
        last = stop
    return last
