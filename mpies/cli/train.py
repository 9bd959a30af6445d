"""mpies train: train a policy."""

import os
import sys

import click

from mpies.cli.options import OVERRIDES, parse_seeds, user_errors


@click.command()
@click.argument("config")
@click.option("--out", help="Run directory; default runs/NAME-OF-CONFIG, with the overrides in its name.")
@click.option(
    "--resume",
    type=click.Choice(["auto", "never", "must"]),
    default="auto",
    show_default=True,
    help="auto continues a run that exists, never refuses to, must refuses to start a new one.",
)
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    envvar="MPIES_LOG",
    default="text",
    help="json: one JSON object per line, with its severity, for log viewers.  [env: MPIES_LOG]",
)
@click.option(
    "--ranks",
    type=click.IntRange(1),
    help="Start this many ranks with mpirun; Ctrl-C then finishes the generation first.",
)
@click.option("--seeds", metavar="N|A..B", help="Repeat with seeds 1 to N (or A to B), each in OUT-seed-K.")
@OVERRIDES
@user_errors
def train(
    config: str,
    out: str | None,
    resume: str,
    log_format: str,
    ranks: int | None,
    seeds: str | None,
    overrides: tuple[str, ...],
) -> None:
    """Train CONFIG, or continue an existing run from its newest checkpoint.

    Under mpirun or srun it trains on all their ranks, with --ranks on as many of its own, otherwise on one.
    """
    os.environ["MPIES_LOG"] = log_format  # where progress.py reads it
    from mpies.errors import ConfigError

    if seeds is not None and any(override.startswith("seed=") for override in overrides):
        raise ConfigError("--seeds and seed= exclude each other; leave one out")
    if ranks is not None:
        from mpies.jobs.supervisor import supervise_training

        sys.exit(supervise_training(config, out, resume, overrides, seeds, ranks, log_format))
    from mpies.jobs.rank import train_on_this_rank

    sys.exit(train_on_this_rank(config, out, resume, overrides, None if seeds is None else parse_seeds(seeds)))
