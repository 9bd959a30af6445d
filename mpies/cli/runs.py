"""mpies runs: list runs, and remove those that are named."""

import json
import math
import time
from collections.abc import Iterable, Sequence
from typing import Any

import click

from mpies.cli.parameters import PATH, echo, end, refuse_given, user_errors
from mpies.core.errors import ConfigError
from mpies.core.paths import absolute
from mpies.core.text import align


@click.command()
@click.argument("paths", type=PATH, nargs=-1, metavar="[DIR]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON list on standard output.")
@click.option("--prune", is_flag=True, help="Remove the runs that are named in place of DIR: --prune RUN ...")
@click.option("--yes", is_flag=True, help="With --prune: do not ask.")
@user_errors
def runs(paths: tuple[str, ...], as_json: bool, prune: bool, yes: bool) -> None:
    """List the runs below DIR (default: runs) and their progress.

    The newest is first.  If a run is damaged or cannot be read, a line says why, and the exit code is 1.  With --prune,
    remove the runs that are named instead.  If one of them is still being written,
    nothing is removed.
    """
    from mpies.report.web.run_index import summarize_runs

    if prune:
        refuse_given(("as_json",), "has no effect with --prune; leave it out")
        remove(paths, yes)
        return
    refuse_given(("yes",), "needs --prune; add it, or leave it out")
    if len(paths) > 1:
        raise ConfigError("runs accepts one folder; to remove runs, use mpies runs --prune RUN ...")
    folder = paths[0] if paths else "runs"
    rows = summarize_runs(folder)
    if as_json:
        echo(json.dumps(rows))
    elif rows:
        echo(format_table(rows))
    else:
        click.echo(f"{folder}: contains no run yet", err=True)
    damaged = [row for row in rows if "reason" in row]
    for row in damaged:
        click.echo(f"{row['path']}: {row['reason']}", err=True)
    end(not damaged)


def remove(paths: Sequence[str], yes: bool) -> None:
    """Remove the runs at these paths, after asking unless `yes`; where one must be kept, raise UserError instead."""
    from mpies.report.web.run_index import summarize_runs
    from mpies.runs.directory import check_removable, remove_run

    if not paths:
        raise ConfigError("--prune needs the runs to remove: mpies runs --prune RUN ...")
    for path in paths:
        check_removable(path)
    paths = list({absolute(path).resolve(): path for path in paths}.values())  # nothing is removed twice
    if not yes:
        echo(format_table([row for path in paths for row in summarize_runs(path)]))
        click.confirm(f"Remove {'this run' if len(paths) == 1 else f'these {len(paths)} runs'}?", abort=True)
    for path in paths:
        remove_run(path)
        echo(f"{path}: removed")


def format_table(rows: Iterable[dict[str, Any]]) -> str:
    """Rows of `summarize_runs` as text."""
    from mpies.report.display import format_duration
    from mpies.training.progress import format_mean

    table = [("run", "status", "generation", "evaluation", "time", "size", "changed")]
    for row in rows:
        generation, mean = row.get("generation"), row.get("eval_mean")
        table.append(
            (
                row["path"],
                row["status"],
                "-" if generation is None else f"{generation:.0f}",
                "-" if mean is None else format_mean(mean, row.get("eval_interval", math.nan)),
                format_duration(row.get("seconds") or 0),
                f"{row['size'] / 1e6:,.1f} MB",
                time.strftime("%Y-%m-%d %H:%M", time.localtime(row["changed"])),
            )
        )
    return align(table, left=2)
