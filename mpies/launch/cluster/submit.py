"""What a run or a sweep asks of a cluster.  `slurm`, `pbs_lsf` and `kubernetes` write it down and submit it."""

import math
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mpies.config.loading import load_config
from mpies.config.recipes import find_config
from mpies.config.schema import Config, StopSection
from mpies.core.errors import ConfigError
from mpies.core.text import counted, unbroken
from mpies.launch.forecast.constants import find_workload, read_constants
from mpies.launch.forecast.cost import NodeMemory, SweepForecast, examine_run
from mpies.launch.forecast.simulate import predict
from mpies.runs.files import default_out, explain_refusal, write_atomically
from mpies.sweeps.folder import SweepFolder
from mpies.sweeps.rank_groups import check_ranks_per_run
from mpies.sweeps.trials import NO_OPTIONS, Sweep, SweepOptions, check_trials

HOME = Path(__file__).resolve().parents[2]  # of slurm/ and k8s/: in a checkout, links to its folders
MARGIN = 1.3  # factor on the predicted memory and time
START = 15 * 60  # seconds of the time limit for starting and for the last evaluation
UNKNOWN = 4 * 3600  # seconds of the time limit where nothing was measured
LONGEST = 24 * 3600  # seconds of the longest time limit; a longer run continues in the next job
GRACE = 90  # seconds of warning beyond stop.grace, for a checkpoint
EARLY = 60  # seconds by which Slurm may send its signal too early

Echo = Callable[[str], object]  # shows a line to the user


@dataclass(frozen=True)
class Request:
    """What a user asks of a cluster for a run, or for a sweep.

    config: a path, or a recipe's name.  out: the run directory, None for the default.
    constants: a file that `mpies bench CONFIG --out` wrote, or None.
    time: the time limit in Slurm's notation; None computes it.
    account, partition: of the batch system, whose partitions may be called queues; None for the site's default.
    sbatch: further options of sbatch, as on its command line; None for none.
    """

    config: str | Path
    overrides: Sequence[str] = ()
    out: str | None = None
    nodes: int = 1
    ranks_per_node: int = 1
    constants: str | Path | None = None
    time: str | None = None
    account: str | None = None
    partition: str | None = None
    sbatch: str | None = None

    @property
    def ranks(self) -> int:
        """Ranks of all nodes."""
        return self.nodes * self.ranks_per_node


@dataclass(frozen=True)
class Job:
    """A Request with what it needs.

    config: a path, or a recipe's name.  configs: that of the run, or of the sweep's trials.
    out: the run directory, or the folder of the sweep.
    memory, shared: bytes of a node, and how many of them are shared memory.
    seconds: the time limit.  warning: seconds before it at which the job is sent a signal.
    longest: seconds of all its generations with episodes as long as they can be; None where that was not measured.
    sweep: what it trains, None where that is a run.  options: of `mpies sweep`, besides --out.
    """

    request: Request
    config: str
    configs: Sequence[Config]
    out: str
    memory: int
    shared: int
    seconds: int
    warning: int
    longest: float | None = None
    sweep: Sweep | None = None
    options: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raise ConfigError where `out` has no name, after which the job and its files are called.

        Or where a text would be more than one line of a script.
        """
        named = [("CONFIG", self.config), ("--out", self.out), ("--account", self.request.account)]
        named += [("--partition", self.request.partition), ("--sbatch", self.request.sbatch)]
        for what, text in (*named, *(("environment.id", config.environment.id) for config in self.configs)):
            unbroken(text or "", what)
        if Path(self.out).name in ("", "..") or self.out.startswith("-"):
            raise ConfigError(f"--out {self.out}: must end with a name for the run, as in runs/first")

    @property
    def command(self) -> str:
        """The command of mpies that the job runs."""
        return "sweep" if self.sweep else "train"

    def summary(self) -> str:
        """Its size and duration in one line."""
        nodes, ranks = counted(self.request.nodes, "node"), counted(self.request.ranks_per_node, "rank")
        size = f"{nodes} x {ranks}, {self.memory / 2**30:.1f} GB each"
        if self.longest is None:  # of a sweep, its base is measured, or its file where that holds all of it
            measure = f"mpies bench {shlex.quote(self.sweep.where if self.sweep else self.config)} --out FILE"
            return f"{size}; its duration was not measured: {measure}, then --constants FILE"
        return f"{size}; its generations take {self.longest / 3600:.1f} h at most"


def plan_run(request: Request) -> Job:
    """The Job of a run.  Raises ConfigError."""
    path, overrides = request.config, request.overrides
    config = load_config(path, overrides)
    (_, memory), longest = examine_run(config), None
    if request.constants:
        known = read_constants(request.constants)
        workload = find_workload(str(path), overrides, known).at_longest()
        machine = known.machine.model_copy(update={"cores": request.ranks_per_node})
        longest = config.stop.generations * predict(machine, workload, request.ranks).seconds
    out = str(Path(request.out or default_out(path, overrides)))  # without a slash at the end
    return _make_job(request, [config], config.stop, out, memory, longest)


def plan_sweep(request: Request, options: SweepOptions = NO_OPTIONS, ranks_per_run: int | None = None) -> Job:
    """The Job of a sweep.

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
    forecast = SweepForecast(folder, min(ranks_per_run or 1, request.ranks_per_node), known, is_longest=True)
    memory, configs = forecast.memory(request.ranks_per_node), list(forecast.configs.values())
    longest = forecast.sweep() / request.ranks if known else None
    stop = configs[0].stop.model_copy(update={"seconds": None})
    words = (*options.words(), *(("--ranks-per-run", str(ranks_per_run)) if ranks_per_run else ()))
    return replace(_make_job(request, configs, stop, folder.name, memory, longest), sweep=sweep, options=words)


