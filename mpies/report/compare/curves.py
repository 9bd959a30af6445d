"""The curves of a run: its config and the columns of metrics.csv as arrays.  Only reads."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mpies.core.errors import RunError
from mpies.core.text import name_few
from mpies.runs.machine import machines_of
from mpies.runs.reader import Columns, RunView, find_runs
from mpies.runs.snapshot import half_interval

Floats = npt.NDArray[np.float64]

# Columns that every metrics.csv has; of these, the first four have a number in every row.
COUNTED = ("generation", "seconds", "episodes", "steps")
NEEDED = (*COUNTED, "return_mean", "return_min", "return_max", "eval_mean", "eval_std", "failures", "ranks")

SECTIONS = ("environment", "solver", "stop", "evaluation")  # of the config of every run
_CURE = "give the directory of a run"


@dataclass(frozen=True)
class Curves:
    """A run as it is now, of g generations.

    config: resolved, as plain values.  versions: package to version, of the process that wrote the config.
    machines: that the run was trained on, in words; () where it does not tell.
    columns: names to (g,) float64, NaN where a cell of metrics.csv is empty or damaged; all of NEEDED, and of COUNTED
    only numbers.
    reason: as of RunView, '' while the run has not ended.
    """

    path: Path
    config: dict[str, Any]
    versions: dict[str, str]
    columns: Columns
    reason: str
    machines: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> Floats:
        return self.columns[name]

    def __len__(self) -> int:
        return len(self.columns["generation"])

    @property
    def is_evaluated(self) -> npt.NDArray[np.bool_]:
        """(g,) whether the mean was evaluated after a generation."""
        return np.isfinite(self["eval_mean"])

    @property
    def interval(self) -> Floats:
        """(g,) half the width of the 95 % confidence interval of an evaluation's mean."""
        return np.asarray(half_interval(self.columns["eval_std"], self.columns.get("eval_episodes", np.nan)))

    @property
    def target(self) -> float | None:
        """stop.target of the config."""
        target: float | None = self.config["stop"]["target"]
        return target

    @property
    def name(self) -> str:
        """The name of the run directory."""
        return self.path.resolve().name

    @property
    def title(self) -> str:
        """Environment, solver and seed in one line."""
        solver = self.config["solver"]
        return f"{self.config['environment']['id']}, {solver['kind']}, seed {self.config['seed']}"


def name_run_below(folder: Path) -> str:
    """`, such as PATH` with the first of the runs in a folder that is no run itself; '' where there is none."""
    names = [name for name in find_runs(folder, depth=2) if name != "."]
    return f", such as {folder / names[0]}" if names else ""


def read_curves(run: str | Path | RunView) -> Curves:
    """The Curves of a run directory, or of a RunView, which reads only the lines that are new.

    Raises RunError where the directory is no run, or has no generation yet.
    """
    view = run if isinstance(run, RunView) else RunView(run)
    config, columns = view.config(), view.metrics.refresh().columns
    if view.folder.is_file():
        raise RunError(f"{view.folder}: is a file, not a run; {_CURE}")
    if not config:
        raise RunError(f"{view.folder}/config.yaml: is absent or damaged; {_CURE}{name_run_below(view.folder)}")
    if not len(view.metrics):
        raise RunError(f"{view.folder}: has no generation yet; wait until the first one is complete")
    if not all(isinstance(config.get(key), dict) for key in SECTIONS):
        raise RunError(f"{view.folder}/config.yaml: lacks sections that every run has; {_CURE}")
    if missing := [name for name in NEEDED if name not in columns]:
        raise RunError(f"{view.folder}/metrics.csv: lacks {name_few(missing)}, which every run has; {_CURE}")
    is_whole = np.all([np.isfinite(columns[name]) for name in COUNTED], axis=0)
    columns = {name: values[is_whole] for name, values in columns.items()}
    if not is_whole.any():
        raise RunError(f"{view.folder}/metrics.csv: each row has a damaged cell; give another run")
    machines, recorded = tuple(machines_of(config)), config.pop("versions", None)
    named = recorded.items() if isinstance(recorded, dict) else ()
    versions = {name: one for name, one in named if name not in ("machines", "began", "signature")}
    return Curves(view.folder, config, versions, columns, view.reason(), machines)


def find_machine(runs: Iterable[Curves]) -> str:
    """The machine that all of these runs were trained on, in words; '' where they differ or do not tell."""
    found = {run.machines for run in runs}
    machines = found.pop() if len(found) == 1 else ()
    return machines[0] if len(machines) == 1 else ""


def read_all_curves(paths: Iterable[str | Path]) -> tuple[list[Curves], list[str]]:
    """The Curves of runs, and of all runs below folders; and why runs below folders were left out.

    Raises RunError where a run that is named itself cannot be read, or a folder holds no run.
    """
    found: dict[Path, Curves] = {}
    left_out = []
    for path in map(Path, paths):
        names = find_runs(path)
        if names == ["."]:
            found[path] = read_curves(path)
            continue
        if not names:
            raise RunError(f"{path}: is neither a run nor a folder with runs; give one that mpies runs lists")
        for name in names:
            try:
                found[path / name] = read_curves(path / name)
            except RunError as error:
                left_out.append(str(error))
    return list(found.values()), left_out
