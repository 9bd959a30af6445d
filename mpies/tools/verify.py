"""Proof of contract 1: the same config on different numbers of ranks gives the same bits."""

from mpies.config.loading import load_config
from mpies.errors import ConfigError
from mpies.runs.metrics import read_metrics
import sys
import tempfile
from pathlib import Path

import click

from mpies.comm import mpiexec


def verify_ranks(path, counts, generations, overrides):
    """Train `generations` on each number of ranks and compare the digests, printing as it goes.

    Returns whether all are equal.  Raises ConfigError for a bad config, or when ranks are asked for
    and there is no mpiexec.
    """
    overrides = [*overrides, f"stop.generations={generations}", "evaluation.every=0"]
    loaded = load_config(path, overrides)
    program = mpiexec.find()
    if program is None and counts != [1]:
        raise ConfigError('verify on several ranks needs mpiexec; pip install "mpies[mpi]" or load an MPI')
    click.echo(f"{path}: {loaded.environment.id}, {generations} generations")
    with tempfile.TemporaryDirectory(prefix="mpies-verify-") as folder:
        digests = {}
        for ranks in counts:
            out = Path(folder) / f"ranks-{ranks}"
            digests[ranks] = _digests(program, ranks, path, overrides, out)
            click.echo(f"{ranks:>4} ranks  {digests[ranks][-1][:16]}  {_verdict(digests[counts[0]], digests[ranks])}")
    same = all(each == digests[counts[0]] for each in digests.values())
    click.echo("the same bits on all" if same else "NOT the same bits: this environment or build keeps no contract")
    return same


def _verdict(first, these):
    for generation, (one, other) in enumerate(zip(first, these, strict=True), 1):
        if one != other:
            return f"differs from generation {generation} on"
    return "same"


def _digests(program, ranks, path, overrides, out):
    """The digest column of a run; on one rank the serial twin is what runs."""
    arguments = ["train", str(path), "--out", str(out), *overrides]
    run = [sys.executable, "-m", "mpies", *arguments] if ranks == 1 else mpiexec.command(program, ranks, arguments)
    done = mpiexec.run(run)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.startswith("mpies: ")] or done.stderr.splitlines()
        raise ConfigError(f"training on {ranks} ranks ended with code {done.returncode}: {' '.join(lines[:3])}")
    return [row["digest"] for row in read_metrics(out)]
