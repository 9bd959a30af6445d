"""What was recorded of recipes that were run, in results/NAME, and how far other learning curves may be off."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self, TypedDict

import numpy as np
import numpy.typing as npt
import yaml

from mpies.config.recipes import RESULTS, find_nearest, find_recipes, read_task, tell_nearest
from mpies.core.errors import ConfigError
from mpies.core.text import align
from mpies.runs.formats.metrics import read_rows

CUT_SHORT = "not run to its end"  # how a run ended that no stop rule ended
UNFINISHED = ("seconds", CUT_SHORT)  # ends of runs that more time would have taken further
NOT_RUN, NOT_RUN_TO_THE_END = "not run", "not run to the end"  # in the place of a return, in tables

Curve = npt.NDArray[np.float64]  # (g, 2): environment steps, and the members' mean return


class RecordedEvaluation(TypedDict):
    """Held-out episodes of a recorded run's best policy.  interval_95: half the width of its confidence interval."""

    policy_of_generation: int
    episodes: int
    mean: float
    interval_95: float


class RecordedSeed(TypedDict):
    """One recorded run.

    ended: the stop rule that held.  reached: whether the evaluation reached the mark.
    generation, steps, seconds, ranks: of training, in the end.  core_seconds: of all ranks, whose number may change.
    evaluation: None where the run left no policy.
    """

    seed: int
    ended: str
    reached: bool
    generation: int
    steps: int
    seconds: float
    ranks: int
    core_seconds: float
    evaluation: RecordedEvaluation | None


class OverSeeds(TypedDict):
    """The interquartile mean of the seeds' evaluations, and the ends of its 95 % bootstrap interval."""

    interquartile_mean: float
    interval_95: list[float]


class Record(TypedDict):
    """What record.yaml holds.

    mark: mean return that counts as reached, None without one.
    tolerance: how far another run's curve may be outside the band of the recorded ones, as a share of their range.
    over_seeds: None of a single seed.  seeds: every run that was recorded, failures too; metrics.csv and policy.h5 are
    those of the first.  versions: package to version.
    """

    mark: float | None
    tolerance: float
    over_seeds: OverSeeds | None
    seeds: list[RecordedSeed]
    versions: dict[str, str]


def read_record(name: str) -> Record:
    """The Record in results/NAME/record.yaml.  Raises ConfigError where there is none.

    name: of a recipe, or of a variant.
    """
    file = RESULTS / name / "record.yaml"
    try:
        record: Record = yaml.safe_load(file.read_text())
    except (OSError, yaml.YAMLError):
        known = sorted(path.parent.name for path in RESULTS.glob("*/record.yaml"))
        listed = f"recorded recipes: {', '.join(known) or 'none in this installation'}"
        raise ConfigError(f"{name} has no record; {tell_nearest(find_nearest(name, known)) or listed}") from None
    return record


def has_record(name: str) -> bool:
    """Whether a recipe or variant was recorded."""
    return (RESULTS / name / "record.yaml").exists()


def recipe_of(name: str) -> Path:
    """The config of a record's name.  Raises ConfigError where there is none."""
    path = find_recipes().get(name)
    if path is None:
        raise ConfigError(
            f"results/{name}: there is no recipe or variant of this name; write configs/variants/{name}.yaml"
        )
    return path


def metrics_file(name: str, record: Record, seed: int) -> Path:
    """The metrics of a recorded seed: metrics.csv of the first one, metrics-SEED.csv of the others."""
    is_first = seed == record["seeds"][0]["seed"]
    return RESULTS / name / ("metrics.csv" if is_first else f"metrics-{seed}.csv")


def read_recorded_metrics(name: str, record: Record, seed: int) -> list[dict[str, str]]:
    """The rows of a recorded seed's metrics, as text."""
    return read_rows(metrics_file(name, record, seed))


def curve_of(rows: Sequence[Mapping[str, str]]) -> Curve:
    """The Curve of rows of metrics.csv.  Generations without a return are left out."""
    points = [(float(row["steps"]), float(row["return_mean"])) for row in rows if row["return_mean"]]
    curve = np.array(points, float).reshape(-1, 2)
    return curve[np.isfinite(curve[:, 1])]


@dataclass(frozen=True)
class Band:
    """What lies between the lowest and the highest of some curves, at each number of steps."""

    curves: Sequence[Curve]

    @classmethod
    def of(cls, recorded: Iterable[Sequence[Mapping[str, str]]]) -> Self:
        """The Band of runs, given as rows of metrics.csv.  Those without any return are left out."""
        return cls([curve for curve in map(curve_of, recorded) if len(curve)])

    @property
    def spread(self) -> float:
        """The range of all returns; 1 where they are equal."""
        returns = np.concatenate([curve[:, 1] for curve in self.curves])
        return float(np.ptp(returns)) or 1.0

    def measure_distance(self, curve: Curve) -> float:
        """The mean distance of a curve's points from the band; 0 for points inside, NaN without a point.

        Between generations the band is interpolated; a curve that has ended keeps its last return.
        """
        if not len(curve):
            return math.nan
        steps, returns = curve[:, 0], curve[:, 1]
        at_steps = np.array([np.interp(steps, one[:, 0], one[:, 1]) for one in self.curves])  # (curves, g)
        outside = np.maximum(at_steps.min(axis=0) - returns, returns - at_steps.max(axis=0))
        return float(np.maximum(outside, 0.0).mean())


def is_reached(record: Record) -> bool:
    """Whether the evaluation, or of several seeds its interquartile mean, reached the mark."""
    over = record["over_seeds"]
    if over is None or record["mark"] is None:
        return record["mark"] is not None and record["seeds"][0]["reached"]
    return over["interquartile_mean"] >= record["mark"]


def is_finished(record: Record) -> bool:
    """Whether a seed was trained until its stop rule held, not only as long as there was time."""
    return any(seed["ended"] not in UNFINISHED for seed in record["seeds"])


def shorten(text: str) -> str:
    """The beginning of a part of a heading, up to its first pause."""
    return re.split(r"[.,;:](?: |$)| \(", text)[0]


def format_result(record: Record) -> str:
    """The mean return with its interval, unless all runs were cut short before the mark was reached."""
    return describe_return(record) if is_finished(record) or is_reached(record) else NOT_RUN_TO_THE_END


def describe_return(record: Record) -> str:
    """The mean return with its interval: over episodes of a single seed, else over the seeds."""
    over = record["over_seeds"]
    if over is not None:
        mean, (low, high) = over["interquartile_mean"], over["interval_95"]
        digits = 0 if abs(mean) >= 1000 else 1
        return f"{_rounded(mean, digits)} ({_rounded(low, digits)} to {_rounded(high, digits)})"
    evaluation = next((seed["evaluation"] for seed in record["seeds"] if seed["evaluation"]), None)
    return format_recorded_mean(evaluation) if evaluation else "no policy"


def format_recorded_mean(evaluation: RecordedEvaluation) -> str:
    """The mean return over held-out episodes, with its interval."""
    return f"{_rounded(evaluation['mean'], 1)} ± {evaluation['interval_95']:.1f}"


def _rounded(value: float, digits: int) -> str:
    """So many decimals of a number, never -0.0."""
    return f"{round(value, digits) + 0.0:,.{digits}f}"


def list_recipes() -> str:
    """All recipes and variants with their task, and what they reached here: a table for a terminal."""
    rows = [("recipe", "task", "mean return")]
    for name, path in find_recipes().items():
        reached = format_result(read_record(name)) if has_record(name) else NOT_RUN
        rows.append((name, shorten(read_task(path)), reached))
    return align(rows)
