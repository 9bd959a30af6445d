"""What `mpies train` would do: everything is checked and nothing is written."""

import contextlib
import math
import os
from collections.abc import Sequence
from pathlib import Path

import click

from mpies.comm import Communicator, mpiexec
from mpies.comm.together import do_together
from mpies.config.loading import load_config
from mpies.config.recipes import find_config
from mpies.config.schema import Config, StopSection
from mpies.core.errors import FINISHED, ConfigError, RunLocked
from mpies.core.paths import absolute
from mpies.core.text import counted
from mpies.launch.bench import play_sample
from mpies.launch.cost import describe_cost
from mpies.launch.rank import run_on_this_rank
from mpies.runs.files import default_out
from mpies.runs.metrics import read_metrics
from mpies.runs.opening import check_directory
from mpies.runs.reader import RunView
from mpies.runs.trackers import make_trackers
from mpies.training.finished_run import find_finished_run
from mpies.training.task import Task

PATIENCE = 2.0  # seconds that episodes are played for, to predict how long a generation takes
ROWS = 10  # generations of a run that goes on, which tell how long one takes


def dry_run(
    path: str, out: str | None, resume: str, overrides: Sequence[str], seeds: Sequence[int] | None, ranks: int | None
) -> int:
    """Print what `mpies train` with these arguments would do.  Returns the exit code.

    ranks: that would be started, None for those of this job.  All ranks of a job call this; rank 0 prints.
    """

    def show(comm: Communicator) -> int:
        text = do_together(
            comm,
            lambda: describe_training(path, out, resume, overrides, seeds, ranks, comm.size) if comm.is_root else "",
        )
        if comm.is_root:
            click.echo(text)
        return comm.finalize(FINISHED)

    return run_on_this_rank(show)


def describe_training(
    path: str,
    out: str | None,
    resume: str,
    overrides: Sequence[str],
    seeds: Sequence[int] | None,
    ranks: int | None,
    size: int,
) -> str:
    """What training would do, as lines of text.

    ranks: that would be started, None for the `size` of this job.  Raises what training would.
    """
    config, base = load_config(path, overrides), Path(out) if out else default_out(path, overrides)
    if ranks is not None:
        mpiexec.require("--ranks")
    count = ranks or size
    with contextlib.closing(Task(config)) as task:
        runs, is_new = [], False
        for seed in seeds or (None,):
            folder = base if seed is None else Path(f"{base}-seed-{seed}")
            changed = config if seed is None else load_config(path, [*overrides, f"seed={seed}"])
            state = describe_run(folder, changed, resume, base)
            is_new |= state == "new"
            runs.append(("run", f"{folder}: {state}"))
        pace = describe_pace(config, task, is_new, folder, count)
    task_words = f"{config.environment.id}; policy {config.policy.kind}, solver {config.solver.kind}"
    lines = [
        ("config", f"{find_config(path)} {' '.join(overrides)}".rstrip()),
        ("task", task_words),
        *runs,
        ("ranks", f"{count}{', which are started with mpirun' if ranks else ''}"),
        ("ends", describe_stop(config.stop)),
        ("a generation takes", pace),
    ]
    text = "\n".join(f"{name:24}{value}" for name, value in lines)
    return f"{text}{describe_cost(config, count)}\n\nnothing was written"


def describe_run(folder: Path, config: Config, resume: str, out: Path) -> str:
    """What training would find in a run directory.  Raises what opening the run would.

    resume: as for open_run.  out: the argument of --out that leads there.
    """
    check_directory(folder, config, resume)
    view = RunView(absolute(folder))
    if view.state() == "running":
        writer = view.writer()
        raise RunLocked(f"{folder}: is being written by process {writer['pid']} on {writer['host']}; wait, or stop it")
    check_writable(folder)
    finished = find_finished_run(folder, config) if resume != "never" else None
    if finished:
        return finished.describe(config, out).removeprefix(f"{folder}: ")
    make_trackers(absolute(folder), config, lambda line: None)
    rows = read_metrics(absolute(folder))
    return f"continues after generation {rows[-1]['generation']}" if rows else "new"


def check_writable(folder: Path) -> None:
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


def describe_pace(config: Config, task: Task, is_new: bool, folder: Path, ranks: int) -> str:
    """How long a generation takes on so many ranks: as the run's newest ones did, or as played here for a moment.

    is_new: whether a run begins.  folder: of the run that otherwise goes on.
    """
    if not is_new:
        seconds = [float(row["seconds"]) for row in read_metrics(absolute(folder))[-ROWS - 1 :]]
        if len(seconds) < 2:
            return "not known: the run has one generation"
        newest = len(seconds) - 1
        return f"{_time((seconds[-1] - seconds[0]) / newest)}, as in the newest {newest} of the run"
    players, population = task.count_players(ranks), config.solver.members(task.dimension) * config.solver.episodes
    took, steps = play_sample(config, task, math.ceil(population / players), PATIENCE)
    count = len(steps)
    rollouts = math.ceil(config.solver.count_episodes(task.dimension, float(steps.mean())) / players)  # of each
    episodes = counted(count, "episode")
    return f"about {_time(took / count * rollouts)} at first: {episodes} of the first policy took {_time(took)}"


def _time(seconds: float) -> str:
    if seconds < 600:
        return f"{1000 * seconds:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min"
