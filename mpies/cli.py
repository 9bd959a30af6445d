"""The command line.  Heavy modules are imported by the command that needs them."""

import contextlib
import functools
import os
import sys
from pathlib import Path

import click

# What the process says to schedulers; see DESIGN: 75 means "stopped after a complete checkpoint, requeue me".
FINISHED, FAILED, USER_ERROR, REQUEUE = 0, 1, 2, 75


def user_errors(command):
    """Turn a user's mistake into one line and exit code 2."""

    @functools.wraps(command)
    def run(*args, **kwargs):
        from envs import EnvironmentProblem
        from mpies.config import ConfigError
        from mpies.store import StoreError

        try:
            return command(*args, **kwargs)
        except (ConfigError, EnvironmentProblem, StoreError) as error:
            fail(str(error))

    return run


def fail(message):
    """Say one line on standard error and end with exit code 2."""
    click.echo(f"mpies: {message}", err=True)
    sys.exit(USER_ERROR)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="mpies")
def main():
    """Train policies by evolution strategies: one YAML file, any number of ranks, the same bits."""


OVERRIDES = click.argument("overrides", nargs=-1, metavar="[KEY=VALUE ...]")


@main.command()
@click.argument("config")
@click.option("--out", help="Run directory; default runs/NAME-OF-CONFIG, with the overrides in its name.")
@click.option("--resume", type=click.Choice(["auto", "never", "must"]), default="auto", show_default=True)
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    envvar="MPIES_LOG",
    default="text",
    help="json: a JSON object a line, with its severity, for log viewers.  [env: MPIES_LOG]",
)
@click.option("--seeds", metavar="N|A..B", help="Repeat with seeds 1 to N (or A to B), each in OUT-seed-K.")
@OVERRIDES
def train(config, out, resume, log_format, seeds, overrides):
    """Train CONFIG; an existing run goes on from its newest checkpoint.

    Under mpirun or srun on all their ranks, else on one.
    """
    os.environ["MPIES_LOG"] = log_format
    from mpies.launch import train_on_this_rank

    repeats = None
    if seeds is not None:
        first, dots, last = seeds.rpartition("..")
        first = first if dots else "1"
        if not (first.isdigit() and last.isdigit() and int(first) <= int(last)):
            fail(f"--seeds must be a number such as 5, or a range such as 6..10, but is {seeds!r}")
        if any(override.startswith("seed=") for override in overrides):
            fail("--seeds and seed= exclude each other; leave one out")
        repeats = range(int(first), int(last) + 1)
    sys.exit(train_on_this_rank(config, out, resume, overrides, repeats))


@main.command()
@click.argument("config", required=False)
@click.option("--schema", is_flag=True, help="Print the JSON schema of config files, for editors.")
@click.option("--keys", is_flag=True, help="Print every key with its default and meaning, as Markdown.")
@click.option("--ranks", default=2, show_default=True, help="Ranks that the cost is worked out for.")
@OVERRIDES
@user_errors
def check(config, schema, keys, ranks, overrides):
    """Validate CONFIG, print it resolved and what it will cost; needs no MPI."""
    from mpies import config as configs
    from mpies.keys import Config, document

    if schema:
        import json

        click.echo(json.dumps(Config.model_json_schema(), indent=2))
    elif keys:
        click.echo(document())
    elif config is None:
        fail("check needs the path of a config, or --schema or --keys")
    else:
        from mpies.cost import describe_cost

        loaded = configs.load(config, overrides)
        cost = describe_cost(loaded, ranks)  # first: it refuses what cannot run
        click.echo(configs.as_yaml(configs.resolved(loaded)), nl=False)
        click.echo(cost)


