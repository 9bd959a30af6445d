"""mpies plot, report, compare, dashboard, replay, reproduce: look at runs and check them."""

import contextlib
from pathlib import Path

import click

from mpies.cli.parameters import COUNT, RUN, RUNS, TRUST, NumberRange, echo, end, refuse_given, user_errors
from mpies.core.errors import RunError
from mpies.core.paths import absolute
from mpies.core.text import align

WIDTH = click.option("--width", default=8.0, type=NumberRange(3, 40), help="Width of a plot in inches.")
FORMATS = click.option(
    "--format",
    "formats",
    multiple=True,
    default=["png"],
    type=click.Choice(["png", "pdf", "svg"]),
    help="Format of the pictures; may be given several times.",
)
SCALE = click.option(
    "--scale",
    default="auto",
    type=click.Choice(["auto", "linear", "log"]),
    help="Scale of returns; auto is logarithmic if all have one sign and they span orders of magnitude.",
)


@click.command()
@RUNS
@WIDTH
@click.option("--trajectory", is_flag=True, help="Instead, draw the path of the search: trajectory.png, landscape.png.")
@click.option("--umap", is_flag=True, help="With --trajectory: also trajectory_umap.png, drawn by umap-learn.")
@click.option("--grid", default=15, type=click.IntRange(3, 200), help="Points per side of landscape.png.")
@click.option("--episodes", default=3, type=COUNT, help="Episodes per point of landscape.png.")
@click.option("--members", default=4, type=COUNT, help="Members of each generation, at most, in trajectory.png.")
@FORMATS
@SCALE
@TRUST
@user_errors
def plot(
    runs: tuple[str, ...],
    width: float,
    trajectory: bool,
    umap: bool,
    grid: int,
    episodes: int,
    members: int,
    formats: tuple[str, ...],
    scale: str,
) -> None:
    """Draw the return of runs against time, generations and steps.

    The pictures are reward_vs_*.png in the directory of each RUN.  A RUN without a generation is left out.  With
    --trajectory, a RUN of fewer than three generations is left out too, and one whose mean never moved.
    """
    from mpies.report.compare.curves import read_curves
    from mpies.report.figures import write_plots

    if trajectory:
        refuse_given(("scale",), "has no effect with --trajectory; leave it out")
    else:
        refuse_given(("umap", "grid", "episodes", "members"), "needs --trajectory; add it, or leave it out")
    left_out, names = [], dict.fromkeys(str(Path(run)) for run in runs)  # none is drawn twice
    for run in names:
        try:
            curves = read_curves(run)
            if trajectory:
                from mpies.report.trajectory import write_landscape

                paths = write_landscape(run, umap, grid, episodes, width, formats, members)
            else:
                paths = write_plots(curves, width, formats, scale)
            for path in paths:
                echo(path)
        except RunError as error:
            left_out.append(str(error))
    if len(left_out) == len(names):
        raise RunError("; ".join(left_out))
    for reason in left_out:
        click.echo(f"left out: {reason}", err=True)


@click.command()
@RUN
@click.option("--out", help="File to write; default RUN/report.html.")
@click.option("--video", is_flag=True, help="First record an episode of the best policy as RUN/video.mp4.")
@TRUST
@user_errors
def report(run: str, out: str | None, video: bool) -> None:
    """Write one HTML file about RUN that opens anywhere.

    It shows what was trained and on what, the curves, the evaluation, the seeds, a video, and how to reproduce it.
    """
    from mpies.report.compare.curves import read_curves
    from mpies.report.document import write_report

    if video:
        from mpies.report.evaluate import show_policy
        from mpies.runs.formats.policy_file import load_policy

        read_curves(run)  # else a policy file would be played first
        show_policy(load_policy(run), 1, None, Path(run) / "video.mp4")
        out, run = out or str(Path(run) / "report.html"), str(absolute(run))  # the environment may have left the folder
    echo(write_report(run, out))


