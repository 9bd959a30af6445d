"""Recipes that were run: what was recorded of one, and whether it comes out again."""

from mpies.runs.metrics import read_metrics
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import yaml

from mpies.comm import mpiexec
from mpies.errors import ConfigError
from mpies.config.loading import load_config

RESULTS, RECIPES = Path("results"), Path("configs")
SMALL = 100_000  # bytes of a policy that is kept with its record
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
    """What results/NAME/record.yaml says of a run of configs/RECIPE.yaml, where NAME is RECIPE or RECIPE-VARIANT."""
    file = RESULTS / name / "record.yaml"
    try:
        return yaml.safe_load(file.read_text())
    except (OSError, yaml.YAMLError):
        known = sorted(path.parent.name for path in RESULTS.glob("*/record.yaml"))
        raise ConfigError(
            f"{file}: cannot be read; recorded recipes here: {', '.join(known) or 'none'} "
            "(run this in a checkout of the repository)"
        ) from None


def recipe_of(name):
    """The config of a record's name."""
    return RECIPES / f"{name.partition('-')[0]}.yaml"


def train_again(name, record, out, ranks, generations):
    """Run the recipe's config with the recorded overrides, for as many generations as were recorded or fewer."""
    limit = min(generations or record["generation"], record["generation"])
    arguments = ["train", str(recipe_of(name)), "--out", str(out), *record["overrides"], f"stop.generations={limit}"]
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


def record_run(run, name, overrides, episodes=100, mark=None):
    """Record a run as results/NAME: metrics, picture, its policy when small, and that on fresh episodes.

    What others published of it is drawn beside, where results/NAME/published.yaml has it.

    mark: mean return of these that counts as reached; by default stop.target, which may hold a margin.
    """
    from mpies.views.curves import read_curves
    from mpies.tools.evaluate import evaluate_policy
    from mpies.runs.policy_file import find_policy
    from mpies.views.plots import draw_return, image

    run, folder = Path(run), RESULTS / name
    curves, rows = read_curves(run), read_metrics(run)
    found = evaluate_policy(run, episodes)
    mark = load_config(recipe_of(name), overrides).stop.target if mark is None else mark
    record = {
        "overrides": list(overrides),
        "ended": curves.reason or "not run to its end",
        "mark": mark,
        "reached": mark is not None and found["mean"] >= mark,
        "seed": curves.config["seed"],
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
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(run / "metrics.csv", folder)
    if find_policy(run).stat().st_size < SMALL:
        shutil.copy(find_policy(run), folder / "policy.h5")
    (folder / "return.png").write_bytes(image(draw_return(curves, "steps", beside=read_published(name))))
    (folder / "record.yaml").write_text(yaml.safe_dump(record, sort_keys=False))
    return record


def read_published(name):
    """Curves that others published of a recipe: [(whose, [(steps, return), ...]), ...], often none."""
    file = RESULTS / name / "published.yaml"
    return [(found["curve"], found["points"]) for found in yaml.safe_load(file.read_text())] if file.exists() else []


def describe(record):
    """What was measured, on one line: how a recipe says it."""
    found = record["evaluation"]
    ranks = f"{record['ranks']} rank{'s' * (record['ranks'] > 1)}"
    return (
        f"seed {record['seed']}, {record['steps']:,} steps, {record['seconds']:,.0f} s on {ranks}; "
        f"{found['mean'] + 0.0:,.1f} +- {found['interval_95']:.1f} over {found['episodes']} fresh episodes"
    )


def read_heading(path):
    """What a recipe says of itself: a dict of `task`, `source`, `budget` and `status`, and `variants`, its commands."""
    found, key = {"variants": []}, "task"
    for line in path.read_text().splitlines():
        if not line.startswith("#"):
            break
        text = line[1:].strip()
        if text.startswith("mpies train "):
            found["variants"].append(text)
            continue
        word, colon, rest = text.partition(": ")
        if colon and word.lower() in ("source", "budget", "status"):
            key, text = word.lower(), rest
        found[key] = f"{found[key]} {text}" if key in found else text
    return found


def list_recipes():
    """All recipes and how far each was taken, as a Markdown page."""
    lines = ["# Recipes", "", "Generated from the headings of `configs/` by `mpies reproduce --list`.", ""]
    lines += ["Pictures have beside our curve what others published, with its source in `published.yaml`.", ""]
    lines += ["| recipe | task and solver | source | budget | status |", "|---|---|---|---|---|"]
    for path in sorted(RECIPES.glob("*.yaml")):
        told = read_heading(path)
        status = re.sub("^(reached here|settings as published, not yet run to the end here)", r"**\1**", told["status"])
        told["status"] = re.sub(r"(?<!/)\b(results/[\w-]+)", r"[\1](../\1/return.png)", status)
        name = f"[{path.stem}](../configs/{path.name})"
        lines.append(f"| {' | '.join([name, *(told[key] for key in ('task', 'source', 'budget', 'status'))])} |")
    return "\n".join(lines)
