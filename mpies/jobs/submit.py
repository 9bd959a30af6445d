"""What a run asks of a cluster, worked out from its config; `slurm` and `kubernetes` write it down and hand it over."""

import math
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from mpies.errors import ConfigError
from mpies.config.loading import load_config
from mpies.scaling.cost import cost, node_memory
from mpies.jobs.rank import default_out
from mpies.scaling.model import predict, read_constants, work_of
from mpies.runs.files import write_atomically

HOME = Path(__file__).resolve().parent.parent
MARGIN = 1.3  # of memory and time: both are worked out for what is usual
START = 15 * 60  # seconds of the time limit for coming up and the last evaluation
UNKNOWN = 4 * 3600  # seconds of the time limit where nothing was measured
LONGEST = 24 * 3600  # seconds; what takes longer goes on by itself after that
GRACE = 90  # seconds of warning beyond stop.grace, for a checkpoint


@dataclass(frozen=True)
class Job:
    """What a run asks of a cluster.

    memory, shared: bytes of a node, and those of them in shared memory.  seconds: the time limit.
    longest: seconds of all its generations with the longest episodes that there can be, None where not measured.
    account, partition: of Slurm, None for the site's default.
    """

    config: str
    overrides: tuple
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


def plan(path, overrides, out, nodes, ranks_per_node, constants=None, time=None, **site):
    """The Job of a config.

    constants: file that `mpies bench CONFIG --out` wrote, or None.  time: Slurm's words for a limit that is
    given, or None to work it out.  site: account and partition.
    """
    config = load_config(path, overrides)
    found = cost(config, nodes * ranks_per_node)
    longest = constants and longest_run(path, overrides, constants, nodes, ranks_per_node)
    return Job(
        config=str(path),
        overrides=tuple(overrides),
        out=str(out or default_out(path, overrides)),
        nodes=nodes,
        ranks_per_node=ranks_per_node,
        memory=math.ceil(MARGIN * node_memory(found, ranks_per_node)),
        shared=found["table"],
        seconds=_parse_time(time) if time else limit(config.stop, longest),
        warning=math.ceil(config.stop.grace) + GRACE,
        longest=longest,
        **site,
    )


def longest_run(path, overrides, constants, nodes, ranks_per_node):
    """Seconds of all generations, each with episodes as long as they can be, by what `mpies bench` measured.

    constants: its file.  Raises ConfigError where it is not of this config's environment.
    """
    known = read_constants(constants)
    work = work_of(str(path), overrides, known)
    work = work.model_copy(update={"seconds": work.longest or work.seconds, "variation": 0.0})
    machine = known.machine.model_copy(update={"cores": ranks_per_node})
    return load_config(path, overrides).stop.generations * predict(machine, work, nodes * ranks_per_node).seconds


def limit(stop, longest):
    """Seconds of a time limit for a run whose generations take `longest` seconds, None where that is not known."""
    seconds = UNKNOWN if longest is None else START + MARGIN * longest
    if stop.seconds is not None:
        seconds = min(seconds, START + MARGIN * stop.seconds)
    return min(60 * math.ceil(seconds / 60), LONGEST)


def describe(job):
    """A Job in words."""
    size = f"{job.nodes} nodes x {job.ranks_per_node} ranks, {job.memory / 2**30:.1f} GB each"
    if job.longest is None:
        return f"{size}; how long it takes was not measured: mpies bench {job.config} --out FILE, then --constants FILE"
    return f"{size}; its generations take {job.longest / 3600:.1f} h at most"


def _parse_time(text):
    """Seconds of Slurm's minutes, hours:minutes:seconds or days-hours:minutes:seconds."""
    form = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", text)
    if not form or (form[1] and not form[4]) or (not form[1] and form[3] and not form[4]):
        raise ConfigError(f"--time must be minutes, HH:MM:SS or D-HH:MM:SS, but is {text!r}; for instance 4:00:00")
    days, first, minutes, seconds = (int(part or 0) for part in form.groups())
    return 86400 * days + (3600 * first + 60 * minutes + seconds if form[4] else 60 * first)


def part_of_repository(name):
    """The path of a file that only a clone of the repository has."""
    path = HOME / name
    if not path.exists():
        raise ConfigError(f"{path}: is not there; launch needs a clone of the repository: pip install --editable .")
    return path


def write(path, text):
    """Write a file, and the folders it is in."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text.encode())
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written ({error.strerror}); take another --out") from None


def run(commands, wanted, say):
    """Say each command, and run it where that is wanted.  Returns the first exit code that is not 0."""
    for command in commands:
        say(f"{'' if wanted else 'not run: '}{shlex.join(command)}")
        if wanted:
            if shutil.which(command[0]) is None:
                raise ConfigError(f"there is no {command[0]} on the path; go to where there is, or add --dry-run")
            code = subprocess.run(command).returncode
            if code:
                return code
    return 0
