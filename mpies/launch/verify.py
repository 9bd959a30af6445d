"""Verify that a config gives the same bits on different numbers of ranks, and after a stop."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

import click

from mpies.config.loading import load_config
from mpies.core.text import counted
from mpies.launch.train_process import TrainProcessFailed, require_mpiexec, train
from mpies.runs.metrics import read_digests

# Training ends after a number of generations, and for no other reason.  No other tool follows it.
FORCED = (
    *("stop.target=null", "stop.steps=null", "stop.seconds=null", "evaluation.every=0"),
    *("tracking.wandb=null", "tracking.tensorboard=false", "tracking.json=false"),
)


def verify_ranks(path: str | Path, counts: Sequence[int], generations: int, overrides: Sequence[str]) -> bool:
    """Train this many generations on each number of ranks, compare the digests, and print a line for each number.

    On the first number of ranks it is also stopped after half of the generations and resumed.
    Returns whether all digests are equal.  Raises ConfigError for a bad config, if several ranks are wanted and there
    is no mpiexec, and if training fails on the first number of ranks.
    """
    overrides = [*overrides, *FORCED]
    config = load_config(path, overrides)
    if max(counts) > 1:
        require_mpiexec()
    click.echo(f"{path}: {config.environment.id}, {counted(generations, 'generation')}")
    with tempfile.TemporaryDirectory(prefix="mpies-verify-") as folder:

        def train_until(generation: int, ranks: int, out: str) -> list[str]:
            """The digests of a run that is trained up to a generation."""
            run = Path(folder) / out
            train(ranks, [str(path), "--out", str(run), *overrides, f"stop.generations={generation}"])
            return read_digests(run)

        expected, differing, failed = train_until(generations, counts[0], "first"), [], []
        print_row(counts[0], expected, "same")
        for ranks in counts[1:]:
            try:
                digests = train_until(generations, ranks, f"ranks-{ranks}")
            except TrainProcessFailed as error:
                click.echo(f"{_name_row(ranks)}  failed with code {error.code}: {error.reason}")
                failed.append(ranks)
                continue
            print_row(ranks, digests, compare_digests(expected, digests))
            if digests != expected:
                differing.append(ranks)
        resumed = expected
        if half := generations // 2:
            train_until(half, counts[0], "resumed")
            resumed = train_until(generations, counts[0], "resumed")
            verdict = compare_digests(expected, resumed)
            print_row(counts[0], resumed, f"{verdict}, stopped after generation {half} and resumed")
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


def print_row(ranks: int, digests: Sequence[str], verdict: str) -> None:
    """Print the line of a number of ranks."""
    click.echo(f"{_name_row(ranks)}  {digests[-1][:16]}  {verdict}")


def _name_row(ranks: int) -> str:
    return f"{ranks:>4} {'rank ' if ranks == 1 else 'ranks'}"


def compare_digests(first: Sequence[str], second: Sequence[str]) -> str:
    """In words, whether two runs of equal length have the same digests, or from which generation on they differ."""
    for generation, (one, other) in enumerate(zip(first, second, strict=True), 1):
        if one != other:
            return f"differs from generation {generation} on"
    return "same"