def _make_job(
    request: Request, configs: Sequence[Config], stop: StopSection, out: str, memory: NodeMemory, longest: float | None
) -> Job:
    """The Job of these configs.  stop, longest: as for `find_time_limit`.  out: as of Job."""
    return Job(
        request,
        config=str(find_config(request.config)),
        configs=configs,
        out=out,
        memory=math.ceil(MARGIN * memory.total(request.ranks_per_node)),
        shared=memory.table,
        seconds=find_time_limit(request, stop, longest),
        warning=math.ceil(max(config.stop.grace for config in configs)) + GRACE,
        longest=longest,
    )


def find_time_limit(request: Request, stop: StopSection, longest: float | None) -> int:
    """Seconds of the time limit: what the request says, else computed, in whole minutes.

    longest: seconds that the generations take at most; None where that is not known.
    """
    if request.time:
        return parse_time(request.time)
    seconds = UNKNOWN if longest is None else START + MARGIN * longest
    if stop.seconds is not None:
        seconds = min(seconds, START + MARGIN * stop.seconds)
    return min(60 * math.ceil(seconds / 60), LONGEST)


def parse_time(text: str) -> int:
    """Seconds of Slurm's minutes, hours:minutes:seconds or days-hours:minutes:seconds."""
    form = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", text)
    if not form or (form[1] and not form[4]) or (not form[1] and form[3] and not form[4]):
        raise ConfigError(f"--time must be minutes, HH:MM:SS or D-HH:MM:SS, but is {text!r}; for instance 4:00:00")
    days, first, minutes, seconds = (int(part or 0) for part in form.groups())
    return 86400 * days + (3600 * first + 60 * minutes + seconds if form[4] else 60 * first)


def launch_script(job: Job, script: Path, text: str, command: Sequence[str], is_wanted: bool, echo: Echo) -> int:
    """Write a batch script and, where that is wanted, submit it.  Returns the exit code.

    command: reads the script on standard input, unless it names it.
    Raises ConfigError where the signal before the time limit would come at once: the job would go on for ever.
    """
    if job.seconds <= job.warning + EARLY:
        raise ConfigError(
            f"the time limit is {job.seconds} s, but the job is told to stop up to {job.warning + EARLY} s before its "
            f"end (stop.grace and {GRACE + EARLY} s); give a longer --time, or lower stop.grace"
        )
    write_job_file(script, text)
    echo(f"{script}: {job.summary()}; --time is {job.seconds / 3600:.1f} h, then it continues by itself")
    return submit([command], is_wanted, echo, None if str(script) in command else script)


def write_job_file(path: Path, content: str | bytes) -> None:
    """Write a file and the folders it is in.  Raises ConfigError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # The name of a file may have bytes that are no text.
        write_atomically(path, content.encode(errors="surrogateescape") if isinstance(content, str) else content)
    except OSError as error:
        raise ConfigError(explain_refusal(path, error)) from None


def submit(commands: Sequence[Sequence[str]], is_wanted: bool, echo: Echo, script: Path | None = None) -> int:
    """Show each command and, where that is wanted, run it.  Returns the first exit code that is not 0.

    script: what they read on standard input.
    """
    for command in commands:
        shown = shlex.join(command) + (f" < {shlex.quote(str(script))}" if script else "")
        echo(f"{'' if is_wanted else 'not run: '}{shown}")
        if is_wanted:
            if shutil.which(command[0]) is None:
                raise ConfigError(f"{command[0]} is not on the path; run this where it is installed, or add --dry-run")
            code = subprocess.run(command, input=script.read_bytes() if script else None).returncode
            if code:
                return code
    return 0
