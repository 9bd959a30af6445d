"""mpies bench, simulate: measure a machine, and predict how training scales on it."""

import json
import sys
from dataclasses import asdict

import click

from mpies.cli.parameters import COUNT, OPTIONAL_CONFIG, OVERRIDES, PATH, NumberRange, user_errors


@click.command()
@OPTIONAL_CONFIG
@click.option("--out", help="Write the constants to this YAML file, for simulate.")
@click.option("--repeats", default=7, type=COUNT, help="Repeats of each measurement.")
@click.option("--generations", default=3, type=COUNT, help="Generations of CONFIG to play.")
@OVERRIDES
def bench(config: str | None, out: str | None, repeats: int, generations: int, overrides: tuple[str, ...]) -> None:
    """Measure this machine, and the episodes of CONFIG if given.

    Under mpirun or srun it measures the allocation, otherwise one rank.
    """
    from mpies.launch.ranks.rank import this_rank

    with this_rank() as comm:
        from mpies.launch.forecast.bench import run_bench

        code = run_bench(comm, config, overrides, out, repeats, generations)
    sys.exit(code)


@click.command()
@click.argument("task", metavar="CONFIG|D,N,T,CV[,LONGEST]", type=PATH)
@click.option(
    "--constants",
    metavar="FILE",
    help="File that mpies bench wrote; default, for numbers, an assumed cluster with 36 cores per node.",
)
@click.option("--ranks", help="Numbers of ranks, like 1,2,36 or 1..10000; default 1..10000.")
@click.option(
    "--generations", type=COUNT, help="Generations of a run, for its cost; default those of CONFIG, for numbers 1000."
)
@click.option("--price", type=NumberRange(0), help="Price of a core hour, in any currency; shows the cost.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON list on standard output.")
@OVERRIDES
@user_errors
def simulate(
    task: str,
    constants: str | None,
    ranks: str | None,
    generations: int | None,
    price: float | None,
    as_json: bool,
    overrides: tuple[str, ...],
) -> None:
    """Predict how a generation scales with the number of ranks.

    The generation is of CONFIG, with episodes as mpies bench measured them (--constants), or of D parameters and N
    episodes.  These take T seconds on average, with coefficient of variation CV, and LONGEST at most.
    """
    from mpies.config.loading import load_config
    from mpies.launch.forecast import simulate as model
    from mpies.launch.forecast.constants import Constants, find_workload, read_constants

    known = read_constants(constants) if constants else Constants()
    workload = find_workload(task, overrides, known)
    pairs = model.predict_pairs(known.machine, workload, model.parse_ranks(ranks or "1..10000"))
    if as_json:
        click.echo(json.dumps([[asdict(prediction) for prediction in pair] for pair in pairs]))
    else:
        generations = generations or (load_config(task, overrides).stop.generations if workload.environment else 1000)
        click.echo(model.describe_predictions(workload, pairs, generations, price))
