"""Compare configs over several seeds each, so that a difference can be told from chance.

Statistics over the seeds, tables for the terminal and as CSV and JSON, and figures.
"""

import json
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mpies.core.errors import ConfigError
from mpies.core.text import counted
from mpies.report.compare.curves import Floats
from mpies.report.compare.ranking import table_as_csv
from mpies.report.compare.run_groups import RunGroup, changed_keys, format_setting, group_by_task
from mpies.report.figures import (
    AXES,
    COLOURS,
    MARKERS,
    TARGET,
    WIDE,
    new_panels,
    paper_style,
    plain_text,
    scale_returns,
    set_axis,
    write_figure,
    write_file,
)
from mpies.runs.formats.metrics import format_return

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Row = dict[str, Any]  # what is known of a group; None where there is no number
POINTS = 100  # of a curve


def interquartile_mean(values: Floats, axis: int = 0) -> Floats:
    """The mean over an axis (the first: the runs) without the lowest and the highest quarter of the values."""
    cut = values.shape[axis] // 4
    kept = np.partition(values, [cut, values.shape[axis] - cut - 1], axis)  # as scipy.stats.trim_mean sums them
    return np.asarray(np.mean(kept.take(range(cut, values.shape[axis] - cut), axis), axis=axis))


def bootstrap_interval(values: Floats) -> tuple[Floats, Floats]:
    """The 95 % interval of `interquartile_mean` over runs (runs, ...), by a percentile bootstrap over the runs.

    As Agarwal et al. 2021 ("Deep Reinforcement Learning at the Edge of the Statistical Precipice") recommend for few
    seeds.  The same values give the same interval.  Of a single run it is that run.
    """
    random, runs = np.random.default_rng(0), len(values)
    batches = (values[random.integers(0, runs, (200, runs))] for _ in range(10))  # a curve takes much memory
    means = np.concatenate([interquartile_mean(batch, axis=1) for batch in batches])
    low, high = np.percentile(means, [2.5, 97.5], axis=0)
    return low, high


# Bands of figures: their words, and the line over the runs (runs, points) with the lower and upper end of its band.
BANDS: dict[str, tuple[str, Callable[[Floats], tuple[Floats, Floats, Floats]]]] = {
    "bootstrap": (
        "interquartile mean over seeds, 95 % bootstrap interval",
        lambda values: (interquartile_mean(values), *bootstrap_interval(values)),
    ),
    "range": (
        "mean over seeds, from the worst to the best seed",
        lambda values: (values.mean(axis=0), values.min(axis=0), values.max(axis=0)),
    ),
}


def describe_group(group: RunGroup, machine: str = "") -> Row:
    """What is known of a group.

    iqm, low, high: interquartile mean of the runs' newest evaluations and its 95 % bootstrap interval.  steps, seconds:
    until the target was reached, median over the solved runs; seconds only where the machine is named.
    """
    final = group.final()[np.isfinite(group.final())]
    row: Row = {"task": group.task, "config": group.label, "runs": len(group.runs)}
    row["seeds"] = [run.config.get("seed") for run in group.runs]
    row["solved"] = len(group.solved) if group.targets else None
    row |= dict.fromkeys(("iqm", "low", "high", "median", "quartile_1", "quartile_3", "min", "max"))
    if len(final):
        low, high = bootstrap_interval(final[:, None])
        row |= {"iqm": interquartile_mean(final[:, None]).item(), "low": low.item(), "high": high.item()}
        names = ("median", "quartile_1", "quartile_3", "min", "max")
        row |= zip(names, np.percentile(final, [50, 25, 75, 0, 100]).tolist(), strict=True)
    row["steps"] = group.at_target("steps")
    if machine:
        row["seconds"] = group.at_target("seconds")
    return row


def tabulate(groups: Sequence[RunGroup], machine: str = "") -> list[tuple[str, ...]]:
    """Headings, then a row of text for each group."""
    has_tasks = len(group_by_task(groups)) > 1
    heads = ["config", "runs", "solved", "evaluation, IQM", "95 % interval", "min to max", "steps to target"]
    table = [(*["task"] * has_tasks, *heads, *([f"seconds on {machine}"] if machine else []))]
    for group in groups:
        row = describe_group(group, machine)
        solved = "no target" if row["solved"] is None else f"{row['solved']} of {row['runs']}"
        cells = [row["config"], str(row["runs"]), solved, "-" if row["iqm"] is None else format_return(row["iqm"])]
        for low, high in (("low", "high"), ("min", "max")):
            is_known = row["runs"] > 1 and row["iqm"] is not None
            cells.append(f"{format_return(row[low])} to {format_return(row[high])}" if is_known else "-")
        cells.append("-" if row["steps"] is None else f"{row['steps']:,.0f}")
        if machine:
            cells.append("-" if row["seconds"] is None else f"{row['seconds']:,.1f}")
        table.append((*[row["task"]] * has_tasks, *cells))
    return table


