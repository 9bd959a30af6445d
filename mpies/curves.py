"""What a run directory tells of how a run went: the columns of metrics.csv as arrays.  Reads only."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import yaml

from mpies import store
from mpies.learner import CONFIDENCE


@dataclass(frozen=True)
class Curves:
    """A run as it is now.

    config: resolved, as plain values.  columns: names to (g,) float64, NaN where metrics.csv is empty.
    reason: why the run ended, '' while it goes on.
    """

    path: Path
    config: dict
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
        episodes = self.columns.get("eval_episodes", self.config["evaluation"]["episodes"])
        return CONFIDENCE * self["eval_std"] / np.sqrt(episodes)

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


def read_curves(path):
    """The Curves of a run directory.  Raises StoreError where it is none, or has no generation yet."""
    path = Path(path)
    config, rows = store.read_config(path), store.read_metrics(path)
    if not rows:
        raise store.StoreError(f"{path}: has no generation yet; wait for the first line of its metrics.csv")
    names = [name for name in rows[0] if name != "digest"]
    columns = {name: np.array([float(row[name] or "nan") for row in rows]) for name in names}
    try:
        reason = yaml.safe_load((path / "finished.yaml").read_text())["reason"]
    except (OSError, yaml.YAMLError, TypeError, KeyError):
        reason = ""
    return Curves(path, config, columns, reason)
