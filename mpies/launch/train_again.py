"""Train again in processes of their own and compare: on other numbers of ranks, or with what was recorded."""

import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from mpies.comm import mpiexec
from mpies.config.loading import load_config
from mpies.core.errors import ConfigError
from mpies.core.text import counted
from mpies.report.records import Band, curve_of, read_record, read_recorded_metrics, recipe_of
from mpies.runs.formats.metrics import read_digests, read_metrics

# Training ends after a number of generations, and for no other reason.  No other tool follows it.
FORCED = (
    *("stop.target=null", "stop.steps=null", "stop.seconds=null", "evaluation.every=0"),
    *("tracking.wandb=null", "tracking.tensorboard=false", "tracking.json=false"),
)

Rows = Sequence[Mapping[str, str]]  # of metrics.csv


class TrainProcessFailed(ConfigError):
    """Training on a number of ranks has ended with another exit code than 0.  reason: its last error, in one line."""

    def __init__(self, ranks: int, code: int, reason: str) -> None:
        super().__init__(f"training on {counted(ranks, 'rank')} ended with code {code}: {reason}")
        self.code, self.reason = code, reason


def train_in_processes(ranks: int, arguments: Sequence[str]) -> None:
    """Run `mpies train` with these arguments to its end, without MPI on one rank.  Raises TrainProcessFailed."""
    arguments = ["train", "--log-format", "text", *arguments]
    command = [sys.executable, "-P", "-m", "mpies", *arguments]
    if ranks > 1:
        command = mpiexec.command(mpiexec.require("--ranks"), ranks, arguments)
    done = mpiexec.run(command)
    if done.returncode:
        raise TrainProcessFailed(ranks, done.returncode, find_reason(done.stderr.replace("\0", "")))


def find_reason(output: str) -> str:
    """The line with which `mpies train` says that it ends, and what was raised where a traceback follows it.

    Else the last lines of its standard error.
    """
    told = re.search(r"^mpies: (.*)(?:\nTraceback.*(?:\n .*)*\n(.*))?", output, re.MULTILINE)
    return " ".join(filter(None, told.groups())) if told else " ".join(output.splitlines()[-3:])


def verify_ranks(path: str | Path, counts: Sequence[int], generations: int, overrides: Sequence[str]) -> bool:
    """Train this many generations on each number of ranks, compare the digests, and print a line for each number.

    On the first number of ranks it is also stopped after half of the generations and resumed.
    Returns whether all digests are equal.  Raises ConfigError for a bad config, if several ranks are wanted and there
    is no mpiexec, and if training fails on the first number of ranks.
    """
    overrides = [*overrides, *FORCED]
    config = load_config(path, overrides)
    if max(counts) > 1:
        mpiexec.require("--ranks")
    click.echo(f"{path}: {config.environment.id}, {counted(generations, 'generation')}")
    with tempfile.TemporaryDirectory(prefix="mpies-verify-") as folder:

        def train_until(generation: int, ranks: int, out: str) -> list[str]:
            """The digests of a run that is trained up to a generation."""
            run = Path(folder) / out
            words = [str(path), "--out", str(run), *overrides, f"stop.generations={generation}"]
            train_in_processes(ranks, words)
            return read_digests(run)

        expected, differing, failed = train_until(generations, counts[0], "first"), [], []
        _print_row(counts[0], expected, "same")
        for ranks in counts[1:]:
            try:
                digests = train_until(generations, ranks, f"ranks-{ranks}")
            except TrainProcessFailed as error:
                click.echo(f"{_name_row(ranks)}  failed with code {error.code}: {error.reason}")
                failed.append(ranks)
                continue
            _print_row(ranks, digests, compare_digests(expected, digests))
            if digests != expected:
                differing.append(ranks)
        resumed = expected
        if half := generations // 2:
            train_until(half, counts[0], "resumed")
            resumed = train_until(generations, counts[0], "resumed")
            verdict = compare_digests(expected, resumed)
            _print_row(counts[0], resumed, f"{verdict}, stopped after generation {half} and resumed")
    problem = ""
    if differing:
        problem = "NOT the same bits: check the environment with mpies probe"
    elif resumed != expected:
        problem = (
            "NOT the same bits after a stop: does the environment or the solver keep state that checkpoints do not "
            "contain?"
        )
    elif failed:
        problem = f"NOT proven: training failed on {' and on '.join(counted(ranks, 'rank') for ranks in failed)}"
    click.echo(problem or "the same bits on all")
    return not problem


