"""Remove a run directory, unless a process is writing it."""

import contextlib
import os
import shutil
from pathlib import Path

from mpies.core.errors import RunError, RunLocked
from mpies.core.paths import absolute
from mpies.runs.lock import LOCK_FILE, Lock
from mpies.runs.reader import RunView


def check_removable(path: str | Path) -> None:
    """Raise RunError where this is not the directory of a run, RunLocked where it, or a run in it, is being written."""
    folder = absolute(path)
    if folder.is_symlink():
        raise RunError(f"{path}: is a link; give the run that it points to")
    if "versions" not in RunView(folder).config():  # a config.yaml without them is one that a user wrote
        raise RunError(f"{path}: is not a run; give a run directory that mpies runs lists")
    for file in folder.rglob(LOCK_FILE):
        if RunView(file.parent).state() == "running":
            writer = RunView(file.parent).writer()
            raise RunLocked(f"{path}: is being written by process {writer['pid']} on {writer['host']}; stop it first")


def remove_run(path: str | Path) -> None:
    """Remove a run directory and all that is in it.

    It is renamed while this process holds its lock, so that a job that starts meanwhile finds no run, or keeps it.
    Raises what `check_removable` does, and RunError where the system refuses.
    """
    check_removable(path)
    folder = absolute(path).resolve()
    hidden = folder.with_name(f".{folder.name}.removed-{os.getpid()}")  # which no list of runs shows
    lock = Lock(folder)
    lock.acquire()
    try:
        folder.rename(hidden)
        try:
            shutil.rmtree(hidden)
        finally:  # what is left where that fails, or is interrupted, must not stay hidden
            with contextlib.suppress(OSError):
                hidden.rename(folder)
    except OSError as error:
        raise RunError(f"{path}: cannot be removed completely ({error.strerror}); remove the rest by hand") from None
    finally:
        lock.release()
