"""The runs below a folder as values for JSON: a summary of each, and groups of them overlaid."""

import contextlib
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from mpies.core.errors import RunError
from mpies.core.paths import absolute
from mpies.core.text import describe_error
from mpies.report.compare.curves import Curves, Floats, read_curves
from mpies.report.compare.run_groups import RunGroup, group_by_task, group_runs, look_up, read_settings, settings_key
from mpies.report.web.run_update import MAX_COMPARED, check_sizes, read_update, round_numbers
from mpies.report.web.sweep_table import read_free_keys
from mpies.runs.formats.metrics import parse_number
from mpies.runs.reader import MAX_HEADER, RunView, find_runs, require_absent
from mpies.runs.snapshot import half_interval

TAIL = 16_000  # bytes that are read from the end of metrics.csv, and more where the newest evaluation is not there

AXES = ("generation", "seconds", "steps")
# Columns of metrics.csv that can be drawn.
DRAWN = ("eval_mean", "return_mean", "length_mean", "eval_length", "sigma", "update_ratio", "steps_per_second")
MAX_POINTS = 200  # of a curve
MAX_NUMBERS = 12_000  # of all curves together, so that an answer stays below 50 kB; there are 25 points at least

MOST = 2**22  # bytes that are read from the end of metrics.csv at most
DAMAGED = "damaged"  # the state of a run that cannot be read

_FILES = ("config.yaml", "metrics.csv", "finished.yaml", "../trials.csv")  # on which all that is read here depends
_Stamps = tuple[tuple[int, int, int] | None, ...]  # of files


class RunIndex:
    """The runs below `folder`, read again where their files have changed, for so many seconds at a time."""

    def __init__(self, folder: Path, seconds: float = math.inf) -> None:
        self.folder, self.seconds = folder, seconds
        self._views: dict[str, RunView] = {}  # by name
        self._read: dict[tuple[str, Any], tuple[_Stamps, Any]] = {}  # by name and what reads it, with the files' stamps
        self._overlaid: tuple[Any, dict[str, Any]] = None, {}  # what was compared last, and the answer

    def _refresh(self, view: RunView, read: Callable[[RunView], Any], files: Sequence[str] = _FILES) -> Any:
        """What `read` returns of a run, read again only where one of these files has changed."""
        stamps, known = _stamps(view, files), self._read.get((view.name, read))
        if not known or known[0] != stamps:
            known = self._read[view.name, read] = stamps, read(view)
        return known[1]

    def summaries(self) -> list[dict[str, Any]]:
        """Of each run: name, state, environment, solver, target, seed, reason of its end or damage, newest numbers."""
        names = find_runs(self.folder, until=time.monotonic() + self.seconds)
        self._views = {name: self._views.get(name) or RunView(self.folder, name, is_strict=True) for name in names}
        self._read = {key: known for key, known in self._read.items() if key[0] in self._views}
        until = time.monotonic() + self.seconds
        return [self._summarize_or_explain(view, until) for view in self._views.values()]

    def _summarize_or_explain(self, view: RunView, until: float) -> dict[str, Any]:
        try:
            if time.monotonic() > until:
                raise RunError("was not read yet, as the others took long; wait a moment")
            with explaining():
                return {**self._refresh(view, self._summarize), "state": view.state()}
        except RunError as error:
            unknown = dict.fromkeys(("environment", "solver", "target", "seed"))
            return {"name": view.name, **unknown, "state": DAMAGED, "reason": str(error)}

    def _summarize(self, view: RunView) -> dict[str, Any]:
        config = self._refresh(view, _read_config, ("config.yaml",))
        summary = {"name": view.name, "environment": look_up(config, "environment.id")}
        summary |= {"solver": look_up(config, "solver.kind"), "target": look_up(config, "stop.target")}
        summary |= {"seed": config.get("seed"), **read_newest_numbers(view), "changed": _changed_at(view)}
        reason = view.reason()
        return {**summary, **({"reason": reason} if reason else {})}

    def find(self, name: str) -> RunView | None:
        """The run of this name, None where there is none."""
        if name not in self._views:
            self.summaries()
        return self._views.get(name)

    def read_update(self, name: str) -> dict[str, Any] | None:
        """What the page shows of the run of this name, None where there is none.  Raises RunError."""
        view = self.find(name)
        with explaining(f"{name}: "):
            return read_update(view) if view else None

    def read_overlay(self, names: Sequence[str], axis: str, drawn: str) -> dict[str, Any]:
        """What `overlay` tells of the runs of these names, and how many were read.  Raises RunError."""
        views = [view for view in map(self.find, dict.fromkeys(names)) if view]
        check_sizes(views, MAX_COMPARED)
        asked = [(view.name, _stamps(view)) for view in views], axis, drawn
        if asked == self._overlaid[0]:
            return self._overlaid[1]
        until, found = time.monotonic() + self.seconds, []
        for view in views:
            if time.monotonic() < until:  # else it is read the next time
                found.append(self._refresh(view, _read_curves))
        runs = [run for run in found if run]
        folders = {os.path.dirname(view.name) for view in views}
        sweep = self.folder / folders.pop() if len(folders) == 1 else None  # that is shown alone
        also = read_free_keys(sweep) if sweep and (sweep / "sweep.yaml").is_file() else []
        answer = {"runs": len(runs), **overlay(runs, axis, drawn, also)}
        self._overlaid = asked if len(found) == len(views) else None, answer
        return answer


