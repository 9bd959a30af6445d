"""mpies train: train a policy."""

import gc
import os
import sys
from typing import TYPE_CHECKING

import click

from mpies.cli.parameters import CONFIG, LOG_FORMAT, OVERRIDES, PATH, RANKS, host_options, user_errors
from mpies.core.errors import ConfigError

if TYPE_CHECKING:
    from mpies.launch.hosts import Where


@click.command()
@CONFIG
@click.option("--out", type=PATH, help="Run directory; default runs/NAME-OF-CONFIG, with the overrides in its name.")
@click.option(
    "--resume",
    type=click.Choice(["auto", "never", "must"]),
    default="auto",
    help="auto continues an existing run or starts a new one; never refuses to continue; must refuses to start.",
)
@LOG_FORMAT
@click.option(
    "--ranks",
    type=RANKS,
    metavar="N|auto",
    help="Start this many ranks with mpirun, at best one for each core; auto: one for each processor here.",
)
@host_options
@click.option(
    "--seeds", metavar="N|A..B", help="Train seeds 1 to N, or A to B, one after the other, each in OUT-seed-K."
)
@click.option("--dry-run", is_flag=True, help="Check everything and print what would be done, but write nothing.")
@OVERRIDES
@user_errors
def train(
    config: str,
    out: str | None,
    resume: str,
    log_format: str,
    ranks: int | None,
    where: "Where",
    seeds: str | None,
    dry_run: bool,
    overrides: tuple[str, ...],
) -> None:
    """Train CONFIG, or continue its run from the newest checkpoint.

    CONFIG is the path of a YAML file, a recipe's name (mpies recipes), or an environment's id.  KEY=VALUE
    replaces a setting of it, such as solver.sigma=0.05 (mpies check --keys).

    Under mpirun or srun it trains on all ranks.  With --ranks N it starts N ranks itself.  Otherwise it uses one.

    Ctrl-C stops it after the current generation, and the same command continues the run.
    """
    os.environ["MPIES_LOG"] = log_format  # where progress.py reads it

    if seeds is not None and any(override.startswith("seed=") for override in overrides):
        raise ConfigError("--seeds and seed= cannot be used together; leave one out")
    numbers = None
    if seeds is not None:
        from mpies.sweeps.settings import read_seeds

        numbers = read_seeds(seeds)
    if dry_run:
        from mpies.launch.forecast.dry_run import describe_training, show_on_one_rank
        from mpies.launch.hosts import count_slots

        slots, _ = count_slots(where, ranks)
        plan = config, out, resume, overrides, numbers, slots
        sys.exit(show_on_one_rank(lambda comm: describe_training(*plan, comm.size)))
    if ranks is not None or where.hosts or where.hostfile:
        from mpies.launch.supervisor import supervise_training

        sys.exit(supervise_training(config, out, resume, overrides, numbers, ranks, log_format, where))
    gc.disable()  # what imports make is no garbage, and looking for some takes a tenth of their time
    from mpies.launch.ranks.rank import train_on_this_rank

    gc.enable()
    sys.exit(train_on_this_rank(config, out, resume, overrides, numbers))
