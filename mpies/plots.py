"""Pictures of runs, by matplotlib without its global state: each function returns a Figure."""

import io

import numpy as np

from mpies import store
from mpies.config import ConfigError

# Okabe and Ito's colours, which stay apart for colour-blind readers (https://jfly.uni-koeln.de/color/).
BLUE, ORANGE, GREEN, RED = "#0072B2", "#E69F00", "#009E73", "#D55E00"
COLOURS = (BLUE, ORANGE, GREEN, "#CC79A7", RED, "#56B4E9", "#000000")
MARKERS = "osD^vPX"

# Name of a picture's horizontal axis to (column, label).
AXES = {
    "time": ("seconds", "training time ({unit})"),
    "iteration": ("generation", "generation"),
    "steps": ("steps", "environment steps"),
}
WIDE, NARROW = 8.0, 4.0  # inches: a page, a telephone


def new_figure(width, title, panels=1):
    """A Figure and its axes (one, or a list of several side by side)."""
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError:
        raise ConfigError('pictures need matplotlib, which is not installed: pip install "mpies[plots]"') from None
    with rc_context({"font.size": 9 if width < 6 else 10}):
        figure = Figure((width, 3.2 if width < 6 else 4.2), layout="constrained", dpi=120)
        axes = figure.subplots(1, panels)
    figure.suptitle(title, fontsize=9 if width < 6 else 11)
    for one in np.ravel(axes):
        one.grid(color="0.9")
        one.set_axisbelow(True)
        one.spines[["top", "right"]].set_visible(False)
    return figure, axes


def in_units(axis, values):
    """(the axis' label, what to divide by) such that hours are not told in seconds."""
    unit, size = "s", 1.0
    if axis == "time":
        longest = max((np.max(one, initial=0) for one in values), default=0)
        unit, size = ("h", 3600.0) if longest > 7200 else ("min", 60.0) if longest > 180 else ("s", 1.0)
    return AXES[axis][1].format(unit=unit), size


def number_axis(axes, axis):
    """Write 2,000,000 steps as 2 M."""
    if axis == "steps":
        from matplotlib.ticker import EngFormatter

        axes.xaxis.set_major_formatter(EngFormatter())


def draw_return(curves, axis, width=WIDE, beside=()):
    """Return against an axis of AXES: members (mean, min to max), evaluations with their interval, the target.

    beside: curves of others on the same axis, (name, [(x, return), ...]) each.
    """
    figure, axes = new_figure(width, curves.title)
    label, size = in_units(axis, [curves[AXES[axis][0]]])
    x, at = curves[AXES[axis][0]] / size, curves.evaluated
    low, high = curves["return_min"], curves["return_max"]
    axes.fill_between(x, low, high, color=BLUE, alpha=0.15, linewidth=0, label="members, min to max")
    axes.plot(x, curves["return_mean"], color=BLUE, linewidth=1, label="members, mean")
    if at.any():
        means, interval = curves["eval_mean"][at], curves.interval[at]
        style = {"color": RED, "marker": "o", "markersize": 3.5, "linewidth": 1.2, "capsize": 2}
        axes.errorbar(x[at], means, interval, label="evaluation, 95 % interval", **style)
    if curves.target is not None:
        axes.axhline(curves.target, color="black", linestyle="--", linewidth=1, label=f"target {curves.target:g}")
    others = [np.array(points, float) for _, points in beside]
    for (name, _), points, marker in zip(beside, others, MARKERS[1:], strict=False):
        axes.plot(points[:, 0] / size, points[:, 1], color=GREEN, marker=marker, markersize=4, label=name)
    axes.set_xlabel(label)
    axes.set_ylabel("return of an episode")
    axes.set_ylim(*_limits(curves, low, high, [points[:, 1] for points in others]))
    number_axis(axes, axis)
    below = {"loc": "outside lower center", "ncols": 2 if width < 6 else 4, "frameon": False, "fontsize": 8}
    figure.legend(**below)
    return figure


def _limits(curves, low, high, others):
    """The vertical range: all means, evaluations and others, and of the extremes all but the wildest twentieth."""
    inner = [curves["return_mean"], curves["eval_mean"], [np.nan if curves.target is None else curves.target], *others]
    inner += [np.nanpercentile(low, [5, 100]), np.nanpercentile(high, [0, 95])] if np.isfinite(low).any() else []
    inner = np.concatenate(inner)
    inner = inner[np.isfinite(inner)]
    bottom, top = (inner.min(), inner.max()) if len(inner) else (0.0, 1.0)
    margin = 0.05 * (top - bottom) or 1.0
    return bottom - margin, top + margin


def image(figure, kind="png"):
    """A Figure as the bytes of a png or svg file; the same Figure gives the same bytes."""
    from matplotlib import rc_context

    out = io.BytesIO()
    with rc_context({"svg.hashsalt": "mpies"}):
        figure.savefig(out, format=kind, metadata={"Date": None} if kind == "svg" else {"Software": None})
    return out.getvalue()


def write_pictures(path, curves, width=WIDE, allowed=lambda: True):
    """Write reward_vs_time.png, reward_vs_iteration.png and reward_vs_steps.png into a run; returns their paths.

    allowed: asked before each is put in place.
    """
    written = []
    for axis in AXES:
        content = image(draw_return(curves, axis, width))
        if not allowed():
            break
        written.append(path / f"reward_vs_{axis}.png")
        write_file(written[-1], content)
    return written


def write_file(path, content):
    """store.write_atomically for what can be drawn again.  Raises StoreError where it cannot be written."""
    try:
        store.write_atomically(path, content, sync=False)
    except OSError as error:
        raise store.StoreError(f"{path}: cannot be written ({error.strerror})") from None