@contextlib.contextmanager
def explaining(where: str = "") -> Iterator[None]:
    """Whatever a damaged run leads to in the `with` block becomes a RunError.  where: begins its line."""
    try:
        yield
    except Exception as error:
        raise RunError(f"{where}{describe_error(error)}") from error


def _read_config(view: RunView) -> dict[str, Any]:
    """The config of a run.  Raises RunError where it is damaged, or what the page shows of it is of another kind."""
    config = view.config(is_strict=True)
    for key, kind in (("environment.id", str), ("solver.kind", str), ("stop.target", (int, float)), ("seed", int)):
        value = look_up(config, key)
        if value is not None and not (isinstance(value, kind) and (isinstance(value, str) or abs(value) < 1e300)):
            raise RunError(f"config.yaml: is damaged ({key} is of another kind)")
    return config


def _read_curves(view: RunView) -> Curves | None:
    """The Curves of a run, with its name as its path; None where it has no generation or is damaged."""
    with contextlib.suppress(RunError), explaining():
        check_sizes([view])
        curves = replace(read_curves(view), path=Path(view.name))
        settings_key(read_settings(_read_config(view)))  # fails here, and not in a picture of others
        return curves
    return None


def _stamps(view: RunView, files: Sequence[str] = _FILES) -> _Stamps:
    return tuple(view.stamp(file) for file in files)


