"""mpies launch slurm, pbs, lsf, k8s: submit a run to a cluster."""

import functools
import sys
from collections.abc import Callable
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import click

from mpies.cli.parameters import CONFIG, COUNT, OVERRIDES, Decorator, add_options, sweep_options, user_errors
from mpies.core.errors import ConfigError

if TYPE_CHECKING:
    from mpies.launch.cluster.submit import Job
    from mpies.sweeps.trials import SweepOptions


@click.group()
def launch() -> None:
    """Write a cluster's job that trains a config, and submit it."""


CLUSTER_OPTIONS: list[Decorator] = [
    CONFIG,
    click.option("--nodes", default=1, type=COUNT, help="Number of nodes."),
    click.option("--ranks-per-node", default=4, type=COUNT, help="Ranks per node."),
    click.option("--out", help="Run directory (on Kubernetes, its name); default as for mpies train."),
    click.option(
        "--constants", metavar="FILE", help="File that mpies bench wrote for CONFIG, to predict how long it takes."
    ),
    click.option("--dry-run", is_flag=True, help="Write the files, but do not submit."),
    click.option("--sweep", is_flag=True, help="Train many settings; KEY=V1,V2 and the options below describe them."),
    sweep_options,
    click.option("--ranks-per-run", type=COUNT, help="Number of ranks for each run."),
    OVERRIDES,
]


def cluster_options(command: Callable[..., None]) -> Callable[..., None]:
    """A command with the arguments and options of all clusters; it gets them as the Job that they ask for."""

    @functools.wraps(command)
    def run(sweep: bool, options: "SweepOptions", ranks_per_run: int | None, **given: Any) -> None:
        from mpies.launch.cluster.submit import Request, plan_run, plan_sweep

        request = Request(**{entry.name: given.pop(entry.name) for entry in fields(Request) if entry.name in given})
        if sweep:
            job = plan_sweep(request, options, ranks_per_run)
        elif words := [*options.words(), *(["--ranks-per-run"] if ranks_per_run else [])]:
            raise ConfigError(f"{words[0]} is for a sweep; add --sweep, or leave it out")
        else:
            job = plan_run(request)
        command(job=job, **given)

    return add_options(user_errors(run), CLUSTER_OPTIONS)


def batch_options(where: str) -> Decorator:
    """A command with the options of a batch system.  where: its word for a partition."""
    options = [
        click.option("--time", help="Time limit, HH:MM:SS or D-HH:MM:SS; default computed."),
        click.option("--account", help="Account to charge; default the site's."),
        click.option(f"--{where}", "partition", help=f"The {where}; default the site's."),
    ]
    return lambda command: add_options(command, options)


@launch.command()
@cluster_options
@batch_options("partition")
@click.option("--sbatch", metavar="'--qos=long ...'", help="Further options of sbatch for the script.")
def slurm(job: "Job", dry_run: bool) -> None:
    """Train CONFIG as a batch job that requeues itself.

    It writes the script OUT.sbatch and submits it.  The job continues by itself after its time limit or the loss of a
    node.
    """
    from mpies.launch.cluster.slurm import launch_batch_job

    sys.exit(launch_batch_job(job, not dry_run, click.echo))


def _add_batch_system(kind: str, name: str) -> None:
    script = f"It writes the script OUT.{kind} and submits it.  The job submits itself again at its time limit."

    @launch.command(kind, help=f"Train CONFIG as a batch job of {name}.\n\n{script}")
    @cluster_options
    @batch_options("queue")
    def command(job: "Job", dry_run: bool) -> None:
        from mpies.launch.cluster.pbs_lsf import launch_self_submitting_job

        sys.exit(launch_self_submitting_job(job, kind, not dry_run, click.echo))


_add_batch_system("pbs", "PBS Pro")
_add_batch_system("lsf", "LSF")


@launch.command()
@cluster_options
@click.option("--base", metavar="DIR", help="Kustomize folder to build on; default k8s/mpi-operator/base.")
@click.option("--image", help="Container image; default the base's.")
@click.option("--context", help="Cluster of kubectl's config; default its current one.")
@click.option("--namespace", help="Namespace of the job; default the context's.")
def k8s(job: "Job", dry_run: bool, base: str | None, image: str | None, **cluster: str | None) -> None:
    """Train CONFIG as an MPIJob; a node is a worker.

    It writes the folder OUT.k8s with the manifests, and applies it by kubectl.  A job of this name that has ended is
    replaced; one that runs is not.
    """
    from mpies.launch.cluster.kubernetes import launch_mpijob

    options = [f"--{name}={value}" for name, value in cluster.items() if value]
    sys.exit(launch_mpijob(job, base, image, options, not dry_run, click.echo))
