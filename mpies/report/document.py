"""A report of a run as one HTML file, as an appendix of a paper.  It opens from disk, without network and scripts.

What was trained and on what, its curves, its evaluation, the other seeds, the video, and how to reproduce it.
"""

import base64
import contextlib
import html
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from mpies.config.loading import as_yaml, resolved, validate_config
from mpies.config.trust import find_code
from mpies.core.errors import ConfigError, RunError, UserError
from mpies.core.text import counted
from mpies.report.compare.curves import Curves, read_curves
from mpies.report.compare.run_groups import RunGroup, group_runs, order_of, read_settings, settle_backends
from mpies.report.compare.statistics import describe_group
from mpies.report.figures import WIDE, draw_return, render, write_file
from mpies.report.video import VIDEOS, read_poster
from mpies.runs.formats import hdf5
from mpies.runs.formats.metrics import format_return
from mpies.runs.reader import RunView, find_runs

_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 1.5rem auto; max-width: 54rem; padding: 0 1rem; color: #1a1a1a }
h1 { font-size: 1.5rem; margin: 0; overflow-wrap: anywhere } h2 { font-size: 1.1rem; margin: 1.2rem 0 .3rem }
img, video { width: 100%; height: auto } video { max-width: 28rem } img.curves { background: #fff }
table { border-collapse: collapse; font-size: .95em } p { margin: .4rem 0 }
th { text-align: left; padding-right: 1.5rem; font-weight: 600; vertical-align: top }
table.seeds :is(th, td) { padding: .1rem .8rem .1rem 0; text-align: right }
@page { margin: 12mm }
pre { background: #f4f4f4; padding: .6rem .8rem; overflow-x: auto; font-size: 13px; margin: .4rem 0 }
pre.command, code { white-space: pre-wrap; overflow-wrap: anywhere }
@media (prefers-color-scheme: dark) { body { background: #14171b; color: #e6e9ed } pre { background: #1b1f25 } }
@media print {
  body { font-size: 8pt; line-height: 1.3; margin: 0; max-width: none; color: #000; background: #fff }
  h1 { font-size: 13pt } h2 { font-size: 10pt; margin: .4rem 0 .1rem } p { margin: .15rem 0 }
  pre { font-size: 7pt; columns: 2; margin: .2rem 0; padding: .3rem }
  img.curves { width: 68% } video, details { display: none }
}
"""
LARGEST_VIDEO = 8_000_000  # bytes of a video that a report holds


def write_report(run: str | Path, out: str | Path | None = None) -> Path:
    """Write the report of a run directory to `out`, by default RUN/report.html.  Returns the path.

    Raises RunError where the run cannot be read or the file cannot be written.
    """
    path = Path(out) if out else Path(run) / "report.html"
    curves = read_curves(run)
    finished = curves.path.glob("[!.]*")  # not a video that is being recorded
    videos = [file for file in finished if file.suffix in VIDEOS and file.is_file()]
    newest = max(videos, key=lambda file: file.stat().st_mtime, default=None)
    text = make_report(curves, find_seeds(curves), newest)
    write_file(path, text.encode(errors="backslashreplace"))  # a name in it may not be UTF-8
    return path


def find_seeds(curves: Curves) -> list[Curves]:
    """The runs beside this one, in the same folder, whose configs differ from its own in the seed alone.

    Of several with the same seed, the longest counts.
    """
    folder = curves.path.resolve().parent
    found = [(name, RunView(folder, name).config()) for name in find_runs(folder, depth=1)]
    settings, *others = settle_backends([*map(read_settings, (curves.config, *(config for _, config in found)))])
    runs = []
    for (name, config), other in zip(found, others, strict=True):
        if config.get("seed") != curves.config["seed"] and other == settings:
            with contextlib.suppress(RunError):  # it has no generation yet
                runs.append(read_curves(folder / name))
    return [run for group in group_runs(runs) for run in group.runs]


def make_report(curves: Curves, others: Iterable[Curves] = (), video: Path | None = None) -> str:
    """The report as HTML text.  others: runs with other seeds.  video: of the run."""
    title = html.escape(f"{curves.name}: {curves.title}")
    seeds = sorted([curves, *others], key=lambda run: order_of(run.config["seed"]))
    config = shorten_config(curves.config)
    picture = base64.b64encode(render(draw_return(curves, "steps"), "svg")).decode()
    packages = html.escape(", ".join(f"{name} {version}" for name, version in curves.versions.items()))
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title><style>{_STYLE}</style></head><body>
<h1>{title}</h1>
<h2>What was trained, and on what</h2>
{_table(_list_method(curves))}
<h2>Return</h2>
<img class="curves" src="data:image/svg+xml;base64,{picture}" alt="return against steps">
<p>Members are the policies that a generation samples around the mean. Evaluations play held-out
episodes with the mean itself; bars are 95 % confidence intervals over episodes.</p>
<h2>Evaluation</h2>
{_table(_list_results(curves))}
<h2>Seeds</h2>
{_tell_seeds(seeds)}
<h2>Video</h2>
{_show_video(curves, video)}
<h2>How to reproduce it</h2>
<p>Save this as <code>repeat.yaml</code>; everything else has its default. Then, on any number of ranks,</p>
<pre class="command">mpies train repeat.yaml --ranks 2 --out {html.escape(shlex.quote(curves.name))}</pre>
<p>gives the same bits with the same builds of the packages on the same type of processor: the same column
<code>digest</code> in <code>metrics.csv</code>. Computed with {packages}.</p>
<pre>{html.escape(as_yaml(config))}</pre>
<details><summary>All settings</summary><pre>{html.escape(as_yaml(curves.config))}</pre></details>
</body></html>
"""


def shorten_config(values: dict[str, Any]) -> dict[str, Any]:
    """The keys of a resolved config that differ from their defaults, and all kinds.

    The whole config where this version of mpies does not know it, and the whole solver where its keys are in code,
    which is not run.
    """
    whole = {"solver": values["solver"]} if "solver.kind" in find_code(values) else {}
    known = {key: value for key, value in values.items() if key not in whole}
    try:
        config = validate_config(known, "config.yaml")
        short: dict[str, Any] = config.model_dump(mode="json", exclude_defaults=True)
        _add_kinds(short, known)
        same = resolved(validate_config(short, "config.yaml")) == resolved(config)
        return {**short, **whole} if same else values
    except UserError:
        return values


def _add_kinds(short: dict[str, Any], values: dict[str, Any]) -> None:
    """Add the kinds in `values` to a section of a shortened config, as they decide which keys there are."""
    for key, value in values.items():
        if key == "kind":
            short[key] = value
        elif isinstance(value, dict) and ("kind" in value or isinstance(short.get(key), dict)):
            _add_kinds(short.setdefault(key, {}), value)


def _table(rows: Iterable[tuple[str, str]]) -> str:
    cells = "".join(f"<tr><th>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>" for name, value in rows)
    return f"<table>{cells}</table>"


def _list_method(curves: Curves) -> Iterator[tuple[str, str]]:
    """Environment, policy and solver, with the settings that differ from their defaults."""
    short = shorten_config(curves.config)
    yield "environment", _describe(short.get("environment") or {}, "id")
    policy = _describe(short.get("policy") or {}, "kind") or "of the defaults"
    defaults = ""
    try:
        arrays, _ = hdf5.read(curves.path / "policy.h5")
        policy += f"; {arrays['parameters'].size:,} parameters"
        defaults = _describe_defaults(curves, arrays["parameters"].size)
    except (RunError, KeyError):  # not written yet
        pass
    if curves.config.get("policy"):
        yield "policy", policy
    yield "solver", _describe(short.get("solver") or {}, "kind") + (defaults and f"; by default {defaults}")


def _describe_defaults(curves: Curves, dimension: int) -> str:
    """The solver's values that d parameters decide; '' where this mpies has other keys, or they are in code."""
    if "solver.kind" in find_code(curves.config):
        return ""
    try:
        return validate_config(curves.config, "config.yaml").solver.describe_defaults(dimension)
    except UserError:
        return ""


def _describe(section: dict[str, Any], first: str) -> str:
    """A section of a config in one line, with the value of the key `first` in front."""
    rest = [f"{key} {_flat(value)}" for key, value in section.items() if key != first and value not in ({}, None)]
    return ", ".join([*([str(section[first])] if first in section else []), *rest])


def _flat(value: Any) -> str:
    return f"({_describe(value, 'kind')})" if isinstance(value, dict) else str(value)


def _list_results(curves: Curves) -> Iterator[tuple[str, str]]:
    """The newest evaluation, how the run ended, and how much was trained."""
    yield "seed", str(curves.config["seed"])
    if curves.machines:
        yield "machine", "; then ".join(curves.machines)
    yield "end", curves.reason or "not complete: still running, or stopped"
    if curves.is_evaluated.any():
        at = np.flatnonzero(curves.is_evaluated)[-1]
        mean, interval, generation = curves["eval_mean"][at], curves.interval[at], curves["generation"][at]
        episodes = curves.columns["eval_episodes"][at] if "eval_episodes" in curves.columns else np.nan
        ends = f", 95 % confidence {format_return(mean - interval)} to {format_return(mean + interval)}"
        count = "" if np.isnan(episodes) else f", over {counted(round(episodes), 'held-out episode')}"
        yield (
            "final evaluation" if curves.reason else "newest evaluation",
            f"mean return {format_return(mean)}{'' if np.isnan(interval) else ends}"
            f"{count}, of the search distribution's mean, generation {generation:.0f}",
        )
    if curves.target is not None:
        yield "target", f"{curves.target:g}"
    last = {name: values[-1] for name, values in curves.columns.items()}
    yield "generations", f"{last['generation']:,.0f}"
    yield "training", f"{last['steps']:,.0f} steps, {last['episodes']:,.0f} episodes, {last['seconds']:,.1f} s"
    for name in [name for name in ("ranks", "nodes") if name in curves.columns]:
        counts = np.unique(curves[name][np.isfinite(curves[name])])
        yield name, ", ".join(f"{count:.0f}" for count in counts)
    yield "members with an episode that failed", f"{np.nansum(curves['failures']):,.0f}"


def _tell_seeds(runs: list[Curves]) -> str:
    """A table of the runs with their newest evaluations, and the interquartile mean of these."""
    if len(runs) == 1:
        return "<p>This is the only seed in its folder; <code>mpies train CONFIG --seeds 5</code> trains five.</p>"
    group = RunGroup("", "", {}, runs)
    final = group.final()
    heads = ("seed", "evaluation", "generations", "steps", "end")
    rows = [
        (
            str(run.config["seed"]),
            "-" if np.isnan(mean) else format_return(mean),
            f"{run['generation'][-1]:,.0f}",
            f"{run['steps'][-1]:,.0f}",
            html.escape(run.reason or "not complete"),
        )
        for run, mean in zip(runs, final.tolist(), strict=True)
    ]
    lines = ["<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows]
    head = "".join(f"<th>{name}</th>" for name in heads)
    table = f'<table class="seeds"><tr>{head}</tr>{"".join(lines)}</table>'
    if not (count := np.isfinite(final).sum()):
        return table
    known = describe_group(group)
    mean, low, high = (format_return(known[name]) for name in ("iqm", "low", "high"))
    return f"{table}<p>Interquartile mean {mean}, 95 % bootstrap interval {low} to {high}, over {count} seeds.</p>"


def _show_video(curves: Curves, video: Path | None) -> str:
    """The video; how to record one where there is none."""
    name = html.escape(shlex.quote(str(curves.path)))
    if video is None:
        return (
            f"<p>There is none yet: <code>mpies report {name} --video</code> records an episode of the best policy.</p>"
        )
    content = video.read_bytes()
    if len(content) > LARGEST_VIDEO:
        return f"<p>It is in <code>{html.escape(video.name)}</code>, which is too large for this page.</p>"
    source = f"data:{VIDEOS[video.suffix]};base64,{base64.b64encode(content).decode()}"
    is_picture = VIDEOS[video.suffix].startswith("image/")
    moving = f'<img src="{source}" alt="an episode">'
    if not is_picture:
        poster = f"data:image/jpeg;base64,{base64.b64encode(read_poster(video)).decode()}"
        moving = f'<video src="{source}" poster="{poster}" controls loop></video>'
    return f"{moving}<p>{html.escape(video.name)}: an episode.</p>"


def make_summary(curves: Curves, status: str) -> str:
    """The newest numbers and the curve as a piece of HTML, for a notebook.  status: of the run, in one word.

    Without matplotlib there is no curve.
    """
    title = html.escape(f"{curves.name}: {curves.title} ({status})")
    try:
        picture = base64.b64encode(render(draw_return(curves, "steps", WIDE), "png")).decode()
        curve = f'<img src="data:image/png;base64,{picture}" alt="return against steps" style="max-width: 40rem">'
    except ConfigError as error:
        curve = f"<p>{html.escape(str(error))}</p>"
    return (
        f"<div><strong>{title}</strong>{curve}"
        f"<details><summary>Numbers</summary>{_table(_list_results(curves))}</details></div>"
    )
