"""What `mpies sweep` would do: all trials are checked and listed, and nothing is written."""

from pathlib import Path

import click

from mpies.comm import Communicator
from mpies.comm.together import do_together
from mpies.core.errors import FINISHED
from mpies.core.text import counted, escape
from mpies.launch.forecast import Forecast, TrialCost, choose_ranks_per_run, measure_node, predict_sweep
from mpies.launch.plan import check_writable
from mpies.launch.rank import run_on_this_rank
from mpies.launch.simulate import read_constants
from mpies.launch.sweep import SweepRequest, check_ranks_per_run
from mpies.sweeps.folder import SweepFolder
from mpies.sweeps.trials import Trial, check_trials, find_mistakes


def dry_run(request: SweepRequest, ranks: int | None, node_ranks: int | None = None) -> int:
    """Print what a sweep would do.  Returns the exit code.  All ranks of a job call this; rank 0 prints.

    ranks: that would be started, None for those of this job.  node_ranks: of a node; None where all are on one.
    """

    def show(comm: Communicator) -> int:
        size = ranks or comm.size
        on_node = node_ranks or (size if ranks else comm.node_size)

        def describe() -> None:
            if comm.is_root:
                for line in describe_sweep(request, size, on_node):
                    click.echo(escape(line))

        do_together(comm, describe)
        return comm.finalize(FINISHED)

    return run_on_this_rank(show)


def describe_sweep(request: SweepRequest, ranks: int, node_ranks: int) -> list[str]:
    """What a sweep would do on so many ranks, as lines of text.

    Where configs cannot be used, the trials and their mistakes are printed.  Raises what the sweep would.
    """
    folder = SweepFolder(request.out, request.load())
    constants = read_constants(request.constants) if request.constants else None
    check_ranks_per_run(request.ranks_per_run, ranks)
    check_listed(folder)
    folder.check()
    check_writable(Path(folder.name))
    forecast, left = Forecast(folder.sweep, constants), folder.count_left()
    configs = {trial.label: folder.sweep.config(trial) for trial in reversed(folder.list_to_check())}
    ranks_per_run = request.ranks_per_run or choose_ranks_per_run(
        forecast, next(iter(configs.values())), left, ranks, node_ranks
    )
    costs = {label: forecast.cost(config, ranks_per_run) for label, config in configs.items()}
    states = {trial.name: folder.state(trial) for trial in folder.trials}
    total = predict_sweep(forecast, folder, configs, ranks_per_run)
    usual, longest = total.usual, total.longest
    groups = -(-ranks // ranks_per_run)
    division = f"in {counted(groups, 'group')} of {ranks_per_run}"
    division = f"which share {counted(left, 'trial')}" if 0 < left < groups else division
    dropped = "; most of them until they are dropped" if folder.halving else ""
    measured = "as bench measured them" if constants else "of the first policy, played here"
    on_node = min(ranks, node_ranks)
    memory = measure_node(forecast, configs, folder.list_to_check(), on_node, min(ranks_per_run, on_node))
    return [
        *(list_trials(folder, states, costs) if folder.trials else ["the sampler has proposed nothing yet"]),
        "",
        f"trials              {folder.total}, of which {left} are to be trained, in {folder.name}{dropped}",
        f"ranks               {ranks}, {division}",
        f"core hours          {_hours(usual)} or {_time(usual / ranks)} on these ranks, with episodes {measured}",
        f"at most             {_hours(longest)} or {_time(longest / ranks)}, with episodes as long as they can be",
        f"memory of a node    {memory.total / 2**20:,.0f} MB with {counted(on_node, 'rank')}, "
        f"{memory.shared / 2**20:,.0f} MB of it in shared memory",
        "",
        "nothing was written",
    ]


def check_listed(folder: SweepFolder) -> None:
    """Where configs of trials cannot be used, print each trial with its mistake, and raise ConfigError."""
    trials = folder.list_to_check()
    mistakes = find_mistakes(folder.sweep, trials)
    if mistakes:
        width = max(len(trial.name) for trial in trials)
        for trial in trials:
            click.echo(escape(f"{trial.name:{width}}  {mistakes.get(trial.label, 'can be trained')}"))
        check_trials(folder.sweep, trials)


def list_trials(folder: SweepFolder, states: dict[str, str], costs: dict[str, TrialCost]) -> list[str]:
    """A line of each trial: name, state, core hours as measured and at most, and how its config differs."""

    def line(trial: Trial) -> str:
        usual, longest = _hours(costs[trial.label].usual), _hours(costs[trial.label].longest)
        cells = f"{trial.name:{width}}  {states[trial.name]:8}  {usual:>10}  {longest:>7}"
        return f"{cells}  {' '.join(trial.overrides)}"

    width = max(len("trial"), *(len(trial.name) for trial in folder.trials))
    heading = f"{'trial':{width}}  {'state':8}  {'core hours':>10}  at most  settings"
    return [heading, *map(line, folder.trials)]


def _hours(seconds: float) -> str:
    hours = seconds / 3600
    return f"{hours:,.0f}" if hours >= 100 else f"{hours:.3g}" if hours >= 0.01 else f"{hours:.4f}"


def _time(seconds: float) -> str:
    if seconds < 600:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5 * 3600 else f"{seconds / 3600:.1f} h"
