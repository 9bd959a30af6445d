"""What a sweep asks of a cluster, computed from its trials."""

import math
from dataclasses import replace
from pathlib import Path

from mpies.config.loading import as_yaml
from mpies.config.recipes import find_config
from mpies.launch.constants import read_constants
from mpies.launch.cost import SweepForecast
from mpies.launch.submit import GRACE, MARGIN, UNKNOWN, Job, Request, parse_time, time_limit
from mpies.runs.files import default_out
from mpies.sweeps.folder import SweepFolder
from mpies.sweeps.rank_groups import check_ranks_per_run
from mpies.sweeps.trials import NO_OPTIONS, Sweep, SweepOptions, check_trials


def plan_sweep(
    request: Request, options: SweepOptions = NO_OPTIONS, ranks_per_run: int | None = None
) -> tuple[Job, Sweep]:
    """The Job of a sweep, and the Sweep.

    The time limit is that of all trials with the longest episodes, shared by all ranks; what is left then goes on in
    the next job.  options, ranks_per_run: as for `mpies sweep`.  Raises ConfigError.
    """
    check_ranks_per_run(ranks_per_run, request.ranks)
    sweep = options.load(request.config, request.overrides)
    keys = [override.partition("=")[0] for override in request.overrides]
    folder = SweepFolder(request.out or default_out(request.config, ["sweep", *keys]), sweep)
    check_trials(sweep, folder.list_to_check())
    if folder.halving:
        folder.halving.check()
    known = read_constants(request.constants) if request.constants else None
    forecast = SweepForecast(folder, min(ranks_per_run or 1, request.ranks_per_node), known)
    memory, configs = forecast.memory(request.ranks_per_node), list(forecast.configs.values())
    longest = forecast.sweep().longest / request.ranks if known else None
    stop = configs[0].stop.model_copy(update={"seconds": None})
    limit = UNKNOWN if longest is None else time_limit(stop, longest)
    job = Job(
        config=str(find_config(request.config)),
        overrides=tuple(request.overrides),
        out=folder.name,
        nodes=request.nodes,
        ranks_per_node=request.ranks_per_node,
        memory=math.ceil(MARGIN * memory.total),
        shared=memory.shared,
        seconds=parse_time(request.time) if request.time else limit,
        warning=math.ceil(max(config.stop.grace for config in configs)) + GRACE,
        longest=longest,
        account=request.account,
        partition=request.partition,
        command="sweep",
        options=(*options.words(), *(("--ranks-per-run", str(ranks_per_run)) if ranks_per_run else ())),
        base=sweep.where,
    )
    return job, sweep


def as_sweep_file(job: Job, sweep: Sweep) -> tuple[Job, str]:
    """The same Job with all of the sweep in one file, as a container gets it, and the file's text."""
    at = job.options.index("--ranks-per-run") if "--ranks-per-run" in job.options else len(job.options)
    name = f"{Path(job.config).stem}_sweep.yaml"
    return replace(job, config=name, overrides=(), options=job.options[at:]), as_yaml(sweep.as_values())
