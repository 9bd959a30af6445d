"""mpies check, doctor, probe, verify: look before a run starts, and prove that it can be reproduced."""

import json

import click

from mpies.cli.parameters import CONFIG, COUNT, OPTIONAL_CONFIG, OVERRIDES, PATH, TRUST, end, user_errors
from mpies.core.errors import ConfigError


@click.command()
@OPTIONAL_CONFIG
@click.option("--schema", is_flag=True, help="Print the JSON schema of config files, for editors.")
@click.option("--keys", is_flag=True, help="Print every key with its default and meaning, as Markdown.")
@click.option("--ranks", default=2, type=COUNT, help="Number of ranks to predict the cost for.")
@TRUST
@OVERRIDES
@user_errors
def check(config: str | None, schema: bool, keys: bool, ranks: int, overrides: tuple[str, ...]) -> None:
    """Validate CONFIG and show its defaults and the cost of the run.

    CONFIG is the path of a YAML file, a recipe's name, or an environment's id.  It needs no MPI.
    """
    from mpies.config.loading import as_yaml, load_config, resolved
    from mpies.config.reference import describe_keys, make_schema

    if schema:
        click.echo(json.dumps(make_schema(), indent=2))
    elif keys:
        click.echo(describe_keys())
    elif config is None:
        raise ConfigError("check needs a config, such as the path of a file or cartpole, or --schema or --keys")
    else:
        from mpies.launch.forecast.dry_run import describe_needs
        from mpies.runs.directory import find_backend, with_backend
        from mpies.training.task import find_endless_episodes

        loaded = load_config(config, overrides, trains=False)
        loaded = with_backend(loaded, find_backend(None, loaded))
        cost = describe_needs(loaded, ranks)  # before anything is printed: it refuses what cannot run
        click.echo(as_yaml(resolved(loaded)), nl=False)
        click.echo(cost)
        if warning := find_endless_episodes(loaded.environment):
            click.echo(warning, err=True)


@click.command()
@OPTIONAL_CONFIG
@click.option("--out", default=".", help="Folder that runs will be written to.")
@OVERRIDES
@user_errors
def doctor(config: str | None, out: str, overrides: tuple[str, ...]) -> None:
    """Examine this shell, Slurm job or pod for what a run needs.

    Exit 1 if something would break a run.  The memory is checked against what CONFIG needs, or without CONFIG
    against what a small policy needs.
    """
    from mpies.launch.doctor import examine_config

    findings = []
    for finding in examine_config(config, overrides, out):
        click.echo(finding)
        findings.append(finding)
    end(all(finding.level != "BAD" for finding in findings))


@click.command()
@click.argument("environments", nargs=-1, required=True, metavar="ENVIRONMENT ...", type=PATH)
@click.option("--steps", default=300, type=COUNT, help="Maximum length of an episode, in steps.")
@click.option("--episodes", default=1000, type=click.IntRange(0), help="Episodes to measure the growth of memory over.")
@click.option("--fresh", is_flag=True, hidden=True, help="Print the traces of a fresh instance only.")
@user_errors
def probe(environments: tuple[str, ...], steps: int, episodes: int, fresh: bool) -> None:
    """Check whether episodes depend on their seed and actions alone.

    ENVIRONMENT is an environment's id or a config.  It also measures whether memory grows.  Exit 1 if one is not
    reproducible, or if every episode fails.
    """
    from mpies.report.probe import print_probes, print_traces

    if fresh:  # in the other process of a probe
        print_traces(environments[0], steps)
    else:
        end(print_probes(environments, steps, episodes))


@click.command()
@CONFIG
@click.option("--ranks", default="1,2,3", help="Numbers of ranks to compare.")
@click.option("--generations", default=5, type=COUNT, help="Generations to train on each.")
@OVERRIDES
@user_errors
def verify(config: str, ranks: str, generations: int, overrides: tuple[str, ...]) -> None:
    """Check that CONFIG gives the same bits on any number of ranks.

    It trains a few generations on each number of ranks, and once more with a stop in between.  Exit 1 if a bit differs.
    """
    from mpies.launch.forecast.simulate import parse_ranks
    from mpies.launch.train_again import verify_ranks

    end(verify_ranks(config, parse_ranks(ranks), generations, overrides))
