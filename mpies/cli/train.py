"""mpies train: train a policy."""

import os
import sys

import click

from mpies.cli import completion
from mpies.cli.options import CONFIG, COUNT, OVERRIDES, NumberRange, parse_seeds, user_errors


@click.command()
@CONFIG
@click.option(
    "--out",
    shell_complete=completion.complete_run,
    help="Run directory; default runs/NAME-OF-CONFIG, with the overrides in its name.",
)
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
    type=COUNT,
    help="Start this many ranks with mpirun; Ctrl-C then finishes the generation first.",
)
@click.option("--hosts", metavar="H1:8,H2:8", help="Start ranks on these hosts, so many on each; slurm: on this job's.")
@click.option("--hostfile", metavar="FILE", help="A file with lines NAME slots=N, or a program that prints them.")
@click.option("--min-ranks", type=COUNT, default=1, help="Where hosts are lost, go on with this many ranks.")
@click.option("--wait", type=NumberRange(0), default=0.0, help="Seconds that hosts have to answer before a start.")
@click.option(
    "--restarts", type=click.IntRange(0), default=100, show_default=True, help="At most, where ranks end early."
)
@click.option("--launcher", default="auto", help="In a Slurm job: auto, srun, srun:pmix, srun:pmi2 or mpirun.")
@click.option("--seeds", metavar="N|A..B", help="Repeat with seeds 1 to N (or A to B), each in OUT-seed-K.")
@click.option("--dry-run", is_flag=True, help="Check everything and print what would be done, but write nothing.")
@OVERRIDES
@user_errors
def train(
    config: str,
    out: str | None,
    resume: str,
    log_format: str,
    ranks: int | None,
    hosts: str | None,
    hostfile: str | None,
    min_ranks: int,
    wait: float,
    restarts: int,
    launcher: str,
    seeds: str | None,
    dry_run: bool,
    overrides: tuple[str, ...],
) -> None:
    """Train CONFIG, or continue its run from the newest checkpoint.

    Under mpirun or srun it trains on all their ranks, with --ranks on as many of its own, otherwise on one.
    """
    os.environ["MPIES_LOG"] = log_format  # where progress.py reads it
    from mpies.errors import ConfigError

    if seeds is not None and any(override.startswith("seed=") for override in overrides):
        raise ConfigError("--seeds and seed= exclude each other; leave one out")
    numbers = None if seeds is None else parse_seeds(seeds)
    if dry_run:
        from mpies.jobs import dry_run as dry
        from mpies.jobs.hosts import find_source

        source = find_source(hosts, hostfile)
        slots = sum(host.slots for host in source.hosts()) if source else ranks
        sys.exit(dry.dry_run(config, out, resume, overrides, numbers, min(ranks or slots, slots) if slots else None))
    if ranks is not None or hosts or hostfile:
        from mpies.jobs.supervisor import Where, supervise_training

        where = Where(hosts, hostfile, min_ranks, wait, restarts, launcher)
        sys.exit(supervise_training(config, out, resume, overrides, numbers, ranks, log_format, where))
    from mpies.jobs.rank import train_on_this_rank

    sys.exit(train_on_this_rank(config, out, resume, overrides, numbers))
