"""The curves of a run: its config and the columns of metrics.csv as arrays.  Only reads."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mpies.errors import RunError
from mpies.runs.reader import Columns, RunView, intervals


@dataclass(frozen=True)
class Curves:
    """A run as it is now, of g generations.

    config: resolved, as plain values.  versions: package to version, of the process that wrote the config.
    columns: names to (g,) float64, NaN where a cell of metrics.csv is empty.
    reason: the stop rule that ended the run, '' while it has not ended.
    """

    path: Path
    config: dict[str, Any]
    versions: dict[str, str]
    columns: Columns
    reason: str

    def __getitem__(self, name: str) -> npt.NDArray[np.float64]:
        return self.columns[name]

    def __len__(self) -> int:
        return len(self.columns["generation"])

    @property
    def is_evaluated(self) -> npt.NDArray[np.bool_]:
        """(g,) whether the mean was evaluated after a generation."""
        return np.isfinite(self["eval_mean"])

    @property
    def interval(self) -> npt.NDArray[np.float64]:
        """(g,) half the width of the 95 % confidence interval of an evaluation's mean."""
        return intervals(self.columns, self.config["evaluation"]["episodes"])

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


def read_curves(run: str | Path | RunView) -> Curves:
    """The Curves of a run directory, or of a RunView, which reads only the lines that are new.

    Raises RunError where the directory is no run, or has no generation yet.
    """
    view = run if isinstance(run, RunView) else RunView(run)
    config, columns = view.config(), view.metrics.refresh().columns
    if not config:
        raise RunError(f"{view.folder}/config.yaml: cannot be read; is {view.folder} a run?")
    if not len(view.metrics):
        raise RunError(f"{view.folder}: has no generation yet; wait for the first line of its metrics.csv")
    versions = config.pop("versions", {})
    return Curves(view.folder, config, versions, dict(columns), view.finished().get("reason", ""))
