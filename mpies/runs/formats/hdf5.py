"""Checkpoints and policies as bytes: HDF5 behind a header with a checksum.  The only module that uses h5py.

The header is a block of 512 bytes with the SHA-256 of the rest (HDF5 calls it a user block; h5py and the HDF5 tools
read such a file as any other).  Nothing is ever pickled.
"""

import hashlib
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mpies.core.arrays import Array
from mpies.core.errors import NewerFormat, RunError
from mpies.core.paths import absolute
from mpies.runs.files import open_regular, reading

FORMAT = 1  # raised when an older mpies cannot read what is written
_HEADER = 512  # bytes

Arrays = dict[str, Array]
Attributes = dict[str, Any]
Content = tuple[Arrays, Attributes]  # of a file


def pack(arrays: Mapping[str, Any], attributes: Mapping[str, Any]) -> bytes:
    """The content of a file that holds named arrays (a name may contain /) and attributes (texts and numbers)."""
    import h5py

    image = io.BytesIO()
    with h5py.File(image, "w", userblock_size=_HEADER) as file:
        file.attrs["format"] = FORMAT
        for name, value in attributes.items():
            file.attrs[name] = value
        for name, value in arrays.items():
            file.create_dataset(name, data=value)
    body = image.getvalue()[_HEADER:]
    return _header(body, b"%d" % FORMAT) + body


def _header(body: bytes, version: bytes) -> bytes:
    """The format and the SHA-256 of the format and the body, padded to _HEADER bytes."""
    checksum = hashlib.sha256(version + b"\n" + body).hexdigest().encode()
    return (b"mpies " + version + b" sha256 " + checksum + b"\n").ljust(_HEADER, b"\0")


def unpack(content: bytes, name: str | Path) -> Content:
    """The arrays and attributes in what `pack` returned.  name: of the file, for messages.

    Raises RunError where it is damaged, NewerFormat where a newer mpies wrote it.
    """
    import h5py

    words = content[:_HEADER].split(b"\n")[0].split()
    if len(words) != 4 or words[0] != b"mpies" or words[2] != b"sha256":
        raise RunError(f"{name}: is not a file of mpies, or its beginning is damaged")
    if content[:_HEADER] != _header(content[_HEADER:], words[1]):
        raise RunError(f"{name}: is damaged or cut off (its checksum differs)")
    if words[1] != b"%d" % FORMAT:
        raise NewerFormat(f"{name}: has format {words[1].decode()}, this mpies reads {FORMAT}; use a newer mpies")
    arrays: Arrays = {}

    def collect(key: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            if item.nbytes > len(content) or item.external or item.is_virtual:  # a stranger has made it
                raise ValueError(f"{key} has {item.nbytes:,} bytes that are not in this file")
            arrays[key] = item[()]

    try:
        with h5py.File(io.BytesIO(content), "r") as file:
            file.visititems(collect)
            return arrays, dict(file.attrs)
    except (OSError, RuntimeError, KeyError, ValueError) as error:
        raise RunError(f"{name}: is damaged ({error})") from None


def read(path: str | Path) -> Content:
    """The arrays and attributes of a file.  Raises RunError where it is absent or damaged, Unreadable where refused."""
    try:
        with reading(path), open_regular(absolute(path)) as file:
            content = file.read()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise RunError(f"{path}: cannot be read ({error.strerror})") from None
    return unpack(content, path)


def digest(arrays: Mapping[str, Any]) -> str:
    """SHA-256 (hex) over the names, types, shapes and bits of named arrays."""
    sha = hashlib.sha256()
    for name in sorted(arrays):
        value = np.asarray(arrays[name])
        sha.update(f"{name} {value.dtype.str} {value.shape}\n".encode())
        sha.update(np.ascontiguousarray(value).reshape(-1).view(np.uint8).data)
    return sha.hexdigest()