def _print_row(ranks: int, digests: Sequence[str], verdict: str) -> None:
    click.echo(f"{_name_row(ranks)}  {digests[-1][:16]}  {verdict}")


def _name_row(ranks: int) -> str:
    return f"{ranks:>4} {'rank ' if ranks == 1 else 'ranks'}"


def compare_digests(first: Sequence[str], second: Sequence[str]) -> str:
    """In words, whether two runs of equal length have the same digests, or from which generation on they differ."""
    pairs = enumerate(zip(first, second, strict=True), 1)
    return next((f"differs from generation {number} on" for number, (one, other) in pairs if one != other), "same")


@dataclass(frozen=True)
class Reproduction:
    """A recipe that was trained again: its learning curve beside the band of the recorded ones.

    generations: how many were compared.  same: how many from the first on have the same digest as the recorded run of
    this seed; None where the seed was not recorded.
    seeds: how many curves the band has.  difference: mean distance from it, as a share of the range of its curves.
    tolerance: the largest difference that counts as reproduced.
    """

    recipe: str
    seed: int
    generations: int
    same: int | None
    seeds: int
    difference: float
    tolerance: float

    @property
    def is_reproduced(self) -> bool:
        return self.difference <= self.tolerance

    def __str__(self) -> str:
        how_many = "all" if self.same == self.generations else f"the first {self.same}"
        bits = "a seed that was not recorded" if self.same is None else f"{how_many} with the same bits"
        band = f"is outside the band of {self.seeds} seeds" if self.seeds > 1 else "differs from the recorded one"
        return (
            f"{self.recipe}, seed {self.seed}: {counted(self.generations, 'generation')}, {bits}; the curve {band} "
            f"by {self.difference:.1%} of {'its' if self.seeds > 1 else 'the'} range, {self.tolerance:.0%} allowed: "
            f"{'reproduced' if self.is_reproduced else 'NOT reproduced'}"
        )


def reproduce_recipe(
    name: str, out: str | None, ranks: int, generations: int | None, seed: int | None = None
) -> Reproduction:
    """Train a recipe again and compare it with its record.

    name: of a folder of results/.  out: the run directory, None for the default.
    generations: how many to train at most, None for all that were recorded; of a seed that was not recorded, these are
    as many as the longest recorded run has.
    seed: also one that was not recorded; None for the first that was.  Raises ConfigError.
    """
    record = read_record(name)
    lengths = {one["seed"]: one["generation"] for one in record["seeds"]}
    first = record["seeds"][0]["seed"]
    seed = first if seed is None else seed
    run = Path(out or f"runs/reproduce-{name}{'' if seed == first else f'-seed-{seed}'}")
    recorded_length = lengths.get(seed, max(lengths.values()))
    limit = min(generations or recorded_length, recorded_length)
    words = [str(recipe_of(name)), "--out", str(run), f"seed={seed}", f"stop.generations={limit}"]
    train_in_processes(ranks, words)
    recorded = {known: read_recorded_metrics(name, record, known) for known in lengths}
    return Reproduction(name, seed, *compare_curves(recorded, seed, read_metrics(run)), record["tolerance"])


def compare_curves(recorded: Mapping[int, Rows], seed: int, repeated: Rows) -> tuple[int, int | None, int, float]:
    """The generations, same, seeds and difference of a Reproduction.

    recorded: seed to rows of metrics.csv.  repeated: the run's; of a recorded seed, not more than were recorded count.
    """
    same = None
    if seed in recorded:
        pairs = list(zip(recorded[seed], repeated, strict=False))
        same = next((k for k, (old, new) in enumerate(pairs) if old["digest"] != new["digest"]), len(pairs))
        repeated = [new for _, new in pairs]
    band = Band.of(recorded.values())
    return len(repeated), same, len(recorded), band.measure_distance(curve_of(repeated)) / band.spread
