"""Recipes that were run: what was recorded of one, and whether it comes out again."""

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import yaml

from mpies import mpiexec, store
from mpies.config import ConfigError

RESULTS = Path("results")
TOLERANCE = 0.15  # of the range of the recorded curve; other builds lead elsewhere, though not far


@dataclass(frozen=True)
class Comparison:
    """Two learning curves, generation by generation.

    generations: compared.  same: how many from the first on have the same digest.  difference: mean absolute
    difference of the mean returns, as a share of the range that the recorded ones have.
    """

    generations: int
    same: int
    difference: float


def read_record(name):
    """What results/NAME/record.yaml says of the run that was recorded for configs/NAME.yaml."""
    file = RESULTS / name / "record.yaml"
    try:
        return yaml.safe_load(file.read_text())
    except (OSError, yaml.YAMLError):
        known = sorted(path.parent.name for path in RESULTS.glob("*/record.yaml"))
        raise ConfigError(
            f"{file}: cannot be read; recorded recipes here: {', '.join(known) or 'none'} "
            "(run this in a checkout of the repository)"
        ) from None


def train_again(name, record, out, ranks, generations):
    """Run the recipe's config with the recorded overrides, for as many generations as were recorded or fewer."""
    limit = min(generations or record["generation"], record["generation"])
    arguments = ["train", f"configs/{name}.yaml", "--out", str(out), *record["overrides"], f"stop.generations={limit}"]
    serial = ranks == 1
    command = [sys.executable, "-m", "mpies", *arguments]
    done = mpiexec.run(command if serial else mpiexec.command(mpiexec.find(), ranks, arguments))
    if done.returncode:
        raise ConfigError(f"training ended with code {done.returncode}: {' '.join(done.stderr.split())[-400:]}")


def compare(recorded, found):
    """The Comparison of two runs by their rows of metrics.csv."""
    pairs = list(zip(recorded, found, strict=False))
    same = next((k for k, (old, new) in enumerate(pairs) if old["digest"] != new["digest"]), len(pairs))
    old, new = (np.array([float(row["return_mean"] or "nan") for row in rows]) for rows in zip(*pairs, strict=True))
    spread = np.nanmax(old) - np.nanmin(old) or 1.0
    return Comparison(len(pairs), same, float(np.nanmean(np.abs(old - new)) / spread))


def record_run(run, name, overrides, episodes=100):
    """Record a run as results/NAME: its metrics, its policy when small, and a fresh evaluation of that."""
    from mpies.evaluate import evaluate_policy

    run, folder = Path(run), RESULTS / name
    folder.mkdir(parents=True, exist_ok=True)
    rows = store.read_metrics(run)
    found = evaluate_policy(run, episodes)
    finished = run / "finished.yaml"
    outcome = yaml.safe_load(finished.read_text())["reason"] if finished.exists() else "not run to its end"
    record = {
        "overrides": list(overrides),
        "ended": outcome,
        "generation": int(rows[-1]["generation"]),
        "steps": int(rows[-1]["steps"]),
        "seconds": round(float(rows[-1]["seconds"]), 1),
        "ranks": int(rows[-1]["ranks"]),
        "evaluation": {
            "policy_of_generation": found["generation"],
            "episodes": episodes,
            "mean": round(found["mean"], 3),
            "interval_95": round(found["interval"], 3),
        },
        "tolerance": TOLERANCE,
        "versions": yaml.safe_load((run / "config.yaml").read_text())["versions"],
    }
    shutil.copy(run / "metrics.csv", folder)
    if (run / "best.h5").stat().st_size < 300_000:
        shutil.copy(run / "best.h5", folder / "policy.h5")
    (folder / "record.yaml").write_text(yaml.safe_dump(record, sort_keys=False))
    return record
