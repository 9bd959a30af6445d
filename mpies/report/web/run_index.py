"""The runs below a folder as values for JSON: a summary of each, and the curves of one, whole or what is new."""

import contextlib
import hashlib
import json
import math
import os
import threading
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mpies.core.errors import RunError
from mpies.core.paths import absolute
from mpies.report.curves import NEEDED, Curves, clean_columns, has_sections
from mpies.report.run_groups import label_settings, look_up, read_settings
from mpies.report.video import VIDEOS
from mpies.report.web.overlay import overlay, round_numbers
from mpies.report.web.sweep_table import read_free_keys
from mpies.runs.ledger import read_newest
from mpies.runs.metrics import parse_number
from mpies.runs.reader import Columns, RunView, find_runs, intervals
from mpies.runs.snapshot import half_interval

MAX_POINTS = 400  # of a curve when it is first sent; new points are added to it
TAIL = 16_000  # bytes that are read from the end of a log or of metrics.csv
MAX_MEMBERS = 300  # of the newest generation that are shown
PICTURES = {".png": "image/png", **VIDEOS}  # endings of pictures and videos to their types; an SVG could hold a script
DOWNLOADS = ("best.h5", "policy.h5", "metrics.csv", "evaluations.csv", "log.txt", "config.yaml", "report.html")

_Stamps = tuple[tuple[int, int, int] | None, ...]
_OF_CONFIG = ("name", "environment", "solver", "target", "seed")  # of a summary
_COUNTED = ("generation", "episodes", "steps")  # columns
_LONG = 40  # letters of a directory's name above which the page shows settings in its place


