"""What `mpies train` and `mpies sweep` would do: everything is checked and nothing is written."""

import contextlib
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import click

from mpies.comm import Communicator, mpiexec
from mpies.comm.limits import describe_size, lacking_shared_memory, refuse_lack, require_memory
from mpies.comm.together import do_together
from mpies.config.loading import load_config
from mpies.config.recipes import find_config
from mpies.config.schema import Config, StopSection
from mpies.core.errors import FINISHED, ConfigError, RunLocked
from mpies.core.paths import absolute
from mpies.core.text import align, counted, escape
from mpies.launch.forecast.constants import play_first_policy, read_constants
from mpies.launch.forecast.cost import SweepForecast, examine_run, measure_task, predict_memory
from mpies.launch.forecast.simulate import describe_time
from mpies.launch.ranks.rank import this_rank
from mpies.runs.directory import check_directory, find_backend, with_backend
from mpies.runs.files import default_out
from mpies.runs.formats.metrics import read_metrics
from mpies.runs.reader import RunView
from mpies.runs.trackers import make_trackers
from mpies.sweeps.folder import SweepFolder
from mpies.sweeps.rank_groups import check_ranks_per_run, choose_ranks_per_run
from mpies.sweeps.train_sweep import SweepRequest
from mpies.sweeps.trials import check_trials
from mpies.training.finished_run import find_finished_run
from mpies.training.task import Task

PATIENCE = 2.0  # seconds that episodes are played for, to predict how long a generation takes


def show_on_one_rank(describe: Callable[[Communicator], str]) -> int:
    """Print a text on rank 0.  Returns the exit code.  All ranks of a job call this."""
    with this_rank() as comm:
        text = do_together(comm, lambda: describe(comm) if comm.is_root else "")
        if comm.is_root:
            click.echo(escape(text))
        return comm.finalize(FINISHED)


def describe_training(
    path: str,
    out: str | None,
    resume: str,
    overrides: Sequence[str],
    seeds: Sequence[int] | None,
    ranks: int | None,
    size: int,
) -> str:
    """What `mpies train` with these arguments would do, as lines of text.

    ranks: that would be started, None for the `size` of this job.  Raises what training would.
    """
    config, base = load_config(path, overrides), Path(out) if out else default_out(path, overrides)
    if ranks is not None:
        mpiexec.require("--ranks")
    count = ranks or size
    config = with_backend(config, find_backend(base, config))
    with contextlib.closing(Task(config)) as task:
        require_memory(task.training_needs())
        table = predict_memory(config, *measure_task(task)).table
        refuse_lack(table, lacking_shared_memory(table) if count > 1 else 0)
        runs, is_new = [], False
        for seed in seeds or (None,):
            folder = base if seed is None else Path(f"{base}-seed-{seed}")
            changed = config if seed is None else load_config(path, [*overrides, f"seed={seed}"])
            state = describe_run(folder, changed, resume, base)
            is_new |= state == "new"
            runs.append(("run", f"{folder}: {state}"))
        pace = describe_pace(task, count) if is_new else ""
    task_words = f"{config.environment.id}; policy {config.policy.kind}, solver {config.solver.kind}"
    lines = [
        ("config", f"{find_config(path)} {' '.join(overrides)}".rstrip()),
        ("task", task_words),
        *runs,
        ("ranks", f"{count}{', which are started with mpirun' if ranks else ''}"),
        ("ends", describe_stop(config.stop)),
        *([("a generation takes", pace)] if pace else []),
    ]
    text = "\n".join(f"{name:24}{value}" for name, value in lines)
    return f"{text}{describe_needs(config, count)}\n\nnothing was written"


def describe_run(folder: Path, config: Config, resume: str, out: Path) -> str:
    """What training would find in a run directory.  Raises what opening the run would.

    resume: as for open_run.  out: the argument of --out that leads there.
    """
    check_directory(folder, config, resume)
    view = RunView(absolute(folder))
    if view.state() == "running":
        writer = view.writer()
        raise RunLocked(f"{folder}: is being written by process {writer['pid']} on {writer['host']}; wait, or stop it")
    require_folder(folder)
    finished = find_finished_run(folder, config) if resume != "never" else None
    if finished:
        return finished.describe(config, out).removeprefix(f"{folder}: ")
    make_trackers(absolute(folder), config, lambda line: None)
    rows = read_metrics(absolute(folder))
    return f"continues after generation {rows[-1]['generation']}" if rows else "new"


