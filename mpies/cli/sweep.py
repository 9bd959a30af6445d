"""mpies sweep: train many runs, whose settings vary."""

import os
import sys

import click

from mpies.cli import completion
from mpies.cli.options import CONFIG, COUNT, user_errors


@click.command()
@CONFIG
@click.option("--seeds", metavar="N|A..B", help="Train each of the settings with seeds 1 to N, or A to B.")
@click.option("--trials", type=COUNT, help="How many times values are drawn, where any are.")
@click.option("--draw-seed", type=click.IntRange(0), help="Decides on the values that are drawn.  [default: 1]")
@click.option("--out", help="Folder of the sweep; default runs/NAME-OF-CONFIG_sweep, with the keys in its name.")
@click.option("--ranks", type=COUNT, help="Start this many ranks with mpirun.")
@click.option("--ranks-per-run", type=COUNT, default=1, show_default=True, help="Ranks that train a run together.")
@click.option("--retry", is_flag=True, help="Train the trials that have failed once more.")
@click.option("--dry-run", is_flag=True, help="Check and list all trials, but write nothing.")
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    envvar="MPIES_LOG",
    default="text",
    help="json: one JSON object per line, with its severity, for log viewers.  [env: MPIES_LOG]",
)
@click.argument("overrides", nargs=-1, metavar="[KEY=V1,V2 ...]", shell_complete=completion.complete_override)
@user_errors
def sweep(
    config: str,
    seeds: str | None,
    trials: int | None,
    draw_seed: int | None,
    out: str | None,
    ranks: int | None,
    ranks_per_run: int,
    retry: bool,
    dry_run: bool,
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
    from mpies.runs.files import default_out
    from mpies.sweeps.folder import SweepFolder
    from mpies.sweeps.settings import read_override
    from mpies.sweeps.trials import load_sweep

    out = out or str(default_out(config, ["sweep", *(override.partition("=")[0] for override in overrides)]))
    request = jobs.SweepRequest(
        lambda: load_sweep(config, dict(map(read_override, overrides)), trials, seeds, draw_seed),
        out,
        ranks_per_run,
        retry,
        jobs.print_result,
    )
    if dry_run:
        sys.exit(jobs.dry_run(request, ranks))
    if ranks is None:
        sys.exit(jobs.sweep_on_this_rank(request))
    given = {"--seeds": seeds, "--trials": trials, "--draw-seed": draw_seed, "--log-format": log_format}
    words = [str(word) for flag, value in given.items() if value is not None for word in (flag, value)]
    folder = SweepFolder(out, request.load())
    sys.exit(jobs.supervise_sweep([*words, "--", config, *overrides], request, ranks, folder).run())
