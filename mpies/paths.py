"""Where relative paths begin: in the folder in which a command was started, wherever a user's code changes to later."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

_start_folder: Path | None = None  # None outside of `fixed_start_folder`


@contextlib.contextmanager
def fixed_start_folder() -> Iterator[None]:
    """In the `with` block relative paths begin in what is the working directory now."""
    global _start_folder
    before = _start_folder
    with contextlib.suppress(FileNotFoundError):  # the working directory was removed
        _start_folder = before or Path.cwd()
    try:
        yield
    finally:
        _start_folder = before


def start_folder() -> Path:
    """The folder in which relative paths begin: the working directory, unless `fixed_start_folder` has fixed it."""
    return _start_folder or Path.cwd()


def absolute(path: str | Path) -> Path:
    """The path as an absolute one."""
    path = Path(path)
    return path if path.is_absolute() else start_folder() / path