class RunIndex:
    """The runs below `folder`, read again only where their files have changed.  Several threads may use it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._views: dict[str, RunView] = {}  # by name
        self._summaries: dict[str, tuple[_Stamps, dict[str, Any]]] = {}  # by name: stamps of the files, summary
        self._configs: dict[str, dict[str, Any]] = {}  # by name
        self._short: tuple[list[dict[str, Any]], dict[str, str]] = [], {}  # the configs they were made of; by name
        self._lock = threading.Lock()

    def summaries(self) -> list[dict[str, Any]]:
        """Of each run: name, state, environment, solver, target, seed, reason of its end, and its newest numbers.

        short: a shorter name, where there is one.
        """
        with self._lock:
            names = find_runs(self.folder)
            self._views = {name: self._views.get(name) or RunView(self.folder, name) for name in names}
            self._summaries = {name: self._summarize(name) for name in names}
            self._configs = {name: self._configs[name] for name in names}
            configs = list(self._configs.values())
            if [id(config) for config in configs] != [id(config) for config in self._short[0]]:
                sweeps = self._find_sweeps({os.path.dirname(name) for name in names})
                self._short = configs, shorten_names(self._configs, sweeps)
            found = []
            for name, (_, summary) in self._summaries.items():
                short = {"short": self._short[1][name]} if name in self._short[1] else {}
                found.append({**summary, **short, "state": self._views[name].state()})
            return found

    def _find_sweeps(self, folders: Iterable[str]) -> dict[str, list[str]]:
        """Those of the folders that hold a sweep, with the keys of `read_free_keys`."""
        places = {folder: self.folder / folder for folder in folders}
        return {folder: read_free_keys(place) for folder, place in places.items() if (place / "sweep.yaml").is_file()}

    def _summarize(self, name: str) -> tuple[_Stamps, dict[str, Any]]:
        view = self._views[name]
        stamps = tuple(view.stamp(file) for file in ("config.yaml", "metrics.csv", "finished.yaml", "../trials.csv"))
        old_stamps, old = self._summaries.get(name, (None, {}))
        if old_stamps == stamps:
            return stamps, old
        if old_stamps and old_stamps[0] == stamps[0]:  # the same config
            summary = {key: old[key] for key in _OF_CONFIG}
        else:
            self._configs[name] = config = view.config()
            summary = {"name": name, "environment": look_up(config, "environment.id")}
            summary |= {"solver": look_up(config, "solver.kind"), "target": look_up(config, "stop.target")}
            summary["seed"] = config.get("seed")
        reason = view.reason() if stamps[2] else ""
        before, now = old_stamps[1] if old_stamps else None, stamps[1]
        if before and now and before[0] == now[0] and before[1] <= now[1]:  # the file has only grown
            numbers = read_newest_numbers(view, before[1])
            if "eval_mean" not in numbers:
                numbers |= {name: old[name] for name in ("eval_mean", "eval_interval") if name in old}
        else:
            numbers = read_newest_numbers(view, 0)
        return stamps, {**summary, **({"reason": reason} if reason else {}), **numbers}

    def find(self, name: str) -> RunView | None:
        """The run of this name, None where there is none."""
        with self._lock:
            is_known = name in self._views
        if not is_known:
            self.summaries()
        with self._lock:
            return self._views.get(name)

    def read_overlay(
        self, names: Sequence[str], version: str, axis: str, drawn: str, band: str, with_runs: bool
    ) -> dict[str, Any]:
        """What `overlay` tells of the runs of these names, and its version.

        version: of what the reader has; where that is the newest, there is nothing but the version.
        """
        views = [view for view in map(self.find, dict.fromkeys(names)) if view]
        files = ("config.yaml", "metrics.csv", "finished.yaml", "../trials.csv")
        stamps = [[view.stamp(file) for file in files] for view in views]
        asked = [[view.name for view in views], stamps, axis, drawn, band, with_runs]
        newest = hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:16]
        if version == newest:
            return {"version": newest}
        runs = [run for run in map(self._read_curves, views) if run]
        folders = {os.path.dirname(view.name) for view in views}
        sweeps = self._find_sweeps(folders)
        also = sweeps.popitem()[1] if len(folders) == len(sweeps) == 1 else []  # of a sweep that is shown alone
        return {"version": newest, "runs": len(runs), **overlay(runs, axis, drawn, band, with_runs, also)}

    def _read_curves(self, view: RunView) -> Curves | None:
        """The Curves of a run, with its name as its path; None where it has no config or no generation yet.

        None also for the files of another program.
        """
        with self._lock:
            metrics, config = view.metrics.refresh(), self._configs.get(view.name, {})
            columns = dict(metrics.columns)
        if not has_sections(config) or not columns.keys() >= {*NEEDED}:
            return None
        columns = clean_columns(columns)
        return Curves(Path(view.name), config, {}, columns, view.reason()) if len(columns["generation"]) else None

    def read_update(self, name: str, version: int, after: int, log: int) -> dict[str, Any] | None:
        """What a reader lacks who knows the first `after` rows of `version` and the first `log` bytes of log.txt.

        "again" is True where all is sent, the rows thinned to at most MAX_POINTS: the reader has none, another file has
        replaced metrics.csv or config.yaml, or more rows are new than that.  Returns None where there is no such run.
        """
        view = self.find(name)
        if view is None:
            return None
        with self._lock:
            metrics = view.metrics.refresh()
            columns, rows = dict(metrics.columns), len(metrics)
            newest_version = zlib.crc32(repr((metrics.version, view.stamp("config.yaml"))).encode())
        again = version != newest_version or not 0 < after <= rows or rows - after > MAX_POINTS
        config = view.config()
        if columns.keys() >= {"eval_std"}:
            columns["eval_interval"] = intervals(columns)
        newest = {key: _round(key, value[np.isfinite(value)][-1:]) for key, value in columns.items()}
        per_point = max(1, -(-rows // MAX_POINTS)) if again else 1
        columns = thin(columns, per_point) if again else {key: value[after:] for key, value in columns.items()}
        update: dict[str, Any] = {"name": name, "version": newest_version, "rows": rows}
        update |= {"again": again, "per_point": per_point}
        update["newest"] = {key: value[0] for key, value in newest.items() if value}
        update["columns"] = {key: _round(key, value) for key, value in columns.items()}
        update["log"] = read_tail(view, "log.txt", log)
        ending = view.finished()
        ending |= {"reason": view.reason()} if ending else {}
        update |= {"state": view.state(), "silence": view.silence(), "finished": ending, "ranks": view.ranks()}
        if again:
            update |= {"target": look_up(config, "stop.target"), "config": view.text("config.yaml")}
        update["files"] = [file for file in DOWNLOADS if view.stamp(file)]
        update["pictures"] = list_pictures(view)
        if again or any(len(column) for column in columns.values()):
            update["members"] = read_members(view, look_up(config, "solver.episodes") or 1)
        return update


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
        hidden = ("name", "state", "short", "seed", "reason")  # status says more
        row = {key: value for key, value in summary.items() if key not in hidden}
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


def shorten_names(configs: Mapping[str, Mapping[str, Any]], sweeps: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Shorter names of the runs of sweeps whose directories' names are long or list settings.

    configs: by the runs' names.  sweeps: folders, "" for the one that the names are relative to; each with what
    `read_settings` takes as `also`.  A shorter name has the settings that differ among the runs of the
    same folder and task, and the seed.  A run keeps its whole name where its settings do not differ, or another run
    would have the same shorter name.
    """
    folders: dict[str, list[str]] = {}
    for name in configs:
        folders.setdefault(os.path.dirname(name), []).append(name)
    short = {}
    for folder, names in folders.items():
        if folder not in sweeps or not any(_is_long(name) for name in names):
            continue
        labels = label_settings([read_settings(configs[name], sweeps[folder]) for name in names])
        for name, label in zip(names, labels, strict=True):
            config = configs[name]
            seed = [f"seed {config['seed']}"] if "seed" in config else []
            if _is_long(name) and label != str(look_up(config, "solver.kind")):
                short[name] = f"{folder}: " * bool(folder) + ", ".join([label, *seed])
    counts = Counter(short.values())
    return {name: text for name, text in short.items() if counts[text] == 1}