def as_csv(groups: Sequence[RunGroup], machine: str = "") -> str:
    """A line for each group: what is known of it, then the settings in which the groups differ."""
    keys = changed_keys([group.settings for group in groups])
    rows = [describe_group(group, machine) for group in groups]
    columns = [*(rows[0] if rows else ()), *keys]
    for group, row in zip(groups, rows, strict=True):
        settings = {key: format_setting(group.settings[key]) for key in keys if key in group.settings}
        row |= {"seeds": " ".join(map(str, row["seeds"])), **settings}
    return table_as_csv(columns, rows)


def as_json(groups: Sequence[RunGroup], machine: str = "") -> str:
    """All groups with their settings, and with the results of each of their runs."""
    found = []
    for group in groups:
        results = []
        for run, final in zip(group.runs, group.final().tolist(), strict=True):
            row = {"run": str(run.path), "seed": run.config.get("seed"), "ended": run.reason or None}
            row |= {"generations": int(run["generation"][-1]), "steps": int(run["steps"][-1])}
            row |= {"seconds": float(run["seconds"][-1])} if machine else {}
            results.append({**row, "evaluation": None if math.isnan(final) else final})
        found.append({**describe_group(group, machine), "settings": group.settings, "results": results})
    return json.dumps({"machine": machine or None, "groups": found}, indent=1, default=str) + "\n"


@paper_style()
def draw_comparison(
    groups: Sequence[RunGroup],
    axis: str,
    width: float = WIDE,
    band: str = "bootstrap",
    scale: str = "auto",
    machine: str = "",
) -> "Figure":
    """A plot of evaluations against an axis of AXES, with a panel for each task.

    A group has the same colour in all panels.  band: one of BANDS.  scale: auto, linear or log.
    machine: where the runs were trained, which a plot against time names.
    """
    tasks = group_by_task(groups)
    place = f"; trained on {machine}" if machine and axis == "time" else ""
    figure, panels = new_panels(width, BANDS[band][0] + place, len(tasks))
    looks = {label: number for number, label in enumerate(dict.fromkeys(group.label for group in groups))}
    for (task, inside), axes in zip(tasks.items(), panels, strict=True):
        axes.set_title(plain_text(task))
        _draw_task(axes, inside, axis, band, scale, looks)
    handles: dict[str, Any] = {}
    for axes in panels:
        for handle, name in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(name, handle)
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=1 if width < 6 else 2)
    return figure


def _draw_task(
    axes: "Axes", groups: Sequence[RunGroup], axis: str, band: str, scale: str, looks: dict[str, int]
) -> None:
    """Draw the groups of one task.  looks: labels to numbers of colours."""
    column = AXES[axis][0]
    size = set_axis(axes, axis, [run[column] for group in groups for run in group.runs])
    drawn = []
    for group in groups:
        if extent := group.extent(column, "eval_mean"):
            x = np.linspace(*extent, POINTS)
            y = group.sample(x, column, "eval_mean")
            drawn.append((group, x, y, *BANDS[band][1](y)))
    targets = sorted({target for group in groups for target in group.targets})
    middles = [middle for *_, middle, _, _ in drawn]
    scale_returns(axes, np.concatenate([*middles, targets]) if middles else np.zeros(0), scale)
    for group, x, y, middle, low, high in drawn:
        number = looks[group.label]
        colour = COLOURS[number % len(COLOURS)]
        if len(y) > 1:
            axes.fill_between(x / size, low, high, color=colour, alpha=0.18, linewidth=0)
        seeds = f"{counted(len(y), 'seed')}"
        marks: dict[str, Any] = {
            "marker": MARKERS[(number + number // len(COLOURS)) % len(MARKERS)],  # another one when colours come again
            "markevery": (3 * number % 20, 20),
            "markersize": 4,
        }
        axes.plot(x / size, middle, color=colour, label=plain_text(f"{group.label} ({seeds})"), **marks)
    for target in targets:
        axes.axhline(target, label="target", **TARGET)
    axes.set_ylabel("return, held out")


def write_comparison(
    groups: Sequence[RunGroup],
    out: str | Path,
    width: float = WIDE,
    formats: Sequence[str] = ("png",),
    band: str = "bootstrap",
    scale: str = "auto",
    machine: str = "",
) -> Iterator[Path]:
    """Write comparison.csv and .json, comparison_vs_steps.png and its like into the folder `out`.

    machine: where all runs were trained; without it nothing is told of seconds.  Yields the path of each file when it
    is written.  Raises ConfigError where the folder cannot be made, and RunError where a file cannot be written.
    """
    try:
        Path(out).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--out {out}: cannot be created ({error.strerror}); give another folder") from None
    for kind, make in (("csv", as_csv), ("json", as_json)):
        file = Path(out) / f"comparison.{kind}"
        write_file(file, make(groups, machine).encode())
        yield file
    for axis in ("steps", "iteration", "time"):
        if axis != "time" or machine:
            figure = draw_comparison(groups, axis, width, band, scale, machine)
            yield from write_figure(Path(out) / f"comparison_vs_{axis}", figure, formats)
