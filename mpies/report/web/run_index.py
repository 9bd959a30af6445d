"""The runs below a folder as values for JSON: a summary of each, and groups of them compared."""

import contextlib
import math
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mpies.core.errors import RunError
from mpies.core.paths import absolute
from mpies.report.curves import Curves, read_curves
from mpies.report.run_groups import look_up
from mpies.report.web.overlay import overlay
from mpies.report.web.sweep_table import read_free_keys
from mpies.runs.metrics import parse_number
from mpies.runs.reader import RunView, find_runs
from mpies.runs.snapshot import half_interval

TAIL = 16_000  # bytes that are read from the end of metrics.csv, and more where the newest evaluation is not there

_FILES = ("config.yaml", "metrics.csv", "finished.yaml", "../trials.csv")  # on which all that is read here depends
_Stamps = tuple[tuple[int, int, int] | None, ...]  # of _FILES


class RunIndex:
    """The runs below `folder`, read again only where their files have changed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._views: dict[str, RunView] = {}  # by name
        self._configs: dict[str, tuple[tuple[int, int, int] | None, dict[str, Any]]] = {}  # by name, with its stamp
        self._summaries: dict[str, tuple[_Stamps, dict[str, Any]]] = {}  # by name
        self._curves: dict[str, tuple[_Stamps, Curves | None]] = {}  # by name, of the runs that were compared
        self._overlaid: tuple[Any, dict[str, Any]] = None, {}  # what was compared last, and the answer

    def summaries(self) -> list[dict[str, Any]]:
        """Of each run: name, state, environment, solver, target, seed, reason of its end, and its newest numbers."""
        names = find_runs(self.folder)
        self._views = {name: self._views.get(name) or RunView(self.folder, name) for name in names}
        self._summaries = {name: self._summarize(view) for name, view in self._views.items()}
        return [{**summary, "state": self._views[name].state()} for name, (_, summary) in self._summaries.items()]

    def _summarize(self, view: RunView) -> tuple[_Stamps, dict[str, Any]]:
        known, stamps = self._summaries.get(view.name), _stamps(view)
        if known and known[0] == stamps:
            return known
        if view.name not in self._configs or self._configs[view.name][0] != stamps[0]:
            self._configs[view.name] = stamps[0], view.config()
        config = self._configs[view.name][1]
        summary = {"name": view.name, "environment": look_up(config, "environment.id")}
        summary |= {"solver": look_up(config, "solver.kind"), "target": look_up(config, "stop.target")}
        summary |= {"seed": config.get("seed"), **read_newest_numbers(view)}
        reason = view.reason()
        return stamps, {**summary, **({"reason": reason} if reason else {})}

    def find(self, name: str) -> RunView | None:
        """The run of this name, None where there is none."""
        if name not in self._views:
            self.summaries()
        return self._views.get(name)

    def read_overlay(self, names: Sequence[str], axis: str, drawn: str) -> dict[str, Any]:
        """What `overlay` tells of the runs of these names, and how many were read."""
        views = [view for view in map(self.find, dict.fromkeys(names)) if view]
        asked = [(view.name, _stamps(view)) for view in views], axis, drawn
        if asked == self._overlaid[0]:
            return self._overlaid[1]
        runs = [run for run in map(self._read_curves, views) if run]
        folders = {os.path.dirname(view.name) for view in views}
        sweep = self.folder / folders.pop() if len(folders) == 1 else None  # that is shown alone
        also = read_free_keys(sweep) if sweep and (sweep / "sweep.yaml").is_file() else []
        self._overlaid = asked, {"runs": len(runs), **overlay(runs, axis, drawn, also)}
        return self._overlaid[1]

    def _read_curves(self, view: RunView) -> Curves | None:
        """The Curves of a run, with its name as its path; None where it has no generation, or is no run of ours."""
        stamps = _stamps(view)
        if view.name not in self._curves or self._curves[view.name][0] != stamps:
            try:
                curves = replace(read_curves(view), path=Path(view.name))
            except RunError:
                curves = None
            self._curves[view.name] = stamps, curves
        return self._curves[view.name][1]


def _stamps(view: RunView) -> _Stamps:
    return tuple(view.stamp(file) for file in _FILES)


def summarize_runs(folder: str | Path) -> list[dict[str, Any]]:
    """Of each run below `folder`, newest first: its summary, and path, status, size and changed.

    status: as of RunView.  size: bytes of its files.  changed: when its newest row was written, in seconds since 1970.
    Raises RunError where there is no such folder.
    """
    place = absolute(folder)
    if not place.is_dir():
        raise RunError(f"{folder}: there is no such folder; give the one that contains your runs")
    found = []
    for summary in RunIndex(place).summaries():
        name = summary["name"]
        view = RunView(place, name)
        stamp = view.stamp("metrics.csv") or view.stamp("config.yaml")
        hidden = ("name", "state", "seed", "reason")  # status says more
        row = {key: value for key, value in summary.items() if key not in hidden}
        row = {"path": str(Path(folder) / name), "status": view.status(), **row, "size": count_bytes(place / name)}
        found.append({**row, "changed": stamp[2] / 1e9 if stamp else 0.0})
    return sorted(found, key=lambda row: -row["changed"])


def count_bytes(folder: str | Path) -> int:
    """Bytes of all files below a folder."""
    size = 0
    for path, _, files in os.walk(folder):
        for file in files:
            with contextlib.suppress(OSError):  # removed meanwhile
                size += os.lstat(os.path.join(path, file)).st_size
    return size


def read_newest_numbers(view: RunView) -> dict[str, float | None]:
    """The newest generation, mean return, evaluation with its interval, and seconds of a run.

    Reads only the end of metrics.csv, from before the newest evaluation on.
    """
    length = TAIL
    try:
        with view.open("metrics.csv") as file:
            header = file.readline().decode(errors="replace").strip().split(",")
            first, end = file.tell(), file.seek(0, 2)
            while True:
                start = file.seek(max(first, end - length))
                text = file.read().decode(errors="replace")
                lines = text.split("\n")[start > first : -1]  # both ends may be cut off
                cells_of = (line.split(",") for line in lines)  # no cell is quoted
                rows = [row for row in cells_of if len(row) == len(header)]
                if start == first or _newest_cell(header, rows, "eval_mean") is not None:
                    break
                length *= 4
    except OSError:
        return {}
    numbers: dict[str, float | None] = {}
    for name in ("generation", "return_mean", "eval_mean", "seconds"):
        cell = _newest_cell(header, rows, name)
        if cell is not None:
            number = parse_number(cell)
            whole = int if name == "generation" else float
            numbers[name] = whole(number) if math.isfinite(number) else None
    std, episodes = (parse_number(_newest_cell(header, rows, name)) for name in ("eval_std", "eval_episodes"))
    interval = half_interval(std, episodes)
    if numbers.get("eval_mean") is not None and math.isfinite(interval):
        numbers["eval_interval"] = interval
    return numbers


def _newest_cell(header: list[str], rows: list[list[str]], name: str) -> str | None:
    """The newest cell of a column that is not empty; None where there is none."""
    place = header.index(name) if name in header else len(header)
    return next((row[place] for row in reversed(rows) if row[place:] and row[place]), None)
