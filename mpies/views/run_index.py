"""The runs below a folder as values for JSON: a summary of each, and the curves of one, whole or what is new."""

import contextlib
import csv
import math
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mpies.errors import RunError
from mpies.paths import absolute
from mpies.runs.reader import Columns, RunView, find_runs, intervals

MAX_POINTS = 400  # of a curve when it is first sent; new points are added to it
TAIL = 16_000  # bytes that are read from the end of a log or of metrics.csv
DOWNLOADS = ("best.h5", "policy.h5", "metrics.csv", "log.txt", "config.yaml", "report.html")

_Stamps = tuple[tuple[int, int, int] | None, ...]


class RunIndex:
    """The runs below `folder`, read again only where their files have changed.  Several threads may use it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._views: dict[str, RunView] = {}  # by name
        self._summaries: dict[str, tuple[_Stamps, dict[str, Any]]] = {}  # by name: stamps of the files, summary
        self._lock = threading.Lock()

    def summaries(self) -> list[dict[str, Any]]:
        """Of each run: name, state, environment, solver, target, and its newest numbers."""
        with self._lock:
            names = find_runs(self.folder)
            self._views = {name: self._views.get(name) or RunView(self.folder, name) for name in names}
            self._summaries = {name: self._summarize(name) for name in names}
            return [{**summary, "state": self._views[name].state()} for name, (_, summary) in self._summaries.items()]

    def _summarize(self, name: str) -> tuple[_Stamps, dict[str, Any]]:
        view = self._views[name]
        stamps = tuple(view.stamp(file) for file in ("config.yaml", "metrics.csv"))
        old_stamps, old = self._summaries.get(name, (None, {}))
        if old_stamps == stamps:
            return stamps, old
        if old_stamps and old_stamps[0] == stamps[0]:  # the same config
            summary = {key: old[key] for key in ("name", "environment", "solver", "target")}
        else:
            config = view.config()
            summary = {"name": name, "environment": _value(config, "environment", "id")}
            summary |= {"solver": _value(config, "solver", "kind"), "target": _value(config, "stop", "target")}
        return stamps, summary | read_newest_numbers(view)

    def find(self, name: str) -> RunView | None:
        """The run of this name, None where there is none."""
        with self._lock:
            is_known = name in self._views
        if not is_known:
            self.summaries()
        with self._lock:
            return self._views.get(name)

    def read_update(self, name: str, version: int, after: int, log: int) -> dict[str, Any] | None:
        """What a reader lacks who knows the first `after` rows of `version` and the first `log` bytes of log.txt.

        "again" is True where all rows are sent, thinned to at most MAX_POINTS: another file has replaced
        metrics.csv, or more rows are new than that.  Returns None where there is no such run.
        """
        view = self.find(name)
        if view is None:
            return None
        with self._lock:
            metrics = view.metrics.refresh()
            columns, rows, newest_version = dict(metrics.columns), len(metrics), metrics.version
        again = version != newest_version or not 0 <= after <= rows or rows - after > MAX_POINTS
        config = view.config()
        if columns.keys() >= {"eval_std"}:
            columns["eval_interval"] = intervals(columns, _value(config, "evaluation", "episodes") or math.nan)
        newest = {key: _as_json(value[np.isfinite(value)][-1:]) for key, value in columns.items()}
        per_point = max(1, -(-rows // MAX_POINTS)) if again else 1
        columns = thin(columns, per_point) if again else {key: value[after:] for key, value in columns.items()}
        update: dict[str, Any] = {"name": name, "version": newest_version, "rows": rows}
        update |= {"again": again, "per_point": per_point}
        update["newest"] = {key: value[0] for key, value in newest.items() if value}
        update["columns"] = {key: _as_json(value) for key, value in columns.items()}
        update["log"] = read_tail(view, "log.txt", log)
        update |= {"state": view.state(), "silence": view.silence(), "finished": view.finished(), "ranks": view.ranks()}
        if again:
            update |= {"target": _value(config, "stop", "target"), "config": view.text("config.yaml")}
        update["files"] = [file for file in DOWNLOADS if view.stamp(file)]
        return update


def list_runs(folder: str | Path) -> list[dict[str, Any]]:
    """Of each run below `folder`, newest first: its summary, and path, status, size and changed.

    status: as of RunView.  size: bytes of its files.  changed: when its newest row was written, in seconds since 1970.
    Raises RunError where there is no such folder.
    """
    place = absolute(folder)
    if not place.is_dir():
        raise RunError(f"{folder}: there is no such folder; give the one that holds your runs")
    found = []
    for summary in RunIndex(place).summaries():
        name = summary["name"]
        view = RunView(place, name)
        stamp = view.stamp("metrics.csv") or view.stamp("config.yaml")
        row = {key: value for key, value in summary.items() if key not in ("name", "state")}  # status says more
        row = {"path": str(Path(folder) / name), "status": view.status(), **row, "size": measure_size(place / name)}
        found.append({**row, "changed": stamp[2] / 1e9 if stamp else 0.0})
    return sorted(found, key=lambda row: -row["changed"])


def measure_size(folder: str | Path) -> int:
    """Bytes of all files below a folder."""
    size = 0
    for path, _, files in os.walk(folder):
        for file in files:
            with contextlib.suppress(OSError):  # removed meanwhile
                size += os.lstat(os.path.join(path, file)).st_size
    return size


def _value(values: Mapping[str, Any], section: str, key: str) -> Any:
    """The value of a key, None where it is absent."""
    inner = values.get(section)
    return inner.get(key) if isinstance(inner, dict) else None


def read_newest_numbers(view: RunView) -> dict[str, float | None]:
    """The newest generation, mean return, evaluation and seconds of a run.  Reads only the end of metrics.csv."""
    try:
        with view.open("metrics.csv") as file:
            header = file.readline().decode(errors="replace").strip().split(",")
            first = file.tell()
            end = file.seek(0, 2)
            start = file.seek(max(first, end - TAIL))
            lines = file.read().decode(errors="replace").split("\n")[start > first : -1]  # both ends may be cut off
    except OSError:
        return {}
    rows = [dict(zip(header, row, strict=True)) for row in csv.reader(lines) if len(row) == len(header)]
    numbers = {}
    for name in ("generation", "return_mean", "eval_mean", "seconds"):
        cell = next((row[name] for row in reversed(rows) if row.get(name)), None)
        if cell is not None:
            numbers[name] = _parse_number(cell)
    return numbers


def _parse_number(cell: str) -> float | None:
    """Five digits of a number; None where it is none, or not finite."""
    try:
        value = float(f"{float(cell):.5g}")
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def thin(columns: Columns, per_point: int) -> Columns:
    """Columns with one value for every `per_point` rows: lowest, highest, newest or mean, depending on the name."""
    if per_point == 1 or not columns:
        return columns
    return {name: _thin(name, values, per_point) for name, values in columns.items()}


def _thin(name: str, values: npt.NDArray[np.float64], per_point: int) -> npt.NDArray[np.float64]:
    starts = np.arange(0, len(values), per_point)
    if name in ("generation", "seconds", "episodes", "steps"):
        return values[np.minimum(starts + per_point, len(values)) - 1]
    if name in ("return_min", "ranks"):
        return np.fmin.reduceat(values, starts)
    if name in ("return_max", "idle_max", "failures"):
        return np.fmax.reduceat(values, starts)
    known = np.isfinite(values)
    with np.errstate(all="ignore"):
        return np.add.reduceat(np.where(known, values, 0), starts) / np.add.reduceat(known.astype(float), starts)


def _as_json(values: npt.NDArray[np.float64]) -> list[float | None]:
    """Six digits of each number; None for those that are not finite, which JSON lacks."""
    return [float(f"{value:.6g}") if math.isfinite(value) else None for value in values.tolist()]


def read_tail(view: RunView, name: str, start: int) -> dict[str, Any]:
    """The text of a file from byte `start` to `end`, at most TAIL bytes.

    Where `start` is no byte of the last TAIL ones, the text begins near the file's end, with a complete line.
    """
    try:
        with view.open(name) as file:
            end = file.seek(0, 2)
            earliest = max(0, end - TAIL)
            begin = start if earliest <= start <= end else earliest
            file.seek(begin)
            content = file.read(TAIL)
    except OSError:
        return {"text": "", "start": 0, "end": 0}
    end = begin + len(content)
    if begin and begin != start:
        content = content[content.find(b"\n") + 1 :]
    return {"text": content.decode(errors="replace"), "start": begin, "end": end}