@click.command()
@RUNS
@click.option("--out", default="comparison", help="Folder for comparison.csv, comparison_vs_*.png and so on.")
@WIDTH
@FORMATS
@SCALE
@click.option(
    "--band",
    default="bootstrap",
    type=click.Choice(["bootstrap", "range"]),
    help="bootstrap: interquartile mean and its 95 % interval; range: mean, worst and best seed.",
)
@click.option("--machine", help="Name of the machine that trained all runs; default as recorded, if it is the same.")
@user_errors
def compare(
    runs: tuple[str, ...], out: str, width: float, formats: tuple[str, ...], scale: str, band: str, machine: str | None
) -> None:
    """Compare configs over their seeds.

    Each RUN is a run, or a folder with runs in it.  Runs that differ only in the seed are one group.  For a single
    sweep, all settings are ranked in ranking.csv and ranking.json, and the best ten are compared.  Seconds are compared
    only if all runs were trained on the same machine.
    """
    from mpies.report.compare.curves import find_machine, read_all_curves
    from mpies.report.compare.run_groups import group_runs
    from mpies.report.compare.statistics import tabulate, write_comparison
    from mpies.sweeps.comparison import is_sweep, rank_sweep

    is_whole = len(runs) == 1 and is_sweep(runs[0])
    if is_whole:
        groups = rank_sweep(runs[0], out)
    else:
        curves, left_out = read_all_curves(runs)
        groups = group_runs(curves)
        for reason in [*left_out, *(line for group in groups for line in group.tell_left_out())]:
            click.echo(f"left out: {reason}", err=True)
    if machine is None:
        machine = find_machine(run for group in groups for run in group.runs)
    if not is_whole:
        echo(align(tabulate(groups, machine)))
    if not groups:  # of a sweep that has not begun
        return
    for path in write_comparison(groups, out, width, formats, band, scale, machine):
        echo(path)


@click.command()
@click.argument("folder", metavar="[DIR]", default="runs")
@click.option("--host", default="127.0.0.1", help="Address to listen on; 0.0.0.0 for all.")
@click.option("--port", default=8050, type=click.IntRange(0, 65535), help="Port to listen on; 0 picks a free one.")
@user_errors
def dashboard(folder: str, host: str, port: int) -> None:
    """Serve a live web page of the runs below DIR (default: runs).

    It prints the address of the page, with a token that keeps others out.  It only reads.  Ctrl-C ends it.
    """
    from mpies.report.web.dashboard import serve

    with serve(folder, host, port) as server:
        echo(f"the runs of {folder} are on {server.url}")
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()
        click.echo("")


@click.command()
@RUN
@click.option("--generation", required=True, type=click.IntRange(0), help="The generation to recompute.")
@click.option("--out", help="Write it as a policy file, for evaluate.")
@TRUST
@user_errors
def replay(run: str, generation: int, out: str | None) -> None:
    """Recompute the mean of any generation of RUN from its ledger.

    It plays no episode and needs no environment.  Exit 1 if a bit differs from the recorded state.
    """
    from mpies.training.replay import Replay

    replayed = Replay(run, generation)
    if out:
        replayed.save(out)
    same = replayed.is_faithful()
    verdict = "the recorded one" if same else "NOT the recorded one: other package builds or processor?"
    size = replayed.learner.solver.dimension
    echo(f"{run}: generation {generation}, {size:,} parameters, digest {replayed.digest[:16]}: {verdict}")
    end(same)


@click.command()
def recipes() -> None:
    """List the recipes and what each reached."""
    from mpies.report.records import list_recipes

    echo(list_recipes())


@click.command()
@click.argument("recipe")
@click.option(
    "--out",
    help="Run directory; default runs/reproduce-RECIPE, with -seed-S for another seed. An existing run is continued.",
)
@click.option("--seed", type=click.IntRange(0), help="Seed to train, recorded or not; default the first recorded one.")
@click.option("--ranks", default=1, type=COUNT, help="Number of ranks to train on.")
@click.option("--generations", type=COUNT, help="Generations to train; default all that were recorded.")
@user_errors
def reproduce(recipe: str, out: str | None, seed: int | None, ranks: int, generations: int | None) -> None:
    """Train a recipe again and compare it with the recorded runs.

    RECIPE is a name that mpies recipes shows with a result.  Exit 1 if the learning curve is outside the band of the
    recorded ones by more than the recorded tolerance.
    """
    from mpies.launch.train_again import reproduce_recipe

    outcome = reproduce_recipe(recipe, out, ranks, generations, seed)
    echo(outcome)
    end(outcome.is_reproduced)
