"""The checkpoints of a run: complete states, one file each, named by their generation."""

import re
from pathlib import Path

from mpies.core.errors import NewerFormat, RunError, Unreadable
from mpies.core.paths import absolute
from mpies.runs.files import Warn
from mpies.runs.formats import hdf5
from mpies.runs.formats.hdf5 import Content

_NAME = re.compile(r"generation-(\d{8})\.h5")


def checkpoint_path(run: Path, generation: int) -> Path:
    """The file of the checkpoint of a generation."""
    return run / "checkpoints" / f"generation-{generation:08d}.h5"


def list_checkpoints(run: str | Path) -> list[Path]:
    """The checkpoint files of the run at `run`, the newest first."""
    found = (absolute(run) / "checkpoints").glob("generation-*.h5")
    names = sorted((path.name for path in found if _NAME.fullmatch(path.name)), reverse=True)
    return [Path(run) / "checkpoints" / name for name in names]


def newest_checkpoint(run: str | Path, warn: Warn, before: int | None = None) -> Content | None:
    """Arrays and attributes of the newest checkpoint that is not damaged; None without one.

    warn: called with a line for each damaged one.  before: only those of earlier generations; None for all.
    Raises NewerFormat where a newer mpies wrote it, Unreadable where the system refuses to read it.
    """
    for path in list_checkpoints(run):
        if before is not None and path >= checkpoint_path(Path(run), before):
            continue
        try:
            return hdf5.read(path)
        except (NewerFormat, Unreadable):
            raise
        except RunError as error:
            warn(f"{error}; going back to an older checkpoint")
    return None


def first_checkpoint(run: str | Path, generation: int = 0) -> Content:
    """Arrays and attributes of the checkpoint where replays begin.  Raises RunError without one.

    generation: the one before the first in the ledger, 0 unless an earlier part of the ledger was lost.
    """
    path = checkpoint_path(Path(run), generation)
    if path not in list_checkpoints(run):
        raise RunError(f"{run}: the first checkpoint, {path.name}, where replays begin, is missing")
    return hdf5.read(path)


def remove_old_checkpoints(run: Path, keep: int, first: int = 0) -> None:
    """Delete all checkpoints but the newest `keep` and the one of generation `first`, where replays begin."""
    for path in list_checkpoints(run)[keep:]:
        if path != checkpoint_path(run, first):
            path.unlink(missing_ok=True)
