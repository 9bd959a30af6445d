"""Groups of runs overlaid, as values for JSON: their curves on a common axis.  `mpies compare` has their results."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from mpies.report.curves import Curves, Floats
from mpies.report.run_groups import RunGroup, group_by_task, group_runs
from mpies.runs.metrics import round_number

AXES = ("generation", "seconds", "steps")
# Columns of metrics.csv that can be drawn.
DRAWN = ("eval_mean", "return_mean", "length_mean", "eval_length", "sigma", "update_ratio", "steps_per_second")
MAX_POINTS = 200  # of a curve
MAX_NUMBERS = 12_000  # of all curves together, so that an answer stays below 50 kB; there are 25 points at least


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
    """The label and seeds of a group, its median and its quartiles on the grid; {} without values.

    There is nothing beside the group's extent, but for one point.
    """
    extent = group.extent(axis, drawn)
    if not extent:
        return {}
    first, last = (np.abs(grid - end).argmin() for end in extent)
    values = group.sample(grid, axis, drawn)
    values[:, :first] = values[:, last + 1 :] = np.nan
    low, middle, high = (round_numbers(line, 4) for line in np.percentile(values, [25, 50, 75], axis=0))
    seeds = [run.config.get("seed") for run in group.runs]
    return {"label": group.label, "seeds": seeds, "low": low, "mid": middle, "high": high}


def round_numbers(values: Floats, digits: int) -> list[float | None]:
    """So many digits of each number; None for those that are not finite, which JSON lacks."""
    return [round_number(value, digits) for value in values.tolist()]
