"""A sweep compared: its settings ranked by their means over the seeds, as CSV and JSON, and the runs of the best."""

import contextlib
import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from mpies.config.loading import read_yaml
from mpies.config.schema import is_free
from mpies.core.errors import ConfigError, RunError
from mpies.report.curves import read_curves
from mpies.report.run_groups import Group, group_runs, label_settings
from mpies.report.web.sweep_table import measure_importance
from mpies.runs.files import write_atomically
from mpies.runs.metrics import round_number
from mpies.sweeps.folder import SWEEP_FILE, SweepFolder
from mpies.sweeps.settings import as_text
from mpies.sweeps.table import Result, Standing
from mpies.sweeps.trials import read_sweep

NUMBERS = ("mean", "interval", "seeds", "finished", "solved", "failed", "steps", "core_seconds")  # of a standing
COMPARED = 10  # settings in pictures; the table and the ranking have all


def is_sweep(folder: str | Path) -> bool:
    """Whether a folder holds a sweep."""
    return (Path(folder) / SWEEP_FILE).is_file()


def read_folder(folder: str | Path) -> SweepFolder:
    """The sweep in a folder.  Raises ConfigError."""
    file = Path(folder) / SWEEP_FILE
    return SweepFolder(folder, read_sweep(read_yaml(file), str(file)))


def group_best(folder: SweepFolder, standings: Sequence[Standing]) -> list[Group]:
    """The groups of the best settings, the best first; runs without a generation are left out.

    Their settings have all keys that the sweep varies, also those that change no result, such as stop.generations.
    """
    groups = []
    for standing in standings[:COMPARED]:
        curves = []
        for result in standing.results:
            with contextlib.suppress(RunError):
                curves.append(read_curves(folder.run(result.trial)))
        settings = standing.results[0].trial.settings
        free = {key: settings[key] for key in folder.sweep.varied if is_free(key)}
        groups += [replace(group, settings=group.settings | free) for group in group_runs(curves)]
    labels = label_settings([group.settings for group in groups])
    return [replace(group, label=label) for group, label in zip(groups, labels, strict=True)]


def describe_importance(standings: Sequence[Standing], keys: Sequence[str]) -> str:
    """How much each of the keys that vary matters, in one line; '' where too little is known."""
    results = np.array([one.mean for one in standings])
    texts = {key: [as_text(one.results[0].trial.settings[key]) for one in standings] for key in keys}
    found = {key: measure_importance(values, results) for key, values in texts.items()}
    known = sorted(((share, key) for key, share in found.items() if share is not None), reverse=True)
    listed = ", ".join(f"{key} {share:.0%}" for share, key in known)
    return f"importance of each key (share of the variance of ranks that it explains alone): {listed}" if known else ""


def write_ranking(standings: Sequence[Standing], keys: Sequence[str], out: str | Path) -> Iterator[Path]:
    """Write ranking.csv and ranking.json into a folder; yields the path of each when it is written.

    keys: of the config, that vary.  Raises ConfigError where a file cannot be written.
    """
    rows = [describe_standing(one, keys) for one in standings]
    text = io.StringIO()
    writer = csv.DictWriter(text, ["rank", *keys, *NUMBERS], extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({**row, **{key: as_text(value) for key, value in row["settings"].items()}})  # None is empty
    contents = {"ranking.csv": text.getvalue(), "ranking.json": json.dumps(rows, indent=1, default=str) + "\n"}
    for name, content in contents.items():
        path = Path(out) / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, content.encode(), sync=False)
        except OSError as error:
            raise ConfigError(f"--out {out}: cannot be written ({error.strerror})") from None
        yield path


def describe_standing(standing: Standing, keys: Sequence[str]) -> dict[str, Any]:
    """A Standing as names and values; None stands for what is not known.

    mean and interval are over the seeds that have finished.  steps and core_seconds are sums over all seeds.
    """
    results = standing.results
    settings: Mapping[str, Any] = results[0].trial.settings
    states = [result.state for result in results]
    return {
        "rank": standing.rank or None,
        "settings": {key: settings[key] for key in keys},
        "mean": round_number(standing.mean),
        "interval": round_number(standing.interval),
        "seeds": len(results),
        "finished": sum(result.is_finished for result in results),
        "solved": states.count("solved"),
        "failed": states.count("failed"),
        "steps": sum(result.steps for result in results),
        "core_seconds": round(sum(result.core_seconds for result in results), 3),
        "trials": [_describe_result(result) for result in results],
    }


def _describe_result(result: Result) -> dict[str, Any]:
    values = {name: value for name, value in asdict(result).items() if name != "trial"}
    values = {name: round_number(value) if isinstance(value, float) else value for name, value in values.items()}
    return {"name": result.trial.name, "seed": result.trial.seed, **values}