def overlay(runs: Sequence[Curves], axis: str, drawn: str, also: Sequence[str] = ()) -> dict[str, Any]:
    """The runs in groups, each a median over its seeds between the quartiles.

    axis: one of AXES.  drawn: one of DRAWN; "" for the evaluations, or the members' mean return where nothing was
    evaluated.  also: as for `read_settings`.
    groups: how many there are.  repeated: how many runs are left out, since another one has the same config and seed.
    """
    available = [name for name in DRAWN if any(np.isfinite(run.columns.get(name, [])).any() for run in runs)]
    drawn = drawn if drawn in available else next(iter(available), "return_mean")
    groups = group_runs(runs, also)
    points = min(MAX_POINTS, max(25, MAX_NUMBERS // max(1, 3 * len(groups))))
    tasks = []
    for task, inside in group_by_task(groups).items():
        grid = _make_grid(inside, axis, drawn, points)
        lines = [{"group": groups.index(one), **_draw(one, grid, axis, drawn)} for one in inside]
        tasks.append(
            {
                "task": task,
                "targets": sorted({target for group in inside for target in group.targets}),
                "x": round_numbers(grid, 6),
                "curves": [line for line in lines if "mid" in line],
            }
        )
    return {
        "drawn": drawn,
        "available": available,
        "groups": len(groups),
        "repeated": sum(len(group.left_out) for group in groups),
        "tasks": tasks,
    }


def _make_grid(groups: Sequence[RunGroup], axis: str, drawn: str, points: int) -> Floats:
    """The values of the axis on which the curves of a task are drawn; none where no run has a value."""
    extents = [extent for extent in (group.extent(axis, drawn) for group in groups) if extent]
    if not extents:
        return np.zeros(0)
    first, last = min(start for start, _ in extents), max(stop for _, stop in extents)
    grid = np.linspace(first, last, points) if last > first else np.array([first])
    return np.unique(grid.round()) if axis == "generation" else grid


def _draw(group: RunGroup, grid: Floats, axis: str, drawn: str) -> dict[str, Any]:
    """Label, seeds, median and quartiles of a group on the grid, within its extent; {} without values."""
    extent = group.extent(axis, drawn)
    if not extent:
        return {}
    first, last = (np.abs(grid - end).argmin() for end in extent)
    values = group.sample(grid, axis, drawn)
    values[:, :first] = values[:, last + 1 :] = np.nan
    low, middle, high = (round_numbers(line, 4) for line in np.percentile(values, [25, 50, 75], axis=0))
    seeds = [run.config.get("seed") for run in group.runs]
    return {"label": group.label, "seeds": seeds, "low": low, "mid": middle, "high": high}


def summarize_runs(folder: str | Path) -> list[dict[str, Any]]:
    """Of each run below `folder`, newest first: its summary, and path, status, size and changed.

    status: as of RunView, or DAMAGED; why it is damaged or cannot be read stands in `reason`.  size: of its files, in
    bytes.  changed: when its newest row was written, in seconds since 1970.
    Raises RunError where there is no such folder.
    """
    place = absolute(folder)
    if not place.is_dir():
        raise RunError(f"{folder}: there is no such folder; give the one that contains your runs")
    found = []
    for summary in RunIndex(place).summaries():
        name = summary["name"]
        view = RunView(place, name)
        is_damaged = summary["state"] == DAMAGED
        hidden = ("name", "state", "seed", *([] if is_damaged else ["reason"]))  # status says more
        row = {key: value for key, value in summary.items() if key not in hidden}
        status = DAMAGED if is_damaged else view.status()
        row = {"path": str(Path(folder) / name), "status": status, **row, "size": count_bytes(place / name)}
        found.append({**row, "changed": _changed_at(view)})
    return sorted(found, key=lambda row: -row["changed"])


def _changed_at(view: RunView) -> float:
    """When the newest row of a run was written, in seconds since 1970."""
    stamp = view.stamp("metrics.csv") or view.stamp("config.yaml")
    return stamp[2] / 1e9 if stamp else 0.0


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

    Reads only the end of metrics.csv, from before the newest evaluation on.  Raises RunError where that fails.
    """

    def newest(name: str) -> str | None:
        return next((row[name] for row in reversed(rows) if row.get(name)), None)

    length, rows = TAIL, list[dict[str, str]]()
    try:
        with view.open("metrics.csv") as file:
            header = file.readline(MAX_HEADER).decode(errors="replace").strip().split(",")
            first, end = file.tell(), file.seek(0, 2)
            while True:
                start = file.seek(max(first, end - length))
                text = file.read().decode(errors="replace")
                lines = text.split("\n")[start > first : -1]  # both ends may be cut off
                cells_of = (line.split(",") for line in lines)  # no cell is quoted
                rows = [dict(zip(header, cells, strict=True)) for cells in cells_of if len(cells) == len(header)]
                if start == first or length > MOST or newest("eval_mean") is not None:
                    break
                length *= 4
    except OSError as error:
        require_absent("metrics.csv", error)
        return {}
    numbers: dict[str, float | None] = {}
    for name in ("generation", "return_mean", "eval_mean", "seconds"):
        if (cell := newest(name)) is not None:
            number = parse_number(cell)
            whole = int if name == "generation" else float
            numbers[name] = whole(number) if math.isfinite(number) else None
    interval = half_interval(parse_number(newest("eval_std")), parse_number(newest("eval_episodes")))
    if numbers.get("eval_mean") is not None and math.isfinite(interval):
        numbers["eval_interval"] = interval
    return numbers