def _is_long(name: str) -> bool:
    return "=" in os.path.basename(name) or len(os.path.basename(name)) > _LONG


def read_newest_numbers(view: RunView, since: int | None = None) -> dict[str, float | None]:
    """The newest generation, mean return, evaluation with its interval, and seconds of a run.

    Reads only the end of metrics.csv.

    since: the evaluation is looked for back to this byte; None looks for it in the last TAIL bytes only.
    """
    length = TAIL
    try:
        with view.open("metrics.csv") as file:
            header = file.readline().decode(errors="replace").strip().split(",")
            first = file.tell()
            end = file.seek(0, 2)
            earliest = max(first, (end if since is None else min(since, end)) - TAIL)  # `since` may be within a line
            while True:
                start = file.seek(max(first, end - length))
                text = file.read().decode(errors="replace")
                lines = text.split("\n")[start > first : -1]  # both ends may be cut off
                cells_of = (line.split(",") for line in lines)  # no cell is quoted
                rows = [row for row in cells_of if len(row) == len(header)]
                if start <= earliest or _newest_cell(header, rows, "eval_mean") is not None:
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
    deviation, episodes = (parse_number(_newest_cell(header, rows, name)) for name in ("eval_std", "eval_episodes"))
    interval = half_interval(deviation, episodes)
    if numbers.get("eval_mean") is not None and math.isfinite(interval):
        numbers["eval_interval"] = interval
    return numbers


def _newest_cell(header: list[str], rows: list[list[str]], name: str) -> str | None:
    """The newest cell of a column that is not empty; None where there is none."""
    place = header.index(name) if name in header else len(header)
    return next((row[place] for row in reversed(rows) if row[place:] and row[place]), None)


def list_pictures(view: RunView) -> list[tuple[str, int]]:
    """Names of the pictures and videos in a run directory, each with the millisecond of its last change."""
    found = []
    with contextlib.suppress(OSError), os.scandir(view.folder / view.name) as entries:
        for entry in entries:
            is_picture = entry.name.endswith(tuple(PICTURES)) and not entry.name.startswith(".")
            if is_picture and entry.is_file(follow_symlinks=False):
                found.append((entry.name, entry.stat(follow_symlinks=False).st_mtime_ns // 1_000_000))
    return sorted(found)


def read_members(view: RunView, episodes: int) -> dict[str, Any] | None:
    """Mean return and mean episode length of members of the newest generation, by length; None without a ledger.

    episodes: of each member.
    """
    try:
        with view.open("ledger.bin") as file:
            record = read_newest(file)
        if record is None:
            return None
        lengths, returns = record["steps"] / episodes, record["returns"].astype(float)
        shown = np.argsort(lengths, kind="stable")
    except (OSError, ValueError, KeyError, TypeError):  # absent, damaged, or of another version
        return None
    if len(shown) > MAX_MEMBERS:
        shown = shown[np.linspace(0, len(shown) - 1, MAX_MEMBERS).astype(int)]
    columns = {"lengths": round_numbers(lengths[shown], 4), "returns": round_numbers(returns[shown], 4)}
    return {"generation": int(record["generation"]), "members": len(lengths), **columns}


def thin(columns: Columns, per_point: int) -> Columns:
    """Columns with one value for every `per_point` rows: lowest, highest, newest or mean, depending on the name."""
    if per_point == 1 or not columns:
        return columns
    return {name: _thin(name, values, per_point) for name, values in columns.items()}


def _round(name: str, values: npt.NDArray[np.float64]) -> list[float | None]:
    """A column for JSON.  What is counted stays whole."""
    return round_numbers(values, 15 if name in _COUNTED else 6)


def _thin(name: str, values: npt.NDArray[np.float64], per_point: int) -> npt.NDArray[np.float64]:
    starts = np.arange(0, len(values), per_point)
    if name in (*_COUNTED, "seconds"):
        return values[np.minimum(starts + per_point, len(values)) - 1]
    if name in ("return_min", "ranks", "nodes"):
        return np.fmin.reduceat(values, starts)
    if name in ("return_max", "idle_max", "failures", "starts"):
        return np.fmax.reduceat(values, starts)
    known = np.isfinite(values)
    with np.errstate(all="ignore"):
        return np.add.reduceat(np.where(known, values, 0), starts) / np.add.reduceat(known.astype(float), starts)


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
