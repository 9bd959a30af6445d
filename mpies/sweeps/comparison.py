"""A sweep compared: its settings ranked by their means over the seeds, as CSV and JSON, and the runs of the best."""

import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from mpies.config.loading import read_yaml
from mpies.config.schema import is_free
from mpies.core.errors import RunError
from mpies.core.text import escape
from mpies.report.compare.curves import Curves, read_curves
from mpies.report.compare.ranking import BEST, Standing, rank_settings, table_as_csv
from mpies.report.compare.run_groups import RunGroup, group_runs
from mpies.runs.files import write_atomically, writing
from mpies.sweeps.folder import SWEEP_FILE, SweepFolder
from mpies.sweeps.settings import as_text
from mpies.sweeps.table import ResultReader, print_standings
from mpies.sweeps.trials import read_sweep

NUMBERS = ("mean", "interval", "seeds", "finished", "solved", "failed", "steps", "core_seconds")  # of a standing


def is_sweep(folder: str | Path) -> bool:
    """Whether a folder holds a sweep."""
    return (Path(folder) / SWEEP_FILE).is_file()


def rank_sweep(path: str, out: str) -> list[RunGroup]:
    """Print the settings of a sweep, the best first, and write them to files.  Returns the groups of the best."""
    file = Path(path) / SWEEP_FILE
    folder = SweepFolder(path, read_sweep(read_yaml(file), str(file)))
    results = ResultReader(folder).refresh()
    standings = rank_settings(results)
    print_standings(results, folder.sweep.varied)
    for file in write_ranking(standings, folder.sweep.varied, out):
        print(escape(str(file)))
    return group_best(folder, standings)


def group_best(folder: SweepFolder, standings: Sequence[Standing]) -> list[RunGroup]:
    """The groups of the best settings, the best first; runs without a generation are left out.

    All keys that the sweep varies make groups, also those that change no result, such as stop.generations.
    """
    curves: dict[Path, Curves] = {}
    for standing in standings[:BEST]:
        for result in standing.results:
            with contextlib.suppress(RunError):
                curves[folder.run(result.trial)] = read_curves(folder.run(result.trial))
    order = list(curves)
    groups = group_runs(list(curves.values()), [key for key in folder.sweep.varied if is_free(key)])
    return sorted(groups, key=lambda group: min(order.index(run.path) for run in group.runs))


def write_ranking(standings: Sequence[Standing], keys: Sequence[str], out: str | Path) -> Iterator[Path]:
    """Write ranking.csv and ranking.json into a folder; yields the path of each when it is written.

    keys: of the config, that vary.  Raises ConfigError where a file cannot be written.
    """
    rows = [one.describe(keys) for one in standings]
    cells = ({**row, **{key: as_text(value) for key, value in row["settings"].items()}} for row in rows)
    table = table_as_csv(["rank", *keys, *NUMBERS], cells)
    contents = {"ranking.csv": table, "ranking.json": json.dumps(rows, indent=1, default=str) + "\n"}
    for name, content in contents.items():
        path = Path(out) / name
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, content.encode(), sync=False)
        yield path
