"""Plots of a run's returns.  They are drawn by matplotlib without pyplot, which would hold global state."""

import contextlib
import io
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mpies.comm.cores import released
from mpies.core.errors import RunError, import_extra
from mpies.report.compare.curves import Curves, Floats
from mpies.runs.files import write_atomically, writing

if TYPE_CHECKING:  # matplotlib is an extra, and takes long to import
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, which colour-blind readers can tell apart (https://jfly.uni-koeln.de/color/).
BLUE, ORANGE, GREEN, RED = "#0072B2", "#E69F00", "#009E73", "#D55E00"
COLOURS = (BLUE, ORANGE, GREEN, "#CC79A7", RED, "#56B4E9", "#000000")
MARKERS = "osD^vPX"

TARGET: dict[str, Any] = {"color": "black", "linestyle": "--", "linewidth": 1}  # its line

# Names of horizontal axes to (column of metrics.csv, label).
AXES = {
    "time": ("seconds", "training time ({unit})"),
    "iteration": ("generation", "generation"),
    "steps": ("steps", "environment steps"),
}
WIDE = 8.0  # inches

WIDE_SPAN = 200  # ratio of the largest to the smallest return from which an axis is logarithmic by itself
STYLE = Path(__file__).with_name("mpies.mplstyle")
_NONE: Floats = np.zeros(0)
# Beginnings of variables that tell a process that it is a rank, or one of a supervisor's.
_OF_RANKS = ("OMPI_", "PMIX_", "PMI_", "PRTE_", "SLURM_", "MPICH_", "HYDRA_", "I_MPI_", "MPIES_JOB")


@contextlib.contextmanager
def paper_style() -> Iterator[None]:
    """Draw in the style of mpies.mplstyle; also a decorator.  Raises ConfigError where matplotlib is not installed."""
    matplotlib = import_extra("plots", "pictures need matplotlib, which is not installed", "matplotlib")
    with matplotlib.rc_context(fname=str(STYLE)):
        yield


def plain_text(text: str) -> str:
    """A text of the user's for matplotlib, which would take what is between two dollar signs for a formula."""
    return text.replace("$", r"\$")


def new_panels(width: float, title: str, count: int = 1) -> "tuple[Figure, list[Axes]]":
    """An empty figure, `width` inches wide, and `count` axes in it, at most three in a row; in `paper_style`."""
    columns = min(count, 1 if width < 6 else 2 if count in (2, 4) else 3)
    rows = -(-count // columns)
    single = 3.2 if width < 6 else 4.2
    height = single if rows == columns == 1 else rows * min(single, 0.75 * width / columns + 0.5) + 0.6
    from matplotlib.figure import Figure

    figure = Figure((width, height), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel().tolist()
    figure.suptitle(plain_text(title))
    for unused in axes[count:]:
        unused.remove()
    return figure, axes[:count]


def scale_returns(axes: "Axes", values: Floats, wanted: str = "auto", extremes: Floats = _NONE) -> None:
    """Set the scale of a vertical axis of returns.

    values: means of returns.  extremes: what else is drawn.  wanted: auto, linear or log; auto is logarithmic if
    all have one sign and the values span more than a factor of WIDE_SPAN, as those of test functions do.  A logarithmic
    axis is linear near 0, so that it has a place for every return.
    """
    values = values[np.isfinite(values) & (values != 0)]
    sizes = np.abs(values)
    has_one_sign = len({*np.sign([*values, *extremes[np.isfinite(extremes) & (extremes != 0)]])}) == 1
    spans = len(values) > 0 and has_one_sign and sizes.max() / sizes.min() > WIDE_SPAN
    if not len(values) or wanted == "linear" or (wanted == "auto" and not spans):
        return
    smallest = sizes.min() if spans else np.percentile(sizes, 10)
    axes.set_yscale("symlog", linthresh=10.0 ** np.floor(np.log10(smallest)))


def set_axis(axes: "Axes", axis: str, values: Sequence[Floats] = ()) -> float:
    """Label a horizontal axis as one of AXES, with 2,000,000 steps as 2 M.  Returns the number to divide its values by.

    Times are shown in seconds, minutes or hours, depending on the longest of the `values`.
    """
    from matplotlib.ticker import EngFormatter, MaxNLocator

    unit, size = "s", 1.0
    if axis == "time":
        longest = max((np.max(one, initial=0) for one in values), default=0)
        unit, size = ("h", 3600.0) if longest > 7200 else ("min", 60.0) if longest > 180 else ("s", 1.0)
    elif axis == "iteration":
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    else:
        axes.xaxis.set_major_formatter(EngFormatter())
    axes.set_xlabel(AXES[axis][1].format(unit=unit))
    return size


@paper_style()
def draw_return(curves: Curves, axis: str, width: float = WIDE, scale: str = "auto") -> "Figure":
    """A plot of the return against an axis of AXES.

    It shows the members' mean, minimum and maximum, the evaluations with their confidence interval, and the target.

    scale: auto, linear or log.
    """
    figure, [axes] = new_panels(width, curves.title)
    column, at = curves[AXES[axis][0]], curves.is_evaluated
    size = set_axis(axes, axis, [column])
    target = [] if curves.target is None else [curves.target]
    extremes = np.concatenate([curves["return_min"], curves["return_max"], target])
    scale_returns(axes, np.concatenate([curves["return_mean"], curves["eval_mean"][at]]), scale, extremes)
    x = column / size
    axes.fill_between(
        x, curves["return_min"], curves["return_max"], color=BLUE, alpha=0.15, linewidth=0, label="members, min to max"
    )
    axes.plot(x, curves["return_mean"], color=BLUE, linewidth=1, label="members, mean")
    if at.any():
        style: dict[str, Any] = {"color": RED, "marker": "o", "markersize": 3.5, "linewidth": 1.2, "capsize": 2}
        axes.errorbar(x[at], curves["eval_mean"][at], curves.interval[at], label="evaluation, 95 % interval", **style)
    if curves.target is not None:
        axes.axhline(curves.target, label=f"target {curves.target:g}", **TARGET)
    axes.set_ylabel("return of an episode")
    if axes.get_yscale() == "linear":
        axes.set_ylim(*_return_limits(curves))
    figure.legend(loc="outside lower center", ncols=2 if width < 6 else 4)
    return figure


def _return_limits(curves: Curves) -> tuple[float, float]:
    """The ends of the vertical axis: all means, evaluations and the target fit between them.

    The most extreme 5 % of the members' minima and maxima need not: a single bad episode would flatten the curves.
    """
    low, high = curves["return_min"], curves["return_max"]
    target = np.array([np.nan if curves.target is None else curves.target])
    parts = [curves["return_mean"], curves["eval_mean"], target]
    if np.isfinite(low).any():
        parts += [np.nanpercentile(low, [5, 100]), np.nanpercentile(high, [0, 95])]
    values = np.concatenate(parts)
    values = values[np.isfinite(values)]
    bottom, top = (values.min(), values.max()) if len(values) else (0.0, 1.0)
    margin = 0.05 * (top - bottom) or 1.0
    return bottom - margin, top + margin


_NO_DATE: dict[str, dict[str, Any]] = {"png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}


def render(figure: "Figure", kind: str = "png") -> bytes:
    """A figure as the content of a png, pdf or svg.  The same figure gives the same bytes."""
    out = io.BytesIO()
    with paper_style():
        figure.savefig(out, format=kind, metadata=_NO_DATE[kind])
    return out.getvalue()


def write_plots(curves: Curves, width: float, formats: Sequence[str], scale: str) -> Iterator[Path]:
    """Write reward_vs_time.png, reward_vs_iteration.png and reward_vs_steps.png into a run; yields their paths.

    formats: png, pdf or svg.  scale: auto, linear or log.
    """
    for axis in AXES:
        yield from write_figure(curves.path / f"reward_vs_{axis}", draw_return(curves, axis, width, scale), formats)


def draw_in_background(run: Path) -> None:
    """Start `mpies plot` for a run that is over, as a process that nobody waits for and that outlives this one.

    It belongs to a session of its own and holds no stream of this process, so neither the end of mpirun ends it, nor
    does mpirun wait for it.  What it cannot draw is left out: matplotlib may be absent, the run may be deleted at once.
    """
    if os.environ.get("MPIES_PICTURES", "1") == "0":
        return
    environment = {name: value for name, value in os.environ.items() if not name.startswith(_OF_RANKS)}
    command, quiet = [sys.executable, "-P", "-m", "mpies", "plot", str(run)], subprocess.DEVNULL
    with contextlib.suppress(OSError), released():
        process = subprocess.Popen(
            command, env=environment, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True
        )
        # A process that goes on, such as a notebook, must take note of its end.
        threading.Thread(target=process.wait, daemon=True).start()


def write_figure(path: Path, figure: "Figure", formats: Sequence[str]) -> Iterator[Path]:
    """Write a figure as files of these formats; yields the path of each.  path: without the ending."""
    for kind in formats:
        file = path.with_name(f"{path.name}.{kind}")
        write_file(file, render(figure, kind))
        yield file


def write_file(path: Path, content: bytes) -> None:
    """Write a file that can be computed again, so it is not synced.  Raises RunError where it cannot be written."""
    with writing(path, RunError):
        write_atomically(path, content, sync=False)