@main.command()
@click.argument("policy")
@click.option("--episodes", default=100, show_default=True, type=click.IntRange(1))
@click.option("--seed", type=click.IntRange(0), help="Of the episodes; default the run's, never used in training.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
@user_errors
def evaluate(policy, episodes, seed, as_json):
    """Play POLICY (a run directory or a policy file) on held-out episodes."""
    from mpies.evaluate import evaluate_policy

    result = evaluate_policy(policy, episodes, seed)
    if as_json:
        import json

        click.echo(json.dumps(result))
        return
    low, high = result["mean"] - result["interval"], result["mean"] + result["interval"]
    click.echo(
        f"{result['environment']}, {result['policy']}, generation {result['generation']}: mean return "
        f"{result['mean']:.2f} over {result['episodes']} held-out episodes "
        f"(95 % confidence {low:.2f} to {high:.2f}; min {result['min']:.2f}, max {result['max']:.2f}, "
        f"mean length {result['length']:.0f})"
    )


@main.command()
@click.argument("config")
@click.option("--ranks", default="1,2,3", show_default=True, help="Numbers of ranks to compare.")
@click.option("--generations", default=5, show_default=True, type=click.IntRange(1))
@OVERRIDES
@user_errors
def verify(config, ranks, generations, overrides):
    """Prove that CONFIG gives the same bits on different numbers of ranks; exit 1 where it does not."""
    from mpies.verify import verify_ranks

    try:
        counts = [int(part) for part in ranks.split(",")]
        if min(counts) < 1:
            raise ValueError
    except ValueError:
        fail(f"--ranks must be numbers like 1,2,3, but is {ranks!r}")
    sys.exit(FINISHED if verify_ranks(config, counts, generations, overrides) else FAILED)


@main.command()
@click.argument("environments", nargs=-1, required=True, metavar="ENVIRONMENT ...")
@click.option("--steps", default=300, show_default=True, type=click.IntRange(1), help="Of an episode, at most.")
@click.option("--episodes", default=1000, show_default=True, type=click.IntRange(0), help="To watch the memory over.")
@click.option("--markdown", is_flag=True, help="Print a table as in docs/environments.md.")
@click.option("--fresh", is_flag=True, hidden=True, help="Print the traces of a fresh instance only.")
@user_errors
def probe(environments, steps, episodes, markdown, fresh):
    """Tell whether an episode of each ENVIRONMENT (an id, or a config) depends on its seed and actions alone.

    Exit 1 where one is not reproducible.
    """
    from mpies.probe import print_probes

    sys.exit(FINISHED if print_probes(environments, steps, episodes, markdown, fresh) else FAILED)


@main.command()
@click.argument("run")
@click.option("--generation", required=True, type=click.IntRange(0), help="The generation to rebuild.")
@click.option("--out", help="Write it as a policy file, for evaluate.")
@user_errors
def replay(run, generation, out):
    """Rebuild the mean of any generation of RUN from its ledger, without an environment; exit 1 if not to the bit."""
    from pathlib import Path

    from mpies.replay import Replay

    found = Replay(Path(run), generation)
    if out:
        found.save(out)
    same = "the recorded one" if found.faithful() else "NOT the recorded one: other package builds or processor?"
    click.echo(
        f"{run}: generation {generation}, {found.solver.dimension} parameters, digest {found.digest[:16]}: {same}"
    )
    sys.exit(FINISHED if found.faithful() else FAILED)


@main.command()
@click.argument("policy")
@click.option("--to", required=True, help="policy.npz, policy.onnx, or policy.py, which needs NumPy alone.")
@user_errors
def export(policy, to):
    """Write POLICY (a run directory or a policy file) for other programs."""
    from mpies.export import export_policy

    click.echo(f"{to}: {export_policy(policy, to)}")


@main.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
@click.option("--width", default=8.0, show_default=True, type=click.FloatRange(3, 40), help="Of a picture, in inches.")
@click.option("--trajectory", is_flag=True, help="Where the search went instead: trajectory.png and landscape.png.")
@click.option("--umap", is_flag=True, help="With --trajectory: trajectory_umap.png too, by umap-learn.")
@click.option(
    "--grid", default=15, show_default=True, type=click.IntRange(3, 200), help="Of landscape.png: places a side."
)
@click.option("--episodes", default=3, show_default=True, type=click.IntRange(1), help="Of landscape.png: per place.")
@user_errors
def plot(runs, width, trajectory, umap, grid, episodes):
    """Draw the return of each RUN against time, generations and steps: reward_vs_*.png in its directory."""
    from mpies.curves import read_curves
    from mpies.plots import write_pictures

    for run in runs:
        if trajectory:
            from mpies.landscape import write_landscape

            written = write_landscape(run, umap, grid, episodes, width)
        else:
            curves = read_curves(run)
            written = write_pictures(curves.path, curves, width)
        for path in written:
            click.echo(path)


@main.command()
@click.argument("run")
@click.option("--out", help="The file; default RUN/report.html.")
@user_errors
def report(run, out):
    """Write one HTML file about RUN that opens anywhere: what was run, curves, result, how to reproduce it."""
    from pathlib import Path

    from mpies.curves import read_curves
    from mpies.plots import write_file
    from mpies.report import make_report

    path = Path(out) if out else Path(run) / "report.html"
    write_file(path, make_report(read_curves(run)).encode())
    click.echo(path)


@main.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
@click.option("--out", default=".", show_default=True, help="Where comparison_vs_*.png go.")
@click.option("--width", default=8.0, show_default=True, type=click.FloatRange(3, 40), help="Of a picture, in inches.")
@user_errors
def compare(runs, out, width):
    """Compare configs over their seeds: RUNs that differ in the seed alone are one group."""
    from pathlib import Path

    from rich import box, console, table

    from mpies import compare as comparison
    from mpies.curves import read_curves
    from mpies.plots import AXES, image, write_file

    groups = comparison.group_runs([read_curves(run) for run in runs])
    shown = table.Table(*comparison.HEADINGS, box=box.SIMPLE)
    for row in comparison.tabulate(groups):
        shown.add_row(*row)
    console.Console(width=None if sys.stdout.isatty() else 140).print(shown)
    try:
        Path(out).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        fail(f"--out {out}: cannot be made ({error.strerror})")
    for axis in AXES:
        path = Path(out) / f"comparison_vs_{axis}.png"
        write_file(path, image(comparison.draw_comparison(groups, axis, width)))
        click.echo(path)


@main.command()
@click.argument("run")
@click.option("--video", help="Record to this .mp4 or .gif; without it, a window shows the episodes.")
@click.option("--episodes", default=1, show_default=True, type=click.IntRange(1))
@click.option("--seed", type=click.IntRange(0), help="Of the episodes; default the run's, never used in training.")
@click.option("--member", metavar="G,K", help="Play member K (from 0) of generation G (from 1) again instead.")
@user_errors
def play(run, video, episodes, seed, member):
    """Show or record the best policy of RUN (a run directory, also while it goes on, or a policy file).

    With --member, play a recorded member again; exit 1 where it does not return what it did.
    """
    if member is None:
        from mpies.film import play_policy

        generation, returns = play_policy(run, episodes, seed, video)
        shown = ", ".join(f"{value:.2f}" for value in returns)
        click.echo(f"{video or run}: generation {generation}, return {shown}")
        return
    from pathlib import Path

    from mpies.film import filming
    from mpies.replay import play_member

    generation, comma, number = member.partition(",")
    if not (comma and generation.isdigit() and number.isdigit() and int(generation) > 0):
        fail(f"--member must be GENERATION,NUMBER such as 12,3, but is {member!r}")
    with filming(video) if video else contextlib.nullcontext() as film:
        recorded, now, failures = play_member(Path(run), int(generation), int(number), film)
    same = recorded == now or (recorded != recorded and now != now)
    click.echo(f"{run}: member {number} of generation {generation}: recorded {recorded:.6g}, played again {now:.6g}")
    for episode, message in failures.items():
        click.echo(f"episode {episode}: {message}")
    sys.exit(FINISHED if same else FAILED)


@main.command()
@click.argument("recipe", required=False)
@click.option("--list", "listed", is_flag=True, help="Print all recipes and how far each was taken, as Markdown.")
@click.option("--out", help="Run directory; default runs/reproduce-RECIPE. An existing one goes on.")
@click.option("--ranks", default=1, show_default=True, type=click.IntRange(1), help="Ranks to train on.")
@click.option("--generations", type=click.IntRange(1), help="Only so many; default all that were recorded.")
@user_errors
def reproduce(recipe, listed, out, ranks, generations):
    """Run RECIPE (a name under results/) again and compare its learning curve with the recorded one.

    Exit 1 where it differs by more than the recorded tolerance.
    """
    from pathlib import Path

    from mpies import reproduce as recipes
    from mpies import store

    if listed:
        click.echo(recipes.list_recipes())
        return
    if recipe is None:
        fail("reproduce needs the name of a recipe under results/, or --list")
    record, out = recipes.read_record(recipe), Path(out or f"runs/reproduce-{recipe}")
    recipes.train_again(recipe, record, out, ranks, generations)
    found = recipes.compare(store.read_metrics(recipes.RESULTS / recipe), store.read_metrics(out))
    close = found.difference <= record["tolerance"]
    same = "all" if found.same == found.generations else f"the first {found.same}"
    click.echo(
        f"{recipe}: {found.generations} generations, {same} with the same bits; curves differ by "
        f"{found.difference:.1%} of their range, {record['tolerance']:.0%} allowed: "
        f"{'reproduced' if close else 'NOT reproduced'}"
    )
    sys.exit(FINISHED if close else FAILED)


@main.command()
@click.argument("config", required=False)
@click.option("--out", help="Write the constants to this YAML file, for simulate.")
@click.option("--repeats", default=7, show_default=True, type=click.IntRange(1), help="Of each measurement.")
@click.option("--generations", default=3, show_default=True, type=click.IntRange(1), help="Of CONFIG that are played.")
@OVERRIDES
def bench(config, out, repeats, generations, overrides):
    """Measure the constants of this machine, and of the episodes of CONFIG where one is given.

    Under mpirun or srun those of an allocation, else of one rank.
    """
    from mpies.launch import run_on_this_rank

    def part(comm):
        from mpies import bench

        return bench.bench(comm, config, overrides, out, repeats, generations)

    sys.exit(run_on_this_rank(part))


@main.command()
@click.argument("task", metavar="CONFIG|D,N,T,CV[,LONGEST]")
@click.option("--constants", metavar="FILE", help="What bench wrote; default an assumed cluster of 36 cores a node.")
@click.option("--ranks", default="1..10000", show_default=True, help="Like 1,2,36 or 1..10000.")
@click.option("--generations", default=1000, show_default=True, type=click.IntRange(1), help="That a run takes.")
@click.option("--price", type=click.FloatRange(0), help="Of a core hour; the cost is in its currency.")
@click.option("--plot", metavar="FILE", help="Draw efficiency against ranks.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
@OVERRIDES
@user_errors
def simulate(task, constants, ranks, generations, price, plot, as_json, overrides):
    """Predict how a generation scales: of CONFIG, or of D parameters, N episodes of T seconds with variation CV."""
    from mpies import scaling

    known = scaling.read_constants(constants) if constants else scaling.Constants()
    work = scaling.work_of(task, overrides, known)
    counts = scaling.parse_ranks(ranks)
    pairs = [tuple(scaling.predict(known.machine, work, count, overlap) for overlap in (0, 1)) for count in counts]
    if plot:
        scaling.draw_plot(plot, work, pairs)
    if as_json:
        import json
        from dataclasses import asdict

        click.echo(json.dumps([[asdict(found) for found in pair] for pair in pairs]))
    else:
        click.echo(scaling.describe(work, pairs, generations, price))


@main.command()
@click.argument("config", required=False)
@click.option("--out", default=".", show_default=True, help="Folder that runs are to be written to.")
@OVERRIDES
@user_errors
def doctor(config, out, overrides):
    """Look at what a run needs of this shell, Slurm job or pod; exit 1 where something would break it.

    With CONFIG, the memory is what that needs; else what a small policy does.
    """
    from mpies.config import load
    from mpies.cost import PROCESS, cost, node_memory
    from mpies.doctor import examine
    from mpies.keys import NoiseSection

    if not Path(out).is_dir():
        fail(f"--out {out}: is no folder; give one that is there, such as a shared volume")
    usual = {"table": 4 * NoiseSection().size, "rank": PROCESS, "root": 0}
    found = cost(load(config, overrides), 1) if config else usual
    bad = False
    for finding in examine(found["table"], lambda ranks: node_memory(found, ranks), out):
        click.echo(finding)
        bad |= finding.level == "BAD"
    sys.exit(FAILED if bad else FINISHED)


@main.group()
def launch():
    """Write what a cluster needs to train a config, and submit it."""


def sized(command):
    """The arguments that both clusters take."""
    options = [
        click.argument("config"),
        click.option("--nodes", default=1, show_default=True, type=click.IntRange(1)),
        click.option("--ranks-per-node", default=4, show_default=True, type=click.IntRange(1)),
        click.option("--out", help="Run directory, or on Kubernetes its name; default that of train."),
        click.option("--constants", metavar="FILE", help="What bench wrote of CONFIG: the time is worked out from it."),
        click.option("--dry-run", is_flag=True, help="Write, but do not submit."),
        OVERRIDES,
        user_errors,
    ]
    for option in reversed(options):
        command = option(command)
    return command


@launch.command()
@sized
@click.option("--time", help="Time limit in Slurm's words; default worked out.")
@click.option("--account")
@click.option("--partition")
def slurm(config, nodes, ranks_per_node, out, constants, dry_run, overrides, time, account, partition):
    """Train CONFIG as a batch job, which goes on by itself after its time limit or a lost node."""
    from mpies.slurm import launch
    from mpies.submit import plan

    site = {"account": account, "partition": partition}
    job = plan(config, overrides, out, nodes, ranks_per_node, constants, time, **site)
    sys.exit(launch(job, not dry_run, click.echo))


@launch.command()
@sized
@click.option("--base", metavar="DIR", help="Of Kustomize, to build on; default k8s/mpi-operator/base.")
@click.option("--image", help="Container image; default the base's.")
def k8s(config, nodes, ranks_per_node, out, constants, dry_run, overrides, base, image):
    """Train CONFIG as an MPIJob; a node is a worker."""
    from mpies.kubernetes import launch
    from mpies.submit import plan

    job = plan(config, overrides, out, nodes, ranks_per_node, constants)
    sys.exit(launch(job, base, image, not dry_run, click.echo))


@main.command()
@click.argument("folder", metavar="DIR")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on; 0.0.0.0 for all.")
@click.option("--port", default=8050, show_default=True, type=click.IntRange(0, 65535), help="0 takes a free one.")
@user_errors
def dashboard(folder, host, port):
    """Show the runs below DIR on a page that follows them; only reads.  Ctrl-C ends it."""
    from mpies.dashboard import serve

    with serve(folder, host, port) as server:
        click.echo(f"the runs of {folder} are on {server.url}")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            click.echo("")
