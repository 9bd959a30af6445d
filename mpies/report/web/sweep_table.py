"""The sweeps below a folder as values for JSON, from their trials.csv: settings and trials.  Only reads."""

import math
import os
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mpies.config.schema import is_free
from mpies.report.compare.ranking import BEST, Result, Trial, rank_settings
from mpies.report.compare.run_groups import shorten_keys
from mpies.runs.formats.metrics import parse_count, parse_number
from mpies.runs.reader import RunView, is_run, read_trials

DEPTH = 3  # folders below the dashboard's in which sweeps are looked for


def find_sweeps(folder: str | Path, until: float = math.inf) -> list[str]:
    """The folders of sweeps below a folder, as paths relative to it, "." for itself.  until: as for `find_runs`."""
    found = []
    for path, folders, files in os.walk(folder):  # follows no symbolic link
        name = os.path.relpath(path, folder)
        if "sweep.yaml" in files:
            found.append(name)
        is_deepest = name != "." and name.count(os.sep) + 1 >= DEPTH
        if "sweep.yaml" in files or is_deepest or time.monotonic() > until or is_run(path):
            folders.clear()
        folders[:] = [one for one in folders if not one.startswith(".")]
    return sorted(found)


def read_sweep_table(folder: str | Path, name: str) -> dict[str, Any] | None:
    """The newest trials.csv of a sweep; None where there is no sweep of this name.

    keys: that vary.  groups: as Standing describes them, the best first, with the number of trials that have ended; the
    name of a trial is that of its run.  states: how many trials there are of each.  best: names of the runs of the best
    settings that have begun.
    """
    view = RunView(folder, name)
    try:
        view.open("sweep.yaml").close()  # refuses what is not below the folder
    except (OSError, ValueError):  # ValueError: the name has a NUL
        return None
    rows = read_trials(view)
    keys = _varied_keys(rows)
    results = [_read_result(row, keys, "" if name == "." else f"{name}/") for row in rows]
    standings = rank_settings(results)
    begun = [[result.trial.name for result in one.results if result.state != "new"] for one in standings]
    return {
        "name": name,
        "keys": [{"key": key, "short": short} for key, short in shorten_keys(keys).items()],
        "groups": [
            {**one.describe(keys), "ended": sum(result.has_ended for result in one.results)} for one in standings
        ],
        "states": Counter(result.state for result in results),
        "steps": sum(result.steps for result in results),
        "core_seconds": sum(result.core_seconds for result in results),
        "best": [run for runs in [runs for runs in begun if runs][:BEST] for run in runs],
    }


def read_free_keys(sweep: Path) -> list[str]:
    """The keys that vary in a sweep although they change no result, such as stop.generations."""
    keys = _varied_keys(read_trials(RunView(sweep)))
    return [key for key in keys if is_free(key)]


def _varied_keys(rows: Sequence[dict[str, str]]) -> list[str]:
    """The keys of the config among the columns, which come before `seed`, that have several values."""
    columns = list(rows[0]) if rows else []
    keys = columns[: columns.index("seed")] if "seed" in columns else []
    return [key for key in keys if len({row[key] for row in rows}) > 1]


def _read_result(row: dict[str, str], keys: Sequence[str], folder: str) -> Result:
    """The Result in a row of trials.csv; the settings are those of the keys, as text.  folder: before the names."""
    settings = {key: row[key] for key in keys}
    trial = Trial(folder + row.get("name", ""), str(settings), settings, parse_count(row.get("seed")), ())
    generations, steps, rung = (parse_count(row.get(name)) for name in ("generations", "steps", "rung"))
    mean, interval = (parse_number(row.get(name)) for name in ("eval_mean", "eval_interval"))
    seconds = parse_number(row.get("core_seconds"), 0.0)
    return Result(trial, row.get("state", ""), generations, steps, seconds, mean, interval, row.get("reason", ""), rung)
