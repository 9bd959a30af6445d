"""What a run directory tells of how a run went: the columns of metrics.csv as arrays.  Reads only."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mpies.run_view import RunView, intervals
from mpies.store import StoreError


@dataclass(frozen=True)
class Curves:
    """A run as it is now.

    config: resolved, as plain values.  versions: package to version, of what computed it.
    columns: names to (g,) float64, NaN where metrics.csv is empty.  reason: why the run ended, '' while it goes on.
    """

    path: Path
    config: dict
    versions: dict
    columns: dict
    reason: str

    def __getitem__(self, name):
        return self.columns[name]

    def __len__(self):
        return len(self.columns["generation"])

    @property
    def evaluated(self):
        """(g,) bool: after which generations the mean was evaluated."""
        return np.isfinite(self["eval_mean"])

    @property
    def interval(self):
        """(g,) half the width of the 95 % confidence interval of an evaluation."""
        return intervals(self.columns, self.config["evaluation"]["episodes"])

    @property
    def target(self):
        return self.config["stop"]["target"]

    @property
    def name(self):
        return self.path.resolve().name

    @property
    def title(self):
        """What was trained, and how, in a few words."""
        solver = self.config["solver"]
        return f"{self.config['environment']['id']}, {solver['kind']}, seed {self.config['seed']}"


def read_curves(run):
    """The Curves of a run directory, or of a RunView, which reads only what is new.

    Raises StoreError where it is no run, or has no generation yet.
    """
    view = run if isinstance(run, RunView) else RunView(run)
    config, columns = view.config(), view.metrics.refresh().columns
    if not config:
        raise StoreError(f"{view.folder}/config.yaml: cannot be read; is {view.folder} a run?")
    if not len(view.metrics):
        raise StoreError(f"{view.folder}: has no generation yet; wait for the first line of its metrics.csv")
    versions = config.pop("versions", {})
    return Curves(view.folder, config, versions, dict(columns), view.finished().get("reason", ""))
