"""Recipes and what was recorded when they were run: read the records, train again, and compare."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NotRequired, TypedDict

import numpy as np
import yaml

from mpies.config.recipes import RECIPES
from mpies.errors import ConfigError
from mpies.runs.metrics import read_metrics
from mpies.tools.train_process import train

RESULTS = Path(__file__).resolve().parents[1] / "results"  # in a checkout, a link to its results/

Points = list[tuple[float, float]]  # of a curve: environment steps and return


class RecordedEvaluation(TypedDict):
    """Held-out episodes of a recorded run's best policy.  interval_95: half the width of its confidence interval."""

    policy_of_generation: int
    episodes: int
    mean: float
    interval_95: float


class Record(TypedDict):
    """What record.yaml holds of a run.

    overrides: KEY=VALUE, with which the recipe was trained.  ended: the stop rule that held.
    mark: mean return that counts as reached, None without one.  reached: whether the evaluation reached it.
    generation, steps, seconds: of training, in the end.
    tolerance: how far another run's curve may be off, as a share of the range of the recorded one.
    versions: package to version.
    """

    overrides: list[str]
    ended: str
    mark: NotRequired[float | None]
    reached: bool
    seed: int
    generation: int
    steps: int
    seconds: float
    ranks: int
    evaluation: RecordedEvaluation
    tolerance: float
    versions: dict[str, str]


@dataclass(frozen=True)
class Comparison:
    """Two learning curves, generation by generation.

    generations: how many were compared.  same: how many from the first on have the same digest.
    difference: mean absolute difference of the mean returns, as a share of the range of the recorded ones.
    """

    generations: int
    same: int
    difference: float


@dataclass(frozen=True)
class Reproduction:
    """A recipe that was trained again.  tolerance: the largest difference that counts as reproduced."""

    recipe: str
    comparison: Comparison
    tolerance: float

    @property
    def is_reproduced(self) -> bool:
        return self.comparison.difference <= self.tolerance

    def __str__(self) -> str:
        generations, same = self.comparison.generations, self.comparison.same
        how_many = "all" if same == generations else f"the first {same}"
        return (
            f"{self.recipe}: {generations} generations, {how_many} with the same bits; curves differ by "
            f"{self.comparison.difference:.1%} of their range, {self.tolerance:.0%} allowed: "
            f"{'reproduced' if self.is_reproduced else 'NOT reproduced'}"
        )


def reproduce_recipe(name: str, out: str | None, ranks: int, generations: int | None) -> Reproduction:
    """Train a recipe again and compare it with its record.

    name: of a folder of results/.  out: the run directory, None for the default.
    generations: how many to train at most, None for all that were recorded.  Raises ConfigError.
    """
    record, run = read_record(name), Path(out or f"runs/reproduce-{name}")
    train_again(name, record, run, ranks, generations)
    return Reproduction(name, compare(read_metrics(RESULTS / name), read_metrics(run)), record["tolerance"])


def read_record(name: str) -> Record:
    """The Record in results/NAME/record.yaml.  Raises ConfigError where there is none.

    name: RECIPE or RECIPE-VARIANT, for a run of configs/RECIPE.yaml.
    """
    file = RESULTS / name / "record.yaml"
    try:
        record: Record = yaml.safe_load(file.read_text())
    except (OSError, yaml.YAMLError):
        known = sorted(path.parent.name for path in RESULTS.glob("*/record.yaml"))
        raise ConfigError(
            f"{name} has no record; recorded recipes: {', '.join(known) or 'none in this installation'}"
        ) from None
    return record


def recipe_of(name: str) -> Path:
    """The config of a record's name."""
    return RECIPES / f"{name.partition('-')[0]}.yaml"


def train_again(name: str, record: Record, out: Path, ranks: int, generations: int | None) -> None:
    """Train the recipe's config with the recorded overrides, for as many generations as were recorded or fewer.

    Raises ConfigError where training fails.
    """
    limit = min(generations or record["generation"], record["generation"])
    train(ranks, [str(recipe_of(name)), "--out", str(out), *record["overrides"], f"stop.generations={limit}"])


def compare(recorded: Sequence[Mapping[str, str]], repeated: Sequence[Mapping[str, str]]) -> Comparison:
    """The Comparison of two runs.  recorded, repeated: their rows of metrics.csv; the shorter run limits it."""
    pairs = list(zip(recorded, repeated, strict=False))
    same = next((k for k, (old, new) in enumerate(pairs) if old["digest"] != new["digest"]), len(pairs))
    old, new = (np.array([float(row["return_mean"] or "nan") for row in rows]) for rows in zip(*pairs, strict=True))
    spread = np.nanmax(old) - np.nanmin(old) or 1.0
    return Comparison(len(pairs), same, float(np.nanmean(np.abs(old - new)) / spread))


def read_published(name: str) -> list[tuple[str, Points]]:
    """Curves that others published of a recipe, each with its name; often none."""
    file = RESULTS / name / "published.yaml"
    if not file.exists():
        return []
    return [(entry["curve"], [tuple(point) for point in entry["points"]]) for entry in yaml.safe_load(file.read_text())]


def describe(record: Record) -> str:
    """What was measured, on one line: a recipe quotes it in its heading."""
    evaluation = record["evaluation"]
    ranks = f"{record['ranks']} rank{'s' * (record['ranks'] > 1)}"
    return (
        f"seed {record['seed']}, {record['steps']:,} steps, {record['seconds']:,.0f} s on {ranks}; "
        f"{evaluation['mean'] + 0.0:,.1f} +- {evaluation['interval_95']:.1f} over {evaluation['episodes']} "
        "fresh episodes"
    )


@dataclass(frozen=True)
class Heading:
    """The comment at the beginning of a recipe.

    parts: `task`, `source`, `budget` and `status` to their texts.  variants: commands that train variants.
    """

    parts: dict[str, str]
    variants: list[str]


def read_heading(path: Path) -> Heading:
    """The Heading of a recipe's file."""
    parts: dict[str, str] = {}
    variants, key = [], "task"
    for line in path.read_text().splitlines():
        if not line.startswith("#"):
            break
        text = line[1:].strip()
        if text.startswith("mpies train "):
            variants.append(text)
            continue
        word, colon, rest = text.partition(": ")
        if colon and word.lower() in ("source", "budget", "status"):
            key, text = word.lower(), rest
        parts[key] = f"{parts[key]} {text}" if key in parts else text
    return Heading(parts, variants)


def list_recipes() -> str:
    """All recipes and how far each was taken, as a page of Markdown."""
    lines = ["# Recipes", "", "After this page you can choose a recipe, and you know what it reached here.", ""]
    lines += [
        "`mpies train NAME` trains a recipe. `mpies reproduce NAME` trains one again and compares it with its record."
    ]
    lines += ["The pictures also show curves that others published; `published.yaml` beside them has the sources."]
    lines += ["Generated from the headings of `configs/` by `mpies reproduce --list`.", ""]
    lines += ["| recipe | task and solver | source | budget | status |", "|---|---|---|---|---|"]
    for path in sorted(RECIPES.glob("*.yaml")):
        parts = read_heading(path).parts
        status = re.sub(
            "^(reached here|settings as published, not yet run to the end here)", r"**\1**", parts["status"]
        )
        parts["status"] = re.sub(r"(?<!/)\b(results/[\w-]+)", r"[\1](../\1/return.png)", status)
        name = f"[{path.stem}](../configs/{path.name})"
        lines.append(f"| {' | '.join([name, *(parts[key] for key in ('task', 'source', 'budget', 'status'))])} |")
    return "\n".join(lines)
