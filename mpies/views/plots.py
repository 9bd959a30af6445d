"""Plots of a run's returns.  They are drawn by matplotlib without pyplot, which would hold global state."""

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from mpies.errors import ConfigError, RunError
from mpies.runs.files import write_atomically
from mpies.views.curves import Curves

if TYPE_CHECKING:  # matplotlib is an extra, and takes long to import
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = npt.NDArray[np.float64]

# Okabe and Ito's colours, which colour-blind readers can tell apart (https://jfly.uni-koeln.de/color/).
BLUE, ORANGE, GREEN, RED = "#0072B2", "#E69F00", "#009E73", "#D55E00"
COLOURS = (BLUE, ORANGE, GREEN, "#CC79A7", RED, "#56B4E9", "#000000")
MARKERS = "osD^vPX"

# Names of horizontal axes to (column of metrics.csv, label).
AXES = {
    "time": ("seconds", "training time ({unit})"),
    "iteration": ("generation", "generation"),
    "steps": ("steps", "environment steps"),
}
WIDE, NARROW = 8.0, 4.0  # inches, for a page and for a phone


def new_figure(width: float, title: str) -> "tuple[Figure, Axes]":
    """An empty figure, `width` inches wide, and its axes.  Raises ConfigError where matplotlib is not installed."""
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError:
        raise ConfigError('pictures need matplotlib, which is not installed: pip install "mpies[plots]"') from None
    is_narrow = width < 6
    with rc_context({"font.size": 9 if is_narrow else 10}):
        figure = Figure((width, 3.2 if is_narrow else 4.2), layout="constrained", dpi=120)
        axes = figure.subplots()
    figure.suptitle(title, fontsize=9 if is_narrow else 11)
    axes.grid(color="0.9")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def scale_axis(axis: str, values: Sequence[Floats]) -> tuple[str, float]:
    """The label of an axis of AXES, and the number to divide its values by.

    Times are shown in seconds, minutes or hours, depending on the longest of the `values`.
    """
    unit, size = "s", 1.0
    if axis == "time":
        longest = max((np.max(one, initial=0) for one in values), default=0)
        unit, size = ("h", 3600.0) if longest > 7200 else ("min", 60.0) if longest > 180 else ("s", 1.0)
    return AXES[axis][1].format(unit=unit), size


def format_ticks(axes: "Axes", axis: str) -> None:
    """Write 2,000,000 steps as 2 M."""
    if axis == "steps":
        from matplotlib.ticker import EngFormatter

        axes.xaxis.set_major_formatter(EngFormatter())


def draw_return(
    curves: Curves,
    axis: str,
    width: float = WIDE,
    beside: Sequence[tuple[str, Sequence[tuple[float, float]]]] = (),
) -> "Figure":
    """A plot of the return against an axis of AXES.

    It shows the members' mean, minimum and maximum, the evaluations with their confidence interval, and the target.

    beside: curves from elsewhere on the same axis, each a name and its points (x, return).
    """
    figure, axes = new_figure(width, curves.title)
    column, at = curves[AXES[axis][0]], curves.is_evaluated
    label, size = scale_axis(axis, [column])
    x, low, high = column / size, curves["return_min"], curves["return_max"]
    axes.fill_between(x, low, high, color=BLUE, alpha=0.15, linewidth=0, label="members, min to max")
    axes.plot(x, curves["return_mean"], color=BLUE, linewidth=1, label="members, mean")
    if at.any():
        style: dict[str, Any] = {"color": RED, "marker": "o", "markersize": 3.5, "linewidth": 1.2, "capsize": 2}
        means, interval = curves["eval_mean"][at], curves.interval[at]
        axes.errorbar(x[at], means, interval, label="evaluation, 95 % interval", **style)
    if curves.target is not None:
        axes.axhline(curves.target, color="black", linestyle="--", linewidth=1, label=f"target {curves.target:g}")
    others = [np.array(points, float) for _, points in beside]  # each (points, 2)
    for (name, _), points, marker in zip(beside, others, MARKERS[1:], strict=False):
        axes.plot(points[:, 0] / size, points[:, 1], color=GREEN, marker=marker, markersize=4, label=name)
    axes.set_xlabel(label)
    axes.set_ylabel("return of an episode")
    axes.set_ylim(*_return_limits(curves, [points[:, 1] for points in others]))
    format_ticks(axes, axis)
    figure.legend(loc="outside lower center", ncols=2 if width < 6 else 4, frameon=False, fontsize=8)
    return figure


def _return_limits(curves: Curves, others: Sequence[Floats]) -> tuple[float, float]:
    """The lower and upper end of the vertical axis.

    All means, evaluations, the target and the `others` fit between them.  The most extreme 5 % of the members'
    minima and of their maxima need not: a single bad episode would flatten the curves.
    """
    low, high = curves["return_min"], curves["return_max"]
    target = np.array([np.nan if curves.target is None else curves.target])
    parts = [curves["return_mean"], curves["eval_mean"], target, *others]
    if np.isfinite(low).any():
        parts += [np.nanpercentile(low, [5, 100]), np.nanpercentile(high, [0, 95])]
    values = np.concatenate(parts)
    values = values[np.isfinite(values)]
    bottom, top = (values.min(), values.max()) if len(values) else (0.0, 1.0)
    margin = 0.05 * (top - bottom) or 1.0
    return bottom - margin, top + margin


def render(figure: "Figure", kind: str = "png") -> bytes:
    """A figure as the content of a "png" or "svg" file.  The same figure gives the same bytes."""
    from matplotlib import rc_context

    out = io.BytesIO()
    with rc_context({"svg.hashsalt": "mpies"}):
        figure.savefig(out, format=kind, metadata={"Date": None} if kind == "svg" else {"Software": None})
    return out.getvalue()


def write_plots(
    path: Path, curves: Curves, width: float = WIDE, may_write: Callable[[], bool] = lambda: True
) -> list[Path]:
    """Write reward_vs_time.png, reward_vs_iteration.png and reward_vs_steps.png into the run at `path`.

    may_write: asked before each file is written; False ends the work.  Returns the paths of the files written.
    """
    written = []
    for axis in AXES:
        content = render(draw_return(curves, axis, width))
        if not may_write():
            break
        written.append(path / f"reward_vs_{axis}.png")
        write_file(written[-1], content)
    return written


def write_file(path: Path, content: bytes) -> None:
    """Write a file that can be computed again, so it is not synced.  Raises RunError where it cannot be written."""
    try:
        write_atomically(path, content, sync=False)
    except OSError as error:
        raise RunError(f"{path}: cannot be written ({error.strerror})") from None
