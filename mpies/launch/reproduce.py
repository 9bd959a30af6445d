"""Train a recipe again, and compare it with what was recorded."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mpies.core.text import counted
from mpies.launch.train_process import train
from mpies.report.records import Band, Record, curve_of, read_record, read_recorded_metrics, recipe_of
from mpies.runs.metrics import read_metrics

Rows = Sequence[Mapping[str, str]]  # of metrics.csv


@dataclass(frozen=True)
class Comparison:
    """A learning curve beside the band of the recorded ones.

    generations: how many were compared.  same: how many from the first on have the same digest as the recorded run of
    this seed; None where the seed was not recorded.
    seeds: how many curves the band has.  difference: mean distance from it, as a share of the range of its curves.
    """

    generations: int
    same: int | None
    seeds: int
    difference: float


@dataclass(frozen=True)
class Reproduction:
    """A recipe that was trained again.  tolerance: the largest difference that counts as reproduced."""

    recipe: str
    seed: int
    comparison: Comparison
    tolerance: float

    @property
    def is_reproduced(self) -> bool:
        return self.comparison.difference <= self.tolerance

    def __str__(self) -> str:
        generations, same, seeds = self.comparison.generations, self.comparison.same, self.comparison.seeds
        how_many = "all" if same == generations else f"the first {same}"
        bits = "a seed that was not recorded" if same is None else f"{how_many} with the same bits"
        apart = f"is outside the band of {seeds} seeds by" if seeds > 1 else "differs from the recorded one by"
        return (
            f"{self.recipe}, seed {self.seed}: {counted(generations, 'generation')}, {bits}; the curve {apart} "
            f"{self.comparison.difference:.1%} of {'its' if seeds > 1 else 'the'} range, {self.tolerance:.0%} allowed: "
            f"{'reproduced' if self.is_reproduced else 'NOT reproduced'}"
        )


def reproduce_recipe(
    name: str, out: str | None, ranks: int, generations: int | None, seed: int | None = None
) -> Reproduction:
    """Train a recipe again and compare it with its record.

    name: of a folder of results/.  out: the run directory, None for the default.
    generations: how many to train at most, None for all that were recorded.
    seed: also one that was not recorded; None for the first that was.  Raises ConfigError.
    """
    record = read_record(name)
    first = record["seeds"][0]["seed"]
    seed = first if seed is None else seed
    run = Path(out or f"runs/reproduce-{name}{'' if seed == first else f'-seed-{seed}'}")
    train_again(name, record, seed, run, ranks, generations)
    return Reproduction(name, seed, compare_with_record(name, record, seed, read_metrics(run)), record["tolerance"])


def train_again(name: str, record: Record, seed: int, out: Path, ranks: int, generations: int | None) -> None:
    """Train the recipe with a seed, for as many generations as were recorded or fewer.

    Of a seed that was not recorded, these are as many as the longest recorded run has.  Raises ConfigError where
    training fails.
    """
    lengths = {one["seed"]: one["generation"] for one in record["seeds"]}
    recorded = lengths.get(seed, max(lengths.values()))
    limit = min(generations or recorded, recorded)
    train(ranks, [str(recipe_of(name)), "--out", str(out), f"seed={seed}", f"stop.generations={limit}"])


def compare_with_record(name: str, record: Record, seed: int, repeated: Rows) -> Comparison:
    """The Comparison of a run with a record.  repeated: the run's rows of metrics.csv."""
    recorded = {one["seed"]: read_recorded_metrics(name, record, one["seed"]) for one in record["seeds"]}
    return compare(recorded, seed, repeated)


def compare(recorded: Mapping[int, Rows], seed: int, repeated: Rows) -> Comparison:
    """The Comparison of a run of this seed with the recorded ones.

    recorded: seed to rows of metrics.csv.  repeated: the run's; of a recorded seed, not more than were recorded count.
    """
    same = None
    if seed in recorded:
        pairs = list(zip(recorded[seed], repeated, strict=False))
        same = next((k for k, (old, new) in enumerate(pairs) if old["digest"] != new["digest"]), len(pairs))
        repeated = [new for _, new in pairs]
    band = Band.of(recorded.values())
    difference = band.measure_distance(curve_of(repeated)) / band.spread
    return Comparison(len(repeated), same, len(recorded), difference)