def require_folder(folder: Path) -> None:
    """Raise ConfigError where a folder cannot be made or written."""
    existing = next(parent for parent in (absolute(folder), *absolute(folder).parents) if parent.exists())
    if not existing.is_dir():
        raise ConfigError(f"{folder}: cannot be written ({existing} is a file); choose another --out")
    if not os.access(existing, os.W_OK):
        raise ConfigError(f"{folder}: cannot be written (no permission for {existing}); choose another --out")


def describe_stop(stop: StopSection) -> str:
    """When training ends, in words."""
    target = "" if stop.target is None else f"at a mean return of {stop.target:g}, or "
    steps = "" if stop.steps is None else f" or {stop.steps:,} steps"
    seconds = "" if stop.seconds is None else f" or {stop.seconds:g} s"
    return f"{target}after {stop.generations:,} generations{steps}{seconds}"


def describe_pace(task: Task, ranks: int) -> str:
    """How long the first generations of a new run take on so many ranks, as played here for a moment."""
    players = task.count_players(ranks)
    workload, count, took = play_first_policy(task, players, PATIENCE)
    generation = describe_time(workload.seconds * math.ceil(workload.episodes / players))
    return f"about {generation} at first: {counted(count, 'episode')} of the first policy took {describe_time(took)}"


def describe_needs(config: Config, ranks: int) -> str:
    """What a run needs, for people: the memory of a node with all `ranks` ranks."""
    task, memory = examine_run(config)
    by_size, rows = config.solver.describe_defaults(task.dimension), config.solver.noise_rows(task.dimension)
    normals = task.directions.length if rows else 0
    defaults = f"defaults of the solver  {by_size}\n" if by_size else ""
    return (
        f"\nparameters              {task.dimension:,}\n"
        f"{defaults}noise of a generation   {_bytes(4 * normals * rows)}, {normals:,} normals a direction\n"
        f"memory of a node        {describe_size(memory.total(ranks))} with {counted(ranks, 'rank')} "
        f"(table {describe_size(memory.table)}, each rank about {describe_size(memory.rank)})"
    )


def describe_sweep(request: SweepRequest, constants: str | None, ranks: int, node_ranks: int) -> str:
    """What a sweep would do on so many ranks, as lines of text.

    constants: path of what `mpies bench` measured, or None.  node_ranks: of a node.
    Raises what the sweep would.
    """
    folder = SweepFolder(request.out, request.load())
    known = read_constants(constants) if constants else None
    check_ranks_per_run(request.ranks_per_run, ranks)
    check_trials(folder.sweep, folder.list_to_check())
    folder.check()
    require_folder(Path(folder.name))
    left, on_node = folder.count_left(), min(ranks, node_ranks)
    ranks_per_run = request.ranks_per_run or choose_ranks_per_run(left, ranks, node_ranks)
    forecast = SweepForecast(folder, ranks_per_run, known)
    forecast.require_memory()
    trials, total, memory = forecast.trials(), forecast.sweep(), forecast.memory(on_node)
    division = f"in {counted(-(-ranks // ranks_per_run), 'group')} of {ranks_per_run}"
    dropped = "; most of them until they are dropped" if folder.halving else ""
    measured = "as bench measured them" if known else "of the first policy, played here"
    on_ranks = f"{describe_time(total / ranks)} on these ranks"
    return "\n".join(
        [
            list_trials(folder, trials) if folder.trials else "the sampler has proposed nothing yet",
            "",
            f"trials              {folder.total}, of which {left} are to be trained, in {folder.name}{dropped}",
            f"ranks               {ranks}, {division}",
            f"core hours          {_hours(total)} or {on_ranks}, with episodes {measured}",
            f"memory of a node    {describe_size(memory.total(on_node))} with {counted(on_node, 'rank')}, "
            f"{describe_size(memory.table)} of it in shared memory",
            "",
            "nothing was written",
        ]
    )


def list_trials(folder: SweepFolder, costs: Mapping[str, float]) -> str:
    """A line of each trial: name, state, core hours, and how its config differs."""
    rows = [("trial", "state", "core hours", "settings")]
    for trial in folder.trials:
        rows.append((trial.name, folder.state(trial), _hours(costs[trial.label]), " ".join(trial.overrides)))
    return align(rows)


def _hours(seconds: float) -> str:
    hours = seconds / 3600
    return f"{hours:,.0f}" if hours >= 100 else f"{hours:.3g}" if hours >= 0.01 else f"{hours:.4f}"


def _bytes(count: float) -> str:
    return f"{count:,} B" if count < 10_000 else f"{count / 1000:,.0f} kB" if count < 1e7 else f"{count / 1e6:,.0f} MB"
