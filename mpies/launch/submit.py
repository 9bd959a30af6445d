"""What a run asks of a cluster, computed from its config.  `slurm` and `kubernetes` write it down and submit it."""

import math
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mpies.config.loading import load_config
from mpies.config.recipes import find_config
from mpies.config.schema import StopSection
from mpies.core.errors import ConfigError
from mpies.core.text import counted
from mpies.launch.cost import predict_cost, predict_run
from mpies.runs.files import default_out, explain_refusal, write_atomically

HOME = Path(__file__).resolve().parents[2]  # the checkout
MARGIN = 1.3  # factor on the predicted memory and time
START = 15 * 60  # seconds of the time limit for starting and for the last evaluation
UNKNOWN = 4 * 3600  # seconds of the time limit where nothing was measured
LONGEST = 24 * 3600  # seconds of the longest time limit; a longer run continues in the next job
GRACE = 90  # seconds of warning beyond stop.grace, for a checkpoint

Echo = Callable[[str], object]  # shows a line to the user


@dataclass(frozen=True)
class Job:
    """What a run, or a sweep, asks of a cluster.

    command: of mpies, train or sweep.  config: a path, or a recipe's name.  options: of the command, besides --out.
    base: of a sweep, the config that its trials change, or its file where that holds all of it; '' of a run.
    memory, shared: bytes of a node, and how many of them are shared memory.
    seconds: the time limit.  warning: seconds before it at which the job is sent a signal.
    longest: seconds of all its generations with episodes as long as they can be; None where that was not measured.
    account, partition: of Slurm, None for the site's default.
    """

    config: str
    overrides: tuple[str, ...]
    out: str
    nodes: int
    ranks_per_node: int
    memory: int
    shared: int
    seconds: int
    warning: int
    longest: float | None = None
    account: str | None = None
    partition: str | None = None
    command: str = "train"
    options: tuple[str, ...] = ()
    base: str = ""

    def __post_init__(self) -> None:
        """Raise ConfigError where `out` has no name, after which the job and its files are called."""
        if Path(self.out).name in ("", ".."):
            raise ConfigError(f"--out {self.out}: must end with a name for the run, as in runs/first")


@dataclass(frozen=True)
class Request:
    """What a user asks of a cluster for a run, or for a sweep.

    config: a path, or a recipe's name.  out: the run directory, None for the default.
    constants: a file that `mpies bench CONFIG --out` wrote, or None.
    time: the time limit in Slurm's notation; None computes it.
    account, partition: of Slurm, None for the site's default.
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

    @property
    def ranks(self) -> int:
        """Ranks of all nodes."""
        return self.nodes * self.ranks_per_node


def plan(request: Request) -> Job:
    """The Job of a run.  Raises ConfigError."""
    path, overrides = request.config, request.overrides
    config = load_config(path, overrides)
    memory = predict_cost(config, request.ranks).memory
    longest = None
    if request.constants:
        longest = predict_run(path, overrides, request.constants, request.nodes, request.ranks_per_node)[1]
    return Job(
        config=str(find_config(path)),
        overrides=tuple(overrides),
        out=str(Path(request.out or default_out(path, overrides))),  # without a slash at the end
        nodes=request.nodes,
        ranks_per_node=request.ranks_per_node,
        memory=math.ceil(MARGIN * memory.total(request.ranks_per_node)),
        shared=memory.table,
        seconds=parse_time(request.time) if request.time else time_limit(config.stop, longest),
        warning=math.ceil(config.stop.grace) + GRACE,
        longest=longest,
        account=request.account,
        partition=request.partition,
    )


def time_limit(stop: StopSection, longest: float | None) -> int:
    """Seconds of the time limit, in whole minutes.

    longest: seconds that the run's generations take at most; None where that is not known.
    """
    seconds = UNKNOWN if longest is None else START + MARGIN * longest
    if stop.seconds is not None:
        seconds = min(seconds, START + MARGIN * stop.seconds)
    return min(60 * math.ceil(seconds / 60), LONGEST)


def describe(job: Job) -> str:
    """A Job in one line."""
    size = f"{counted(job.nodes, 'node')} x {counted(job.ranks_per_node, 'rank')}, {job.memory / 2**30:.1f} GB each"
    if job.longest is None:
        measure = f"mpies bench {shlex.quote(job.base or job.config)} --out FILE"
        return f"{size}; its duration was not measured: {measure}, then --constants FILE"
    return f"{size}; its generations take {job.longest / 3600:.1f} h at most"


def parse_time(text: str) -> int:
    """Seconds of Slurm's minutes, hours:minutes:seconds or days-hours:minutes:seconds."""
    form = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", text)
    if not form or (form[1] and not form[4]) or (not form[1] and form[3] and not form[4]):
        raise ConfigError(f"--time must be minutes, HH:MM:SS or D-HH:MM:SS, but is {text!r}; for instance 4:00:00")
    days, first, minutes, seconds = (int(part or 0) for part in form.groups())
    return 86400 * days + (3600 * first + 60 * minutes + seconds if form[4] else 60 * first)


def repository_file(name: str) -> Path:
    """The path of a file that is part of the repository, not of the installed package.  Raises ConfigError."""
    path = HOME / name
    if not path.exists():
        raise ConfigError(f"{path}: does not exist; launch needs a clone of the repository: pip install --editable .")
    return path


def write_file(path: Path, content: str | bytes) -> None:
    """Write a file and the folders it is in.  Raises ConfigError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # The name of a file may have bytes that are no text.
        write_atomically(path, content.encode(errors="surrogateescape") if isinstance(content, str) else content)
    except OSError as error:
        raise ConfigError(explain_refusal(path, error)) from None


def submit(commands: Sequence[Sequence[str]], is_wanted: bool, echo: Echo) -> int:
    """Show each command and, where that is wanted, run it.  Returns the first exit code that is not 0."""
    for command in commands:
        echo(f"{'' if is_wanted else 'not run: '}{shlex.join(command)}")
        if is_wanted:
            if shutil.which(command[0]) is None:
                raise ConfigError(f"{command[0]} is not on the path; run this where it is installed, or add --dry-run")
            code = subprocess.run(command).returncode
            if code:
                return code
    return 0
