"""The sweeps below a folder as values for JSON, from their trials.csv: settings, trials, what matters.  Only reads."""

import csv
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mpies.config.schema import is_free
from mpies.report.ranking import BEST, Result, Standing, Trial, list_importance, rank_settings
from mpies.report.run_groups import shorten_keys
from mpies.runs.metrics import parse_count, parse_number
from mpies.runs.reader import RunView, is_run

DEPTH = 3  # folders below the dashboard's in which sweeps are looked for


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
    keys: that vary, each with its importance as `measure_importance` has it.  groups: as Standing describes them, the
    best first, with the number of trials that have ended; the name of a trial is that of its run.  states: how many
    trials there are of each.  best: names of the runs of the best settings that have begun.
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
    results = [_read_result(row, keys, "" if name == "." else f"{name}/") for row in rows]
    standings = rank_settings(results)
    importance = list_importance(standings, keys)
    begun = [[result.trial.name for result in one.results if result.state != "new"] for one in standings]
    return {
        "name": name,
        "version": newest,
        "keys": [
            {"key": key, "short": short, "importance": importance[key]} for key, short in shorten_keys(keys).items()
        ],
        "groups": [_describe(one, keys) for one in standings],
        "states": Counter(result.state for result in results),
        "steps": sum(result.steps for result in results),
        "core_seconds": sum(result.core_seconds for result in results),
        "best": [run for runs in [runs for runs in begun if runs][:BEST] for run in runs],
    }


def read_free_keys(sweep: Path) -> list[str]:
    """The keys that vary in a sweep although they change no result, such as stop.generations."""
    keys = _varied_keys(_read_rows(RunView(sweep)))
    return [key for key in keys if is_free(key)]


def _read_rows(view: RunView) -> list[dict[str, str]]:
    return list(csv.DictReader(view.text("trials.csv").splitlines(), restval=""))


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


def _describe(standing: Standing, keys: Sequence[str]) -> dict[str, Any]:
    return {**standing.describe(keys), "ended": sum(result.has_ended for result in standing.results)}
