"""mpies sweep: train many runs, whose settings vary."""

import os
import sys
from typing import TYPE_CHECKING

import click

from mpies.cli.parameters import CONFIG, COUNT, LOG_FORMAT, RANKS, host_options, sweep_options, user_errors

if TYPE_CHECKING:
    from mpies.comm import Communicator
    from mpies.launch.hosts import Where
    from mpies.sweeps.trials import SweepOptions


@click.command()
@CONFIG
@sweep_options
@click.option("--out", help="Folder of the sweep; default runs/NAME-OF-CONFIG_sweep, with the keys in its name.")
@click.option("--ranks", type=RANKS, metavar="N|auto", help="Start this many ranks with mpirun; auto: all there are.")
@host_options
@click.option(
    "--ranks-per-run", type=COUNT, help="Number of ranks for each run; default one, or more where ranks would be idle."
)
@click.option("--retry", is_flag=True, help="Train failed trials again.")
@click.option("--dry-run", is_flag=True, help="Check and list all trials, with core hours, but write nothing.")
@click.option("--constants", metavar="FILE", help="With --dry-run: file that mpies bench wrote for CONFIG.")
@LOG_FORMAT
@click.argument("overrides", nargs=-1, metavar="[KEY=V1,V2 ...]")
@user_errors
def sweep(
    config: str,
    options: "SweepOptions",
    out: str | None,
    ranks: int | None,
    where: "Where",
    ranks_per_run: int | None,
    retry: bool,
    dry_run: bool,
    constants: str | None,
    log_format: str,
    overrides: tuple[str, ...],
) -> None:
    """Train CONFIG once for each of the settings and each seed.

    KEY=V1,V2 names the values of a setting.  Several keys make a grid.  Each run is a trial.  Every rank of mpirun or
    srun, or of --ranks, takes the next trial as soon as it is free.  The same command continues a sweep that was
    stopped, and several jobs may work on one sweep.  CONFIG is as for mpies train, or a sweep file with the keys base,
    vary, trials and seeds (docs/sweeps.md).
    """
    os.environ["MPIES_LOG"] = log_format  # where progress.py reads it
    from mpies.launch.sweep_job import supervise_sweep, sweep_on_this_rank
    from mpies.runs.files import default_out
    from mpies.sweeps.folder import SweepFolder
    from mpies.sweeps.table import print_result
    from mpies.sweeps.train_sweep import SweepRequest

    out = out or str(default_out(config, ["sweep", *(override.partition("=")[0] for override in overrides)]))
    request = SweepRequest(lambda: options.load(config, overrides), out, ranks_per_run, retry, print_result)
    if dry_run:
        from mpies.launch.forecast.dry_run import describe_sweep, show_on_one_rank
        from mpies.launch.hosts import count_slots

        slots, on_node = count_slots(where, ranks)

        def describe(comm: "Communicator") -> str:
            size = slots or comm.size
            return describe_sweep(request, constants, size, on_node or (size if slots else comm.node_size))

        sys.exit(show_on_one_rank(describe))
    if ranks is None and not where.hosts and not where.hostfile:
        sys.exit(sweep_on_this_rank(request))
    words = [*options.words(), "--log-format", log_format, "--", config, *overrides]
    sys.exit(supervise_sweep(words, request, ranks, SweepFolder(out, request.load()), where).run())
