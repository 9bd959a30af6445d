"""A report of a run as one HTML file.  It opens from disk, without network and without scripts."""

import base64
import html
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from mpies.config.loading import as_yaml
from mpies.errors import ConfigError
from mpies.runs.metrics import format_return
from mpies.views.curves import Curves, read_curves
from mpies.views.plots import AXES, NARROW, WIDE, draw_return, render, write_file

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem; color: #1a1a1a }
img { width: 100%; height: auto } th { text-align: left; padding-right: 2rem; font-weight: 600; vertical-align: top }
pre { background: #f4f4f4; padding: 1rem; overflow-x: auto; font-size: 14px }
pre.command { white-space: pre-wrap; overflow-wrap: anywhere } h1 { overflow-wrap: anywhere }
@media (max-width: 600px) { th { padding-right: 1rem } h1 { font-size: 1.5rem } }
@media (prefers-color-scheme: dark) { body { background: #14171b; color: #e6e9ed } pre { background: #1b1f25 } }
"""
_REASONS = {
    "": "not complete: it goes on, or was stopped",
    "solved": "solved: the target was reached twice, the second time on fresh episodes",
    "generations": "all generations made",
    "steps": "all steps made",
    "seconds": "all seconds used",
}


def write_report(run: str | Path, out: str | Path | None = None) -> Path:
    """Write the report of a run directory to `out`, by default RUN/report.html.  Returns the path.

    Raises RunError where the run cannot be read or the file cannot be written.
    """
    path = Path(out) if out else Path(run) / "report.html"
    write_file(path, make_report(read_curves(run)).encode())
    return path


def make_report(curves: Curves) -> str:
    """The report as HTML text: results, curves, config and how to reproduce the run."""
    title = html.escape(f"{curves.name}: {curves.title}")
    rows = "".join(f"<tr><th>{name}</th><td>{html.escape(value)}</td></tr>" for name, value in _facts(curves))
    plots = "".join(_plot_element(curves, axis) for axis in AXES)
    config = html.escape(as_yaml(curves.config))
    packages = html.escape(", ".join(f"{name} {version}" for name, version in curves.versions.items()))
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title><style>{_STYLE}</style></head><body>
<h1>{title}</h1>
<table>{rows}</table>
<h2>Return</h2>
{plots}
<h2>How to reproduce it</h2>
<p>Save the configuration below as <code>config.yaml</code>; then, on any number of ranks,</p>
<pre class="command">mpirun -n 2 mpies train config.yaml --out {html.escape(curves.name)}</pre>
<p>gives the same bits with the same builds of the packages on the same type of processor. Computed with
{packages}.</p>
<h2>Configuration</h2>
<pre>{config}</pre>
</body></html>
"""


def summarize(curves: Curves, status: str) -> str:
    """The newest numbers and the curve as a piece of HTML, for a notebook.  status: of the run, in one word.

    Without matplotlib there is no curve.
    """
    rows = "".join(f"<tr><th>{name}</th><td>{html.escape(value)}</td></tr>" for name, value in _facts(curves))
    title = html.escape(f"{curves.name}: {curves.title} ({status})")
    try:
        picture = base64.b64encode(render(draw_return(curves, "steps", WIDE), "png")).decode()
        curve = f'<img src="data:image/png;base64,{picture}" alt="return against steps" style="max-width: 40rem">'
    except ConfigError as error:
        curve = f"<p>{html.escape(str(error))}</p>"
    return (
        f"<div><strong>{title}</strong>{curve}<details><summary>Numbers</summary><table>{rows}</table></details></div>"
    )


def _facts(curves: Curves) -> Iterator[tuple[str, str]]:
    """The rows of the table: a name and its value in words."""
    evaluated = np.flatnonzero(curves.is_evaluated)
    last = {name: values[-1] for name, values in curves.columns.items()}
    ranks = sorted({int(count) for count in curves["ranks"]})
    yield "environment", curves.config["environment"]["id"]
    yield "solver", curves.config["solver"]["kind"]
    yield "seed", str(curves.config["seed"])
    yield "end", _REASONS.get(curves.reason, curves.reason)
    if len(evaluated):
        at = evaluated[-1]
        mean, interval, generation = curves["eval_mean"][at], curves.interval[at], curves["generation"][at]
        episodes = curves["eval_episodes"][at] if "eval_episodes" in last else curves.config["evaluation"]["episodes"]
        yield (
            "final evaluation" if curves.reason else "newest evaluation",
            f"mean return {format_return(mean)}, 95 % confidence {format_return(mean - interval)} to "
            f"{format_return(mean + interval)}, over "
            f"{episodes:.0f} held-out episodes of the search distribution's mean, generation {generation:.0f}",
        )
    if curves.target is not None:
        yield "target", f"{curves.target:g}"
    yield "generations", f"{last['generation']:,.0f}"
    yield "training", f"{last['steps']:,.0f} steps, {last['episodes']:,.0f} episodes, {last['seconds']:,.1f} s"
    yield "ranks", ", ".join(map(str, ranks))
    yield "episodes that failed", f"{curves['failures'].sum():,.0f}"


def _plot_element(curves: Curves, axis: str) -> str:
    """An HTML element with the plot in two widths.  The browser takes the one that fits."""
    wide, narrow = (
        "data:image/svg+xml;base64," + base64.b64encode(render(draw_return(curves, axis, width), "svg")).decode()
        for width in (WIDE, NARROW)
    )
    return (
        f'<picture><source media="(max-width: 600px)" srcset="{narrow}">'
        f'<img src="{wide}" alt="return against {axis}"></picture>\n'
    )
