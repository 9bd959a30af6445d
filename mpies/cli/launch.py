"""mpies launch slurm, launch k8s: submit a run to a cluster."""

import sys
from collections.abc import Callable

import click

from mpies.cli.options import CONFIG, COUNT, OVERRIDES, user_errors


@click.group()
def launch() -> None:
    """Write what a cluster needs to train a config, and submit it."""


def cluster_options(command: Callable[..., None]) -> Callable[..., None]:
    """A command with the arguments and options that both clusters take."""
    options: list[Callable[[Callable[..., None]], Callable[..., None]]] = [
        CONFIG,
        click.option("--nodes", default=1, show_default=True, type=COUNT, help="Number of nodes."),
        click.option("--ranks-per-node", default=4, show_default=True, type=COUNT, help="Ranks per node."),
        click.option("--out", help="Run directory, or on Kubernetes its name; default that of train."),
        click.option(
            "--constants", metavar="FILE", help="What bench wrote for CONFIG; the time limit is computed from it."
        ),
        click.option("--dry-run", is_flag=True, help="Write the files, but do not submit."),
        click.option("--sweep", is_flag=True, help="Train many settings: CONFIG and KEY=V1,V2 as for mpies sweep."),
        click.option("--seeds", metavar="N|A..B", help="With --sweep: seeds of each of the settings."),
        click.option("--trials", type=COUNT, help="With --sweep: how many settings are drawn, if values are random."),
        click.option("--ranks-per-run", type=COUNT, help="With --sweep: ranks that train a run together."),
        OVERRIDES,
        user_errors,
    ]
    for option in reversed(options):
        command = option(command)
    return command


def check_sweep_options(
    is_sweep: bool, seeds: str | None, trials: int | None, ranks_per_run: int | None
) -> tuple[str | None, int | None, int | None]:
    """The last three as they are.  Raises ConfigError where they are given without --sweep."""
    from mpies.errors import ConfigError

    for option, value in (("--seeds", seeds), ("--trials", trials), ("--ranks-per-run", ranks_per_run)):
        if value is not None and not is_sweep:
            raise ConfigError(f"{option} is for a sweep; add --sweep, or leave it out")
    return seeds, trials, ranks_per_run


@launch.command()
@cluster_options
@click.option("--time", help="Time limit in Slurm's notation; default computed.")
@click.option("--account", help="Slurm account; default the site's.")
@click.option("--partition", help="Slurm partition; default the site's.")
def slurm(
    config: str,
    nodes: int,
    ranks_per_node: int,
    out: str | None,
    constants: str | None,
    dry_run: bool,
    sweep: bool,
    seeds: str | None,
    trials: int | None,
    ranks_per_run: int | None,
    overrides: tuple[str, ...],
    time: str | None,
    account: str | None,
    partition: str | None,
) -> None:
    """Train CONFIG as a batch job, which continues by itself after its time limit or the loss of a node."""
    from mpies.jobs import slurm
    from mpies.jobs.submit import plan
    from mpies.jobs.submit_sweep import plan_sweep

    arguments = config, overrides, out, nodes, ranks_per_node, constants, time, account, partition
    wanted = check_sweep_options(sweep, seeds, trials, ranks_per_run)
    job = plan_sweep(*arguments, *wanted)[0] if sweep else plan(*arguments)
    sys.exit(slurm.launch(job, not dry_run, click.echo))


@launch.command()
@cluster_options
@click.option("--base", metavar="DIR", help="Kustomize folder to build on; default k8s/mpi-operator/base.")
@click.option("--image", help="Container image; default the base's.")
def k8s(
    config: str,
    nodes: int,
    ranks_per_node: int,
    out: str | None,
    constants: str | None,
    dry_run: bool,
    sweep: bool,
    seeds: str | None,
    trials: int | None,
    ranks_per_run: int | None,
    overrides: tuple[str, ...],
    base: str | None,
    image: str | None,
) -> None:
    """Train CONFIG as an MPIJob; a node is a worker."""
    from mpies.jobs import kubernetes
    from mpies.jobs.submit import plan
    from mpies.jobs.submit_sweep import as_sweep_file, plan_sweep

    arguments = config, overrides, out, nodes, ranks_per_node, constants, None, None, None
    wanted = check_sweep_options(sweep, seeds, trials, ranks_per_run)
    if sweep:
        job, text = as_sweep_file(*plan_sweep(*arguments, *wanted))
        sys.exit(kubernetes.launch(job, base, image, not dry_run, click.echo, text))
    sys.exit(kubernetes.launch(plan(*arguments), base, image, not dry_run, click.echo))
