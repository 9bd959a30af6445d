"""Groups of runs overlaid, as values for JSON: their curves on a common axis, their settings and their results."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from mpies.report.curves import Curves, Floats
from mpies.report.run_groups import Group, changed_keys, format_setting, group_by_task, group_runs, shorten_keys
from mpies.runs.metrics import round_number

AXES = ("generation", "seconds", "steps")
# Columns of metrics.csv that can be drawn.
DRAWN = ("eval_mean", "return_mean", "length_mean", "eval_length", "sigma", "update_ratio", "steps_per_second")
BANDS = ("quartiles", "range")
MAX_POINTS = 200  # of a curve
MAX_NUMBERS = 12_000  # of all curves together, so that an answer stays below 50 kB; there are 25 points at least
MAX_KEYS = 30  # columns of settings


def overlay(
    runs: Sequence[Curves], axis: str, drawn: str, band: str, with_runs: bool, also: Sequence[str] = ()
) -> dict[str, Any]:
    """The runs in groups, each a median over its seeds within a band.

    runs: the name of each is its path.  axis: one of AXES.  drawn: one of DRAWN; "" for the evaluations, or the
    members' mean return where nothing was evaluated.  band: one of BANDS.  with_runs: also a curve of each run.
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
    numbers = {id(group): number for number, group in enumerate(groups)}
    return {
        "drawn": drawn,
        "available": available,
        "repeated": sum(len(group.left_out) for group in groups),
        "keys": [{"key": key, "short": short[key]} for key in keys[:MAX_KEYS]],
        "hidden_keys": max(0, len(keys) - MAX_KEYS),
        "groups": [_describe(group, keys[:MAX_KEYS]) for group in groups],
        "tasks": [
            {
                "task": task,
                **_draw(inside, [numbers[id(group)] for group in inside], axis, drawn, band, points, with_runs),
            }
            for task, inside in group_by_task(groups).items()
        ],
    }


def _describe(group: Group, keys: Sequence[str]) -> dict[str, Any]:
    """A row of the table: the group's runs, settings and results."""
    final = group.final()[np.isfinite(group.final())]
    low, middle, high = round_numbers(np.percentile(final, [25, 50, 75]), 5) if len(final) else [None] * 3
    return {
        "task": group.task,
        "label": group.label,
        "runs": [{"name": str(run.path), "seed": run.config.get("seed")} for run in group.runs],
        "settings": [format_setting(group.settings[key]) if key in group.settings else "" for key in keys],
        "median": middle,
        "quartiles": [low, high],
        "solved": len(group.solved()) if group.targets else None,
        "generations": round_numbers(np.median([run["generation"][-1:] for run in group.runs], axis=0), 6),
        "steps_to_target": float(np.median(group.at_target("steps"))) if group.solved() else None,
    }


def _draw(
    groups: Sequence[Group], numbers: Sequence[int], axis: str, drawn: str, band: str, points: int, with_runs: bool
) -> dict[str, Any]:
    """The curves of groups of one task on a common grid; null where a group has no values."""
    extents = [group.extent(axis, drawn) for group in groups]
    known = [extent for extent in extents if extent]
    targets = sorted({target for group in groups for target in group.targets})
    if not known:
        return {"targets": targets, "x": [], "curves": []}
    first, last = min(start for start, _ in known), max(stop for _, stop in known)
    grid = np.linspace(first, last, points) if last > first else np.array([first])
    if axis == "generation":
        grid = np.unique(grid.round())
    curves = []
    for number, group, extent in zip(numbers, groups, extents, strict=True):
        if not extent:
            continue
        shown = _nearest(grid, *extent)
        low, middle, high = _summarize(group.sample(grid[shown], axis, drawn), band)
        curve: dict[str, Any] = {"group": number}
        curve |= {name: _spread(grid, shown, one) for name, one in (("low", low), ("mid", middle), ("high", high))}
        if with_runs:
            curve["runs"] = []
            for run in group.runs:
                alone = Group(group.task, group.label, group.settings, [run])
                own = alone.extent(axis, drawn)
                if own:
                    at = _nearest(grid, *own)
                    curve["runs"].append(_spread(grid, at, alone.sample(grid[at], axis, drawn)[0]))
        curves.append(curve)
    return {"targets": targets, "x": round_numbers(grid, 6), "curves": curves}


def _summarize(values: Floats, band: str) -> tuple[Floats, Floats, Floats]:
    """Lower end of the band, median and upper end (points,) of values (runs, points)."""
    ends = (0, 100) if band == "range" else (25, 75)
    low, middle, high = np.percentile(values, [ends[0], 50, ends[1]], axis=0)
    return low, middle, high


def _nearest(grid: Floats, start: float, stop: float) -> npt.NDArray[np.bool_]:
    """(points,) which points of the grid lie between two values, or next to them; at least one does."""
    first, last = np.abs(grid - start).argmin(), np.abs(grid - stop).argmin()
    places = np.arange(len(grid))
    return (places >= first) & (places <= last)


def _spread(grid: Floats, at: npt.NDArray[np.bool_], values: Floats) -> list[float | None]:
    """The values (k,) in the places (points,) where `at` is true, null elsewhere."""
    spread = np.full(len(grid), np.nan)
    spread[at] = values
    return round_numbers(spread, 4)


def round_numbers(values: Floats, digits: int) -> list[float | None]:
    """So many digits of each number; None for those that are not finite, which JSON lacks."""
    return [round_number(value, digits) for value in values.tolist()]
