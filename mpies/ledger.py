"""The ledger: what every generation found, from which any mean of the run can be rebuilt without an environment.

A file of records, one a generation, each with its length and a CRC-32: a torn or damaged record ends what is
read, and the next writer cuts it off.  A record is a line of JSON (names, types, shapes) and the arrays' bytes.
"""

import json
import struct
import zlib
from pathlib import Path

import numpy as np

_MAGIC = b"MPL1"
_HEAD = struct.Struct("<4sQI")  # magic, bytes of the body, CRC-32 of the body


def pack(arrays):
    """One record (bytes) of named arrays."""
    arrays = {name: np.asarray(value) for name, value in arrays.items()}
    names = json.dumps([[name, value.dtype.str, value.shape] for name, value in arrays.items()]).encode()
    body = b"".join([names, b"\n", *(value.tobytes() for value in arrays.values())])
    return _HEAD.pack(_MAGIC, len(body), zlib.crc32(body)) + body


def _unpack(body):
    names, _, rest = body.partition(b"\n")
    arrays, start = {}, 0
    for name, kind, shape in json.loads(names):
        dtype = np.dtype(kind)
        count = int(np.prod(shape, dtype=np.int64))
        arrays[name] = np.frombuffer(rest, dtype, count, start).reshape(shape)
        start += count * dtype.itemsize
    return arrays


def read(path, after=0):
    """The whole records of generations after `after`, in order, as (arrays, end) with the byte each ends at.

    Stops at the first record that is torn, damaged or out of order.  No file is no records.
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


class Ledger:
    """A ledger open for records after `generation`; later ones in the file are cut off."""

    def __init__(self, path, generation):
        end = 0
        for arrays, stop in read(path):
            if arrays["generation"] > generation:
                break
            end = stop
        self._file = open(path, "ab")  # noqa: SIM115 (open as long as the run)
        self._file.truncate(end)

    def append(self, arrays):
        """Add one generation's arrays."""
        self._file.write(pack(arrays))
        self._file.flush()

    def close(self):
        self._file.close()
