"""mpies sweep: train many runs, whose settings vary."""

import os
import sys
from typing import TYPE_CHECKING

import click

from mpies.cli import completion
from mpies.cli.options import CONFIG, COUNT, LOG_FORMAT, host_options, user_errors

if TYPE_CHECKING:
    from mpies.jobs.hosts import Where


@click.command()
@CONFIG
@click.option("--seeds", metavar="N|A..B", help="Train each of the settings with seeds 1 to N, or A to B.")
@click.option("--trials", type=COUNT, help="How many settings are drawn, if values are random.")
@click.option("--draw-seed", type=click.IntRange(0), help="Seed of the values that are drawn.  [default: 1]")
@click.option("--out", help="Folder of the sweep; default runs/NAME-OF-CONFIG_sweep, with the keys in its name.")
@click.option("--ranks", type=COUNT, help="Start this many ranks with mpirun.")
@host_options
@click.option("--ranks-per-run", type=COUNT, help="Ranks that train a run together; default one, or what is efficient.")
@click.option("--halving", metavar="first=N,eta=3", help="Train only the best settings to the end.")
@click.option("--sampler", metavar="kind=tpe,batch=N", help="Have Optuna propose --trials settings in batches.")
@click.option("--retry", is_flag=True, help="Train the trials that have failed once more.")
@click.option("--dry-run", is_flag=True, help="Check and list all trials, with core hours, but write nothing.")
@click.option("--constants", metavar="FILE", help="What bench wrote for CONFIG; core hours are predicted from it.")
@LOG_FORMAT
@click.argument("overrides", nargs=-1, metavar="[KEY=V1,V2 ...]", shell_complete=completion.complete_override)
@user_errors
def sweep(
    config: str,
    seeds: str | None,
    trials: int | None,
    draw_seed: int | None,
    out: str | None,
    ranks: int | None,
    where: "Where",
    ranks_per_run: int | None,
    halving: str | None,
    sampler: str | None,
    retry: bool,
    dry_run: bool,
    constants: str | None,
    log_format: str,
    overrides: tuple[str, ...],
) -> None:
    """Train CONFIG once for each of the settings and each seed.

    Every rank of mpirun or srun, or of --ranks, takes the next trial as soon as it is free.  The same command goes on
    with a sweep that was stopped, and several jobs may work on one sweep.  CONFIG may be a sweep file, with the keys
    base, vary, trials and seeds (docs/sweeps.md).
    """
    os.environ["MPIES_LOG"] = log_format  # where progress.py reads it
    from mpies.jobs import sweep as jobs
    from mpies.jobs.sweep_output import print_result
    from mpies.runs.files import default_out
    from mpies.sweeps.folder import SweepFolder
    from mpies.sweeps.settings import read_override
    from mpies.sweeps.trials import load_sweep

    out = out or str(default_out(config, ["sweep", *(override.partition("=")[0] for override in overrides)]))
    request = jobs.SweepRequest(
        lambda: load_sweep(config, dict(map(read_override, overrides)), trials, seeds, draw_seed, halving, sampler),
        out,
        ranks_per_run,
        retry,
        print_result,
        is_live=True,
        constants=constants,
    )
    if dry_run:
        from mpies.jobs.hosts import count_slots
        from mpies.jobs.sweep_dry_run import dry_run as dry

        sys.exit(dry(request, *count_slots(where.hosts, where.hostfile, ranks)))
    if ranks is None and not where.hosts and not where.hostfile:
        sys.exit(jobs.sweep_on_this_rank(request))
    given = {
        "--seeds": seeds,
        "--trials": trials,
        "--draw-seed": draw_seed,
        "--halving": halving,
        "--sampler": sampler,
        "--log-format": log_format,
    }
    words = [str(word) for flag, value in given.items() if value is not None for word in (flag, value)]
    folder = SweepFolder(out, request.load())
    sys.exit(jobs.supervise_sweep([*words, "--", config, *overrides], request, ranks, folder, where).run())
