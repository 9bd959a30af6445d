"""What the page shows of one run, as values for JSON: its curves, whole or what is new, pictures, log."""

import contextlib
import os
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt

from mpies.report.run_groups import look_up
from mpies.report.video import VIDEOS
from mpies.report.web.overlay import round_numbers
from mpies.runs.reader import Columns, RunView, intervals

MAX_POINTS = 400  # of a curve when it is first sent; new points are added to it
TAIL = 16_000  # bytes that are read from the end of a log
PICTURES = {".png": "image/png", **VIDEOS}  # endings of pictures and videos to their types; an SVG could hold a script
DOWNLOADS = ("best.h5", "policy.h5", "metrics.csv", "evaluations.csv", "log.txt", "config.yaml", "report.html")

_COUNTED = ("generation", "episodes", "steps")  # columns


def read_update(view: RunView, version: int, after: int, log: int) -> dict[str, Any]:
    """What a reader lacks who knows the first `after` rows of `version` and the first `log` bytes of log.txt.

    "again" is True where all is sent, the rows thinned to at most MAX_POINTS: the reader has none, another file has
    replaced metrics.csv or config.yaml, or more rows are new than that.
    """
    metrics = view.metrics.refresh()
    columns, rows, config = dict(metrics.columns), len(metrics), view.config()
    newest_version = zlib.crc32(repr((metrics.version, view.stamp("config.yaml"))).encode())
    again = version != newest_version or not 0 < after <= rows or rows - after > MAX_POINTS
    if columns.keys() >= {"eval_std"}:
        columns["eval_interval"] = intervals(columns)
    newest = {key: _round(key, value[np.isfinite(value)][-1:]) for key, value in columns.items()}
    per_point = max(1, -(-rows // MAX_POINTS)) if again else 1
    columns = thin(columns, per_point) if again else {key: value[after:] for key, value in columns.items()}
    update: dict[str, Any] = {
        "name": view.name,
        "version": newest_version,
        "rows": rows,
        "again": again,
        "per_point": per_point,
        "newest": {key: value[0] for key, value in newest.items() if value},
        "columns": {key: _round(key, value) for key, value in columns.items()},
        "log": read_tail(view, "log.txt", log),
        "state": view.state(),
        "reason": view.reason(),
        "silence": view.silence(),
        "ranks": view.ranks(),
        "files": [file for file in DOWNLOADS if view.stamp(file)],
        "pictures": list_pictures(view),
    }
    if again:
        update |= {"target": look_up(config, "stop.target"), "config": view.text("config.yaml")}
    return update


def thin(columns: Columns, per_point: int) -> Columns:
    """Columns with one value for every `per_point` rows: lowest, highest, newest or mean, depending on the name."""
    if per_point == 1 or not columns:
        return columns
    return {name: _thin(name, values, per_point) for name, values in columns.items()}


def _thin(name: str, values: npt.NDArray[np.float64], per_point: int) -> npt.NDArray[np.float64]:
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


def list_pictures(view: RunView) -> list[tuple[str, int]]:
    """Names of the pictures and videos in a run directory, each with the millisecond of its last change."""
    found = []
    with contextlib.suppress(OSError), os.scandir(view.folder / view.name) as entries:
        for entry in entries:
            is_picture = entry.name.endswith(tuple(PICTURES)) and not entry.name.startswith(".")
            if is_picture and entry.is_file(follow_symlinks=False):
                found.append((entry.name, entry.stat(follow_symlinks=False).st_mtime_ns // 1_000_000))
    return sorted(found)


def read_tail(view: RunView, name: str, start: int) -> dict[str, Any]:
    """The text of a file from byte `start` to `end`, at most TAIL bytes.

    Where `start` is no byte of the last TAIL ones, the text begins near the file's end, with a complete line.
    """
    try:
        with view.open(name) as file:
            end = file.seek(0, 2)
            earliest = max(0, end - TAIL)
            begin = start if earliest <= start <= end else earliest
            file.seek(begin)
            content = file.read(TAIL)
    except OSError:
        return {"text": "", "start": 0, "end": 0}
    end = begin + len(content)
    if begin and begin != start:
        content = content[content.find(b"\n") + 1 :]
    return {"text": content.decode(errors="replace"), "start": begin, "end": end}
