"""Compare configs over several seeds each, so that a difference can be told from chance: the figures."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mpies.core.errors import ConfigError
from mpies.core.text import counted
from mpies.report.comparison_table import write_tables
from mpies.report.figures import (
    AXES,
    COLOURS,
    MARKERS,
    WIDE,
    draw_target,
    format_ticks,
    new_panels,
    paper_style,
    plain_text,
    scale_axis,
    scale_returns,
    write_figure,
)
from mpies.report.run_groups import RunGroup, group_by_task
from mpies.report.seeds import BANDS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

POINTS = 100  # of a curve


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

    A group has the same colour in all panels.  band: one of BANDS.  scale: one of figures.SCALES.
    machine: where the runs were trained, which a plot against time names.
    Raises ConfigError where SciPy is not installed.
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
    label, size = scale_axis(axis, [run[column] for group in groups for run in group.runs])
    drawn = []
    for group in groups:
        if extent := group.extent(column, "eval_mean"):
            x = np.linspace(*extent, POINTS)
            y = group.sample(x, column, "eval_mean")
            drawn.append((group, x, y, *BANDS[band][1](y)))
    targets = sorted({target for group in groups for target in group.targets})
    middles = [middle for *_, middle, _, _ in drawn]
    sign = scale_returns(axes, np.concatenate([*middles, targets]) if middles else np.zeros(0), scale)
    for group, x, y, middle, low, high in drawn:
        number = looks[group.label]
        colour = COLOURS[number % len(COLOURS)]
        if len(y) > 1:
            axes.fill_between(x / size, sign * low, sign * high, color=colour, alpha=0.18, linewidth=0)
        seeds = f"{counted(len(y), 'seed')}"
        marks: dict[str, Any] = {
            "marker": MARKERS[(number + number // len(COLOURS)) % len(MARKERS)],  # another one when colours come again
            "markevery": (3 * number % 20, 20),
            "markersize": 4,
        }
        axes.plot(x / size, sign * middle, color=colour, label=plain_text(f"{group.label} ({seeds})"), **marks)
    for target in targets:
        draw_target(axes, sign * target, "target")
    axes.set_xlabel(label)
    axes.set_ylabel("return, held out" if sign > 0 else "−return, held out")
    format_ticks(axes, axis)


def write_comparison(
    groups: Sequence[RunGroup],
    out: str | Path,
    width: float = WIDE,
    formats: Sequence[str] = ("png",),
    band: str = "bootstrap",
    scale: str = "auto",
    machine: str = "",
) -> Iterator[Path]:
    """Write comparison.csv, .json and .tex, comparison_vs_steps.png and its like into the folder `out`.

    machine: where all runs were trained; without it nothing is told of seconds.  Yields the path of each file when it
    is written.  Raises ConfigError where the folder cannot be made, and RunError where a file cannot be written.
    """
    try:
        Path(out).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--out {out}: cannot be created ({error.strerror}); give another folder") from None
    yield from write_tables(groups, Path(out), machine)
    for axis in ("steps", "iteration", "time"):
        if axis != "time" or machine:
            figure = draw_comparison(groups, axis, width, band, scale, machine)
            yield from write_figure(Path(out) / f"comparison_vs_{axis}", figure, formats)
