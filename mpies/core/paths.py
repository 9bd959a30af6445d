"""Where relative paths begin: in the folder in which a command was started, wherever a user's code changes to later."""

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

_start_folder: Path | None = None  # None outside of `fixed_start_folder`
_users, _lock = 0, threading.Lock()  # how many `with` blocks are open, in all threads


@contextlib.contextmanager
def fixed_start_folder() -> Iterator[None]:
    """In the `with` block relative paths begin in what is the working directory now.

    Inside of another block, of this or another thread, they begin where that one has fixed it.
    """
    global _start_folder, _users
    with _lock:
        if not _users:
            with contextlib.suppress(FileNotFoundError):  # the working directory was removed
                _start_folder = Path.cwd()
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if not _users:
                _start_folder = None


def start_folder() -> Path:
    """The folder in which relative paths begin: the working directory, unless `fixed_start_folder` has fixed it.

    Raises FileNotFoundError, which names the folder and the reason, where the working directory was removed.
    """
    try:
        return _start_folder or Path.cwd()
    except FileNotFoundError as error:
        raise FileNotFoundError(error.errno, "the working directory was removed", ".") from None


def absolute(path: str | Path) -> Path:
    """The path as an absolute one."""
    path = Path(path)
    return path if path.is_absolute() else start_folder() / path
