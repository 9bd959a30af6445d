"""What can be read of a run while another process writes it: metrics as columns, config, state, log.

Nothing here writes, waits for the writer, or follows a symbolic link out of the folder it was given.
"""

import csv
import io
import json
import os
import stat
import time
from pathlib import Path

import numpy as np
import yaml

from mpies import lock
from mpies.learner import CONFIDENCE

# How far a run has come.  stale: its writer was lost without a word; stopped: it left in order, before the end.
STATES = ("running", "stale", "stopped", "finished")

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times faster where libyaml is there


def open_inside(folder, name):
    """A file below `folder` for reading bytes; no part of `name` may be a symbolic link, or `..`.

    Raises OSError where there is no such regular file.
    """
    parts = Path(name).parts
    if not parts or ".." in parts or Path(name).is_absolute():
        raise FileNotFoundError(f"{name!r} is no file in {folder}")
    *folders, last = parts
    here = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for part in folders:
            inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=here)
            os.close(here)
            here = inner
        file = os.open(last, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=here)  # a pipe would wait
    finally:
        os.close(here)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise FileNotFoundError(f"{name}: is not a regular file")
    return os.fdopen(file, "rb")


def find_runs(folder, depth=4):
    """Paths, relative to `folder`, of the run directories in it: those with a config.yaml; sorted."""
    found = []

    def look(path, level):
        try:
            entries = list(os.scandir(path))
        except OSError:
            return
        if any(entry.name == "config.yaml" and entry.is_file(follow_symlinks=False) for entry in entries):
            found.append(os.path.relpath(path, folder))
        elif level < depth:
            for entry in entries:
                if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False):
                    look(entry.path, level + 1)

    look(folder, 0)
    return sorted(found)


class RunView:
    """A run directory as a reader sees it.

    folder: nothing outside it is read.  name: of the run, relative to the folder; "." for itself.
    """

    def __init__(self, folder, name="."):
        self.folder, self.name = Path(folder), str(name)
        self.metrics = Metrics(self)

    def open(self, file):
        """One of the run's files for reading bytes.  Raises OSError."""
        return open_inside(self.folder, Path(self.name) / file)

    def stamp(self, file):
        """What changes when the file does: (inode, size, time of the last change), None where it is absent."""
        try:
            found = os.lstat(self.folder / self.name / file)
        except OSError:
            return None
        return found.st_ino, found.st_size, found.st_mtime_ns

    def text(self, file):
        """The text of a small file; '' where it is absent."""
        try:
            with self.open(file) as opened:
                return opened.read().decode(errors="replace")
        except OSError:
            return ""

    def _mapping(self, file, parse):
        try:
            values = parse(self.text(file))
        except (ValueError, yaml.YAMLError, RecursionError):
            values = None
        return values if isinstance(values, dict) else {}

    def config(self):
        """The resolved config as plain values, with the key `versions`; {} where it is absent or damaged."""
        return self._mapping("config.yaml", lambda text: yaml.load(text, _Loader))

    def finished(self):
        """reason, generation and steps of a run that is complete; {} while it is not."""
        return self._mapping("finished.yaml", lambda text: yaml.load(text, _Loader))

    def writer(self):
        """Host, process and last sign of life of who writes the run; {} where nobody does."""
        return self._mapping("writer.json", json.loads)

    def ranks(self):
        """The newest `idle` share of each rank, in rank order, and the generations they are of; {} in old runs."""
        return self._mapping("ranks.json", json.loads)

    def state(self):
        """One of STATES."""
        owner = self.writer()
        if owner and lock.is_owner(owner):
            return "running" if lock.lives(owner) else "finished" if self.finished() else "stale"
        return "finished" if self.finished() else "stopped"

    def silence(self):
        """Seconds since the writer's last sign of life; None where nobody writes."""
        beat = self.writer().get("beat")
        return max(0.0, time.time() - beat) if isinstance(beat, (int, float)) else None


class Metrics:
    """metrics.csv as columns of numbers, read as it grows.

    columns: names to (rows,) float64, NaN where a cell is empty.  `refresh` reads what is new; `version` counts
    how often the file was another one, so that what was known of it no longer holds.
    """

    def __init__(self, view):
        self._view = view
        self.version = 0
        self._restart()

    def _restart(self):
        self.columns: dict = {}
        self._end, self._stamp, self._last = 0, None, b""

    def __len__(self):
        return len(self.columns["generation"]) if self.columns else 0

    def refresh(self):
        """Read what was appended, whole lines only; all again where the file is another one.  Returns self."""
        stamp = self._view.stamp("metrics.csv")
        if stamp == self._stamp:
            return self
        try:
            file = self._view.open("metrics.csv")
        except OSError:
            file = io.BytesIO()
        with file:
            if self._end:
                file.seek(self._end - len(self._last))
                if file.read(len(self._last)) != self._last:
                    self._restart()
                    self.version += 1
            file.seek(self._end)
            new = file.read()
        new = new[: new.rfind(b"\n") + 1]  # what follows is half-written
        if new:
            self._add(new)
            self._end += len(new)
            self._last = new[new.rfind(b"\n", 0, -1) + 1 :]
        self._stamp = stamp
        return self

    def _add(self, lines):
        text = lines.decode(errors="replace")
        if not self.columns:
            head, _, text = text.partition("\n")
            self.columns = {name: np.empty(0) for name in next(csv.reader([head]), []) if name != "digest"}
            self._header = next(csv.reader([head]), [])
        rows = [row for row in csv.reader(text.splitlines()) if len(row) == len(self._header)]
        for name, cells in zip(self._header, zip(*rows, strict=True), strict=False):
            if name in self.columns:
                self.columns[name] = np.concatenate([self.columns[name], [_number(cell) for cell in cells]])


def _number(cell):
    try:
        return float(cell) if cell else np.nan
    except ValueError:
        return np.nan


def intervals(columns, episodes=np.nan):
    """(rows,) half widths of the 95 % confidence interval of each evaluation's mean; NaN where there is none.

    episodes: of an evaluation, where the run is too old to have counted them.
    """
    with np.errstate(all="ignore"):
        return CONFIDENCE * columns["eval_std"] / np.sqrt(columns.get("eval_episodes", episodes))
