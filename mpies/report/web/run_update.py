"""What the page shows of one run, as values for JSON: its curves, pictures, log."""

import contextlib
import itertools
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from mpies.core.errors import RunError
from mpies.report.compare.run_groups import look_up
from mpies.report.video import VIDEOS
from mpies.runs.formats.metrics import round_number
from mpies.runs.reader import RunView
from mpies.runs.snapshot import half_interval

MAX_POINTS = 400  # of a curve
TAIL = 16_000  # bytes that are read from the end of a log
MAX_ENTRIES = 10_000  # of its directory, among which pictures are looked for
MAX_SENT, MAX_METRICS, MAX_COMPARED = 2**27, 2**26, 2**28  # bytes of a file, of metrics.csv, and of all in a picture
PICTURES = {".png": "image/png", **VIDEOS}  # endings of pictures and videos to their types; an SVG could hold a script
DOWNLOADS = ("best.h5", "policy.h5", "metrics.csv", "evaluations.csv", "log.txt", "config.yaml", "report.html")

_COUNTED = ("generation", "episodes", "steps")  # columns


def check_sizes(views: Sequence[RunView], most: int = MAX_METRICS) -> None:
    """Raise RunError where the metrics.csv of these runs have more bytes together."""
    size = sum(stamp[1] for view in views if (stamp := view.stamp("metrics.csv")))
    if size > most:
        raise RunError(f"metrics.csv has {size / 1e6:,.0f} MB, but the page reads {most / 1e6:.0f} at once")


def read_update(view: RunView) -> dict[str, Any]:
    """What the page shows of a run, its curves thinned to at most MAX_POINTS.  Raises RunError."""
    check_sizes([view])
    metrics = view.metrics.refresh()
    columns, rows = dict(metrics.columns), len(metrics)
    if columns.keys() >= {"eval_std"}:
        columns["eval_interval"] = half_interval(columns["eval_std"], columns.get("eval_episodes", np.nan))
    newest = {key: _round(key, value[np.isfinite(value)][-1:]) for key, value in columns.items()}
    per_point = max(1, -(-rows // MAX_POINTS))
    return {
        "name": view.name,
        "per_point": per_point,
        "newest": {key: value[0] for key, value in newest.items() if value},
        "columns": {key: _round(key, thin(key, value, per_point)) for key, value in columns.items()},
        "log": read_tail(view, "log.txt"),
        "state": view.state(),
        "reason": view.reason(),
        "silence": view.silence(),
        "ranks": _read_ranks(view),
        "files": [file for file in DOWNLOADS if view.stamp(file)],
        "pictures": list_pictures(view),
        "target": look_up(view.config(), "stop.target"),
        "config": view.text("config.yaml"),
    }


def _read_ranks(view: RunView) -> dict[str, Any]:
    """What ranks.json tells; {} where it is damaged."""
    first, last, idle = (view.ranks().get(name) for name in ("first", "last", "idle"))
    is_whole = isinstance(idle, list) and all(isinstance(number, (int, float)) for number in (first, last, *idle))
    return {"first": first, "last": last, "idle": idle} if is_whole else {}


def thin(name: str, values: npt.NDArray[np.float64], per_point: int) -> npt.NDArray[np.float64]:
    """A column with one value for every `per_point` rows: lowest, highest, newest or mean, depending on its name."""
    starts = np.arange(0, len(values), per_point)
    if name in (*_COUNTED, "seconds"):
        return values[np.minimum(starts + per_point, len(values)) - 1]
    if name in ("return_min", "ranks", "nodes"):
        return np.fmin.reduceat(values, starts)
    if name in ("return_max", "idle_max", "failures", "starts"):
        return np.fmax.reduceat(values, starts)
    known = np.isfinite(values)
    with np.errstate(all="ignore"):
        return np.add.reduceat(np.where(known, values, 0), starts) / np.add.reduceat(known.astype(float), starts)


def _round(name: str, values: npt.NDArray[np.float64]) -> list[float | None]:
    """A column for JSON.  What is counted stays whole."""
    return round_numbers(values, 15 if name in _COUNTED else 6)


def round_numbers(values: npt.NDArray[np.float64], digits: int) -> list[float | None]:
    """So many digits of each number; None for those that are not finite, which JSON lacks."""
    return [round_number(value, digits) for value in values.tolist()]


def list_pictures(view: RunView) -> list[tuple[str, int]]:
    """Names of the pictures and videos in a run directory, each with the millisecond of its last change."""
    found = []
    with contextlib.suppress(OSError), os.scandir(view.folder / view.name) as entries:
        for entry in itertools.islice(entries, MAX_ENTRIES):
            is_picture = entry.name.endswith(tuple(PICTURES)) and not entry.name.startswith(".")
            if is_picture and entry.is_file(follow_symlinks=False):
                found.append((entry.name, entry.stat(follow_symlinks=False).st_mtime_ns // 1_000_000))
    return sorted(found)


def read_tail(view: RunView, name: str) -> str:
    """The last TAIL bytes of a file as text, of which the first line is complete; '' where it is absent."""
    try:
        with view.open(name) as file:
            start = max(0, file.seek(0, 2) - TAIL)
            file.seek(start)
            content = file.read()
    except OSError:
        return ""
    return (content.partition(b"\n")[2] if start else content).decode(errors="replace")
