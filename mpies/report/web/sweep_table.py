"""The sweeps below a folder as values for JSON, from their trials.csv: trials, settings, what matters.  Only reads."""

import csv
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mpies.config.schema import is_free
from mpies.report.run_groups import average_seeds, shorten_keys
from mpies.runs.metrics import parse_number, round_number
from mpies.runs.reader import RunView, is_run

DEPTH = 3  # folders below the dashboard's in which sweeps are looked for
RANKED = ("finished", "solved", "dropped", "waiting")  # states in which an evaluation counts
BINS = 5  # of the values of a setting that has more; each holds about as many trials

Row = Mapping[str, str]  # of trials.csv


def find_sweeps(folder: str | Path) -> list[str]:
    """The folders of sweeps below a folder, as sorted paths relative to it; "." for the folder itself."""
    found = []

    def look(path: str | Path, level: int) -> None:
        if os.path.isfile(os.path.join(path, "sweep.yaml")):
            found.append(os.path.relpath(path, folder))
        elif level < DEPTH and not is_run(path):
            try:
                inner = [entry.path for entry in os.scandir(path) if entry.is_dir(follow_symlinks=False)]
            except OSError:
                return
            for one in inner:
                if not os.path.basename(one).startswith("."):
                    look(one, level + 1)

    look(folder, 0)
    return sorted(found)


def read_sweep_table(folder: str | Path, name: str, version: str = "") -> dict[str, Any] | None:
    """The newest trials.csv of a sweep; None where there is no sweep of this name.

    version: of what the reader has; where that is the newest, there is nothing but the version.
    keys: that vary.  groups: the settings with their means over the seeds, the best first; `trials` are the numbers of
    their trials.  importance: of each key, as `measure_importance` has it.
    """
    view = RunView(folder, name)
    try:
        view.open("sweep.yaml").close()  # refuses what is not below the folder
    except (OSError, ValueError):  # ValueError: the name has a NUL
        return None
    newest = "-".join(map(str, view.stamp("trials.csv") or ()))
    if newest and newest == version:
        return {"version": newest}
    rows = _read_rows(view)
    keys = _varied_keys(rows)
    groups = _group(rows, keys)
    results = np.array([group["mean"] if group["mean"] is not None else math.nan for group in groups])
    importance = [
        measure_importance([group["settings"][place] for group in groups], results) for place in range(len(keys))
    ]
    return {
        "name": name,
        "version": newest,
        "keys": [{"key": key, "short": short} for key, short in shorten_keys(keys).items()],
        "trials": [_describe(row) for row in rows],
        "groups": groups,
        "importance": importance,
    }


def read_free_keys(sweep: Path) -> list[str]:
    """The keys that vary in a sweep although they change no result, such as stop.generations."""
    keys = _varied_keys(_read_rows(RunView(sweep)))
    return [key for key in keys if is_free(key)]


def _read_rows(view: RunView) -> list[Row]:
    return list(csv.DictReader(view.text("trials.csv").splitlines()))


def _varied_keys(rows: Sequence[Row]) -> list[str]:
    """The keys of the config among the columns, which come before `seed`, that have several values."""
    columns = list(rows[0]) if rows else []
    keys = columns[: columns.index("seed")] if "seed" in columns else []
    return [key for key in keys if len({row[key] for row in rows}) > 1]


def _describe(row: Row) -> dict[str, Any]:
    """A trial for the page."""
    told: dict[str, Any] = {name: row.get(name) for name in ("name", "seed", "state", "reason")}
    counted = {name: round_number(parse_number(row.get(name)), 15) for name in ("steps", "core_seconds")}
    shown = {name: round_number(parse_number(row.get(f"eval_{name}")), 5) for name in ("mean", "interval")}
    return told | counted | shown


def _group(rows: Sequence[Row], keys: Sequence[str]) -> list[dict[str, Any]]:
    """The settings, the best first, those without an evaluation last."""
    by_settings: dict[tuple[str, ...], list[int]] = {}
    for number, row in enumerate(rows):
        by_settings.setdefault(tuple(row[key] for key in keys), []).append(number)
    groups = []
    for settings, numbers in by_settings.items():
        inside = [rows[number] for number in numbers]
        mean, interval = _average(inside)
        states = [row.get("state") for row in inside]
        groups.append(
            {
                "settings": list(settings),
                "trials": numbers,
                "rank": int(parse_number(inside[0].get("rank"), 0.0)),
                "mean": round_number(mean, 5),
                "interval": round_number(interval, 5),
                "ended": sum(state in ("finished", "solved", "dropped", "failed") for state in states),
                "solved": states.count("solved"),
                "steps": sum(parse_number(row.get("steps"), 0.0) for row in inside),
                "core_seconds": round(sum(parse_number(row.get("core_seconds"), 0.0) for row in inside), 1),
            }
        )
    return sorted(groups, key=lambda group: (not group["rank"], group["rank"]))


def _average(rows: Sequence[Row]) -> tuple[float, float]:
    """Mean over the seeds and half the width of its 95 % confidence interval; of one seed, over its episodes."""
    ranked = [row for row in rows if row.get("eval_mean") and _is_ranked(row)]
    means, intervals = ([parse_number(row.get(name)) for row in ranked] for name in ("eval_mean", "eval_interval"))
    return average_seeds(means, intervals)


def _is_ranked(row: Row) -> bool:
    """Whether the evaluation of a trial counts: at its end, and after each rung of a halving."""
    return row.get("state") in RANKED or parse_number(row.get("rung"), 0.0) != 0


def measure_importance(values: Sequence[str], results: npt.NDArray[np.float64]) -> float | None:
    """How much a setting alone decides on the result: the share of the variance of the results' ranks, 0 to 1.

    The epsilon squared of Kelley 1935 ("An unbiased correlation ratio measure"), of the ranks: the variance between the
    values of the setting, without what chance puts there.  Ranks, since a few settings often fail altogether.  Of a
    setting with more than BINS numbers, neighbours count as one value, so that an optimum in the middle counts too.
    A setting that matters only together with another one has a small share.

    values: (n,) of the setting, as text.  results: (n,), NaN where there is none.
    Returns None where too few are known.
    """
    is_known = np.isfinite(results)
    levels = _levels([value for value, known in zip(values, is_known, strict=True) if known])
    count, different = len(levels), len({*levels.tolist()})
    if different < 2 or count <= different:
        return None
    _, place, times = np.unique(results[is_known], return_inverse=True, return_counts=True)
    ranks = (np.cumsum(times) - (times - 1) / 2)[place]  # equal results share their mean rank
    total = float(((ranks - ranks.mean()) ** 2).sum())
    within = sum(
        float(((inside := ranks[levels == level]) - inside.mean()) @ (inside - inside.mean())) for level in {*levels}
    )
    if total == 0:
        return 0.0
    return round(max(0.0, 1 - within / (count - different) / (total / (count - 1))), 3)


def _levels(values: Sequence[str]) -> npt.NDArray[np.int64]:
    """(n,) the number of each value among the different ones, or of its bin."""
    different = sorted({*values})
    numbers = np.array([parse_number(value) for value in values])
    if len(different) <= BINS or not np.isfinite(numbers).all():
        return np.array([different.index(value) for value in values], np.int64)
    edges = np.quantile(numbers, np.linspace(0, 1, BINS + 1)[1:-1])
    return np.searchsorted(edges, numbers, side="right")
