"""Files that can be read at any moment, even when the process that writes them is killed; where runs are by default."""

import contextlib
import errno
import itertools
import json
import os
import secrets
import stat
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from mpies.core.errors import ConfigError, RunError, TrainingFailed, UserError, unreadable
from mpies.core.paths import absolute

FULL = (errno.ENOSPC, errno.EDQUOT)  # numbers of the errors that tell of a full disk, or of a quota that is used up

Warn = Callable[[str], object]  # called with a line where something goes wrong

WHILE_WRITTEN = "while the run is written; the same command continues from what is left"


def write_atomically(path: str | Path, content: bytes | bytearray, sync: bool = True) -> None:
    """Write a file under another name and rename it when it is complete.  sync: also wait until it is on disk.

    A device or a pipe, such as /dev/stdout, is written to and not replaced.
    """
    name, path = str(path), absolute(path)
    if path.parent == Path("/dev") or path.is_char_device() or path.is_fifo():
        path.write_bytes(content)
        return
    # Drawn, since processes of two containers may have the same number, and two threads have it.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            if sync:
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        if error.filename is not None:  # of the temporary file, which the caller does not know
            error.filename = name
        raise
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
    if sync:
        _sync_folder(path.parent)


def open_regular(path: Path) -> BinaryIO:
    """Open a file for reading bytes.  Raises OSError for what is no file: a pipe would keep its reader waiting."""
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    mode = os.fstat(file).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(file, "rb")
    os.close(file)
    number = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
    raise OSError(number, os.strerror(number) if stat.S_ISDIR(mode) else "Not a regular file", str(path))


def no_link(path: str, flags: int) -> int:
    """For `open`: it raises OSError for a symbolic link, which may lead out of a run directory of a stranger."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


def pack_checked(values: Mapping[str, Any]) -> bytes:
    """A mapping as JSON, with its checksum as the last key."""
    return json.dumps({**values, "crc32": zlib.crc32(json.dumps(values).encode())}).encode()


def parse_checked(text: str) -> Any:
    """The value that `pack_checked` was given, or that an older mpies has written without a checksum.

    Raises ValueError where it is damaged.
    """
    try:
        values = json.loads(text)
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    found = values.pop("crc32", None) if isinstance(values, dict) else None
    if found is not None and found != zlib.crc32(json.dumps(values).encode()):
        raise ValueError("its checksum differs")
    return values


def keep_aside(path: Path, content: bytes) -> str:
    """Keep the content of a damaged file, and return the name of the copy beside it: NAME.damaged-1, or a later one."""
    names = (path.with_name(f"{path.name}.damaged-{number}") for number in itertools.count(1))
    copy = next(one for one in names if not one.exists() or one.read_bytes() == content)
    write_atomically(copy, content)
    return copy.name


def explain_refusal(name: str | Path, error: OSError) -> str:
    """Why a run or a file beside it cannot be written, and the cure, in one line.  name: its path as it was given."""
    cure = "make room, or choose another --out" if error.errno in FULL else "choose another --out"
    return f"{name}: cannot be written ({error.strerror}); {cure}"


@contextlib.contextmanager
def writing(name: str | Path, kind: type[UserError] = ConfigError) -> Iterator[None]:
    """Raise `kind`, in one line, where the system refuses what the `with` block writes.  name: of the file."""
    try:
        yield
    except OSError as error:
        cure = "it must be a file in a folder that you may write to"
        raise kind(f"{name}: cannot be written ({error.strerror}); {cure}") from None


@contextlib.contextmanager
def reading(name: str | Path) -> Iterator[None]:
    """Raise Unreadable where the system refuses what the `with` block reads, but for a file that is absent."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as error:
        raise unreadable(name, error) from None


def check_writable(path: str | Path) -> None:
    """Raise OSError where `write_atomically` could not write this file.  Nothing is changed."""
    path = absolute(path)
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if path.parent != Path("/dev") and not (path.is_char_device() or path.is_fifo()):  # others are replaced
        tempfile.TemporaryFile(dir=path.parent).close()


def _sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on disk, where the file system offers that."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except PermissionError:  # a folder that may be written to, but not listed
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EBADF):
            raise
    finally:
        os.close(descriptor)


def find_device(path: Path) -> int:
    """The number of the disk that a file is on, or else what is left of the folders above it."""
    return next(place for place in (path, *path.parents) if place.exists()).stat().st_dev


TAIL = 256  # bytes at the end of a file by which it is recognised


class AppendOnlyFile:
    """A file that grows by whole records; a record that was cut off is removed before the next one is added.

    end: length in bytes of the part to keep.
    Raises RunError for a symbolic link: a stranger's run could have another file of the user's written.
    """

    def __init__(self, path: Path, end: int) -> None:
        if path.is_symlink():
            raise RunError(f"{path}: is a link, and training would write where it leads; put the file in its place")
        self._path, self.size = path, end  # size: bytes of all records
        self._newest: object = None  # key of the record that was added last
        self._device = find_device(path)
        self._tail = self._read(max(0, self.size - TAIL))

    def _read(self, start: int) -> bytes:
        """The part to keep from this byte on."""
        if start == self.size:
            return b""
        with open(self._path, "rb") as file:
            file.seek(start)
            return file.read(self.size - start)

    def check(self) -> None:
        """Raise TrainingFailed where somebody else has removed, shortened or replaced the file.

        Raises OSError where it cannot be read, such as on a disk that is gone.
        """
        try:
            if self._read(self.size - len(self._tail)) == self._tail:
                return
        except FileNotFoundError:
            if find_device(self._path) != self._device:  # the disk is gone, and may come back
                raise
        raise TrainingFailed(f"{self._path}: was removed, shortened or replaced {WHILE_WRITTEN}")

    def read(self) -> bytes:
        """All records.  Raises as `check`."""
        self.check()
        return self._read(0)

    def append(self, record: bytes, key: object = None) -> None:
        """Add a record.  key: its name; the record that was added last is not added twice.  Raises as `check`."""
        if key is not None and key == self._newest:
            return
        self.check()
        with open(self._path, "r+b" if self.size else "wb") as file:
            file.truncate(self.size)
            file.seek(self.size)
            file.write(record)
        self.size, self._newest = self.size + len(record), key
        self._tail = (self._tail + record)[-TAIL:]

    def replace(self, content: bytes) -> None:
        """Write the file anew."""
        write_atomically(self._path, content)
        self.size, self._newest, self._tail = len(content), None, content[-TAIL:]

    def sync(self) -> None:
        """Wait until all records are on disk."""
        if self.size:
            with open(self._path, "rb") as file:
                os.fsync(file.fileno())


def default_out(config: str | Path, overrides: Iterable[str]) -> Path:
    """runs/NAME: the name of the config with the overrides, so that each variant is a run of its own.

    Of an environment file.py:NAME it is file-NAME.
    """
    path = Path(config)
    stem = path.name.replace(".py:", ":") if ":" in path.suffix else path.stem
    name = "_".join([stem, *overrides])
    return Path("runs") / "".join(letter if letter.isalnum() or letter in "-_.=," else "-" for letter in name)
