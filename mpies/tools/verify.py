"""Verify that a config gives the same bits on different numbers of ranks."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

import click

from mpies.config.loading import load_config
from mpies.runs.metrics import read_digests
from mpies.tools.train_process import require_mpiexec, train


def verify_ranks(path: str | Path, counts: Sequence[int], generations: int, overrides: Sequence[str]) -> bool:
    """Train this many generations on each number of ranks, compare the digests, and print a line for each number.

    Returns whether all digests are equal.  Raises ConfigError for a bad config, or if several ranks are wanted and
    there is no mpiexec.
    """
    overrides = [*overrides, f"stop.generations={generations}", "evaluation.every=0"]
    config = load_config(path, overrides)
    if max(counts) > 1:
        require_mpiexec()
    click.echo(f"{path}: {config.environment.id}, {generations} generations")
    digests: dict[int, list[str]] = {}
    with tempfile.TemporaryDirectory(prefix="mpies-verify-") as folder:
        for ranks in counts:
            out = Path(folder) / f"ranks-{ranks}"
            train(ranks, [str(path), "--out", str(out), *overrides])
            digests[ranks] = read_digests(out)
            verdict = compare_digests(digests[counts[0]], digests[ranks])
            click.echo(f"{ranks:>4} ranks  {digests[ranks][-1][:16]}  {verdict}")
    are_equal = all(each == digests[counts[0]] for each in digests.values())
    click.echo("the same bits on all" if are_equal else "NOT the same bits: look at the environment with mpies probe")
    return are_equal


def compare_digests(first: Sequence[str], second: Sequence[str]) -> str:
    """In words, whether two runs of equal length have the same digests, or from which generation on they differ."""
    for generation, (one, other) in enumerate(zip(first, second, strict=True), 1):
        if one != other:
            return f"differs from generation {generation} on"
    return "same"
