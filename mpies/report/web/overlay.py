"""Groups of runs overlaid, as values for JSON: their curves on a common axis, their settings and their results."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from mpies.report.comparison_table import describe_group
from mpies.report.curves import Curves, Floats
from mpies.report.run_groups import RunGroup, changed_keys, format_setting, group_by_task, group_runs, shorten_keys
from mpies.runs.metrics import round_number

AXES = ("generation", "seconds", "steps")
# Columns of metrics.csv that can be drawn.
DRAWN = ("eval_mean", "return_mean", "length_mean", "eval_length", "sigma", "update_ratio", "steps_per_second")
MAX_POINTS = 200  # of a curve
MAX_NUMBERS = 12_000  # of all curves together, so that an answer stays below 50 kB; there are 25 points at least
MAX_KEYS = 30  # columns of settings


def overlay(runs: Sequence[Curves], axis: str, drawn: str, with_runs: bool, also: Sequence[str] = ()) -> dict[str, Any]:
    """The runs in groups, each a median over its seeds between the quartiles.

    runs: the name of each is its path.  axis: one of AXES.  drawn: one of DRAWN; "" for the evaluations, or the
    members' mean return where nothing was evaluated.  with_runs: also a curve of each run.
    also: as for `read_settings`.
    repeated: how many runs are left out, since another one has the same config and seed.
    """
    available = [name for name in DRAWN if any(np.isfinite(run.columns.get(name, [])).any() for run in runs)]
    drawn = drawn if drawn in available else next(iter(available), "return_mean")
    groups = group_runs(runs, also)
    keys = [key for key in changed_keys([group.settings for group in groups]) if key != "environment.id"]  # the task's
    short = shorten_keys(keys)
    curves = 3 * len(groups) + (len(runs) if with_runs else 0)
    points = min(MAX_POINTS, max(25, MAX_NUMBERS // max(1, curves)))
    tasks = []
    for task, inside in group_by_task(groups).items():
        grid = _make_grid(inside, axis, drawn, points)
        lines = [{"group": groups.index(one), **_draw(one, grid, axis, drawn, with_runs)} for one in inside]
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
        "repeated": sum(len(group.left_out) for group in groups),
        "keys": [{"key": key, "short": short[key]} for key in keys[:MAX_KEYS]],
        "hidden_keys": max(0, len(keys) - MAX_KEYS),
        "groups": [_describe(group, keys[:MAX_KEYS]) for group in groups],
        "tasks": tasks,
    }


def _describe(group: RunGroup, keys: Sequence[str]) -> dict[str, Any]:
    """A row of the table: what `mpies compare` tells of the group, its runs' names and its settings."""
    row = describe_group(group, with_interval=False)
    row = {name: round_number(value, 5) if isinstance(value, float) else value for name, value in row.items()}
    generations = np.median([run["generation"][-1] for run in group.runs])
    return {
        **row,
        "names": [str(run.path) for run in group.runs],
        "generations": round_number(float(generations), 6),
        "settings": {key: format_setting(group.settings[key]) for key in keys if key in group.settings},
    }


def _make_grid(groups: Sequence[RunGroup], axis: str, drawn: str, points: int) -> Floats:
    """The values of the axis on which the curves of a task are drawn; none where no run has a value."""
    extents = [extent for extent in (group.extent(axis, drawn) for group in groups) if extent]
    if not extents:
        return np.zeros(0)
    first, last = min(start for start, _ in extents), max(stop for _, stop in extents)
    grid = np.linspace(first, last, points) if last > first else np.array([first])
    return np.unique(grid.round()) if axis == "generation" else grid


def _draw(group: RunGroup, grid: Floats, axis: str, drawn: str, with_runs: bool) -> dict[str, Any]:
    """The median of a group and its quartiles on the grid, and a curve of each run; {} without values."""
    values = _sample(group, grid, axis, drawn)
    if not len(values):
        return {}
    low, middle, high = np.percentile(values, [25, 50, 75], axis=0)
    curve: dict[str, Any] = {"low": round_numbers(low, 4), "mid": round_numbers(middle, 4)}
    curve["high"] = round_numbers(high, 4)
    if with_runs:
        alone = [RunGroup(group.task, group.label, group.settings, [run]) for run in group.runs]
        curve["runs"] = [round_numbers(line, 4) for one in alone for line in _sample(one, grid, axis, drawn)]
    return curve


def _sample(group: RunGroup, grid: Floats, axis: str, drawn: str) -> Floats:
    """(runs, points) the values of those runs that have any; NaN beside the group's extent, but for one point."""
    extent = group.extent(axis, drawn)
    if not extent:
        return np.zeros((0, len(grid)))
    first, last = (np.abs(grid - end).argmin() for end in extent)
    values = group.sample(grid, axis, drawn)
    values[:, :first] = values[:, last + 1 :] = np.nan
    return values


def round_numbers(values: Floats, digits: int) -> list[float | None]:
    """So many digits of each number; None for those that are not finite, which JSON lacks."""
    return [round_number(value, digits) for value in values.tolist()]
