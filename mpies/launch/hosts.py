"""Which hosts there are, as options, hostfiles and Slurm tell them, and how many ranks each takes (its slots)."""

import os
import re
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mpies.comm import mpiexec
from mpies.core.errors import ConfigError
from mpies.core.text import name_few, unbroken

# The MPI Operator tells the launcher of an MPIJob how many ranks a worker takes; discover_hosts.sh does not.
DEFAULT_SLOTS = "OMPI_MCA_orte_set_default_slots"
TIMEOUT = 30  # seconds that a command may take
RESTARTS = 100  # how often ranks that ended unexpectedly are started again, unless told otherwise


@dataclass(frozen=True)
class Host:
    """A host by its name, and the number of ranks that it takes."""

    name: str
    slots: int

    def __post_init__(self) -> None:
        """Raise ConfigError where the name would be more than one word of mpirun's, or an option of ssh."""
        if re.search(r"^-|[\s,=]", unbroken(self.name, "a host")):
            raise ConfigError(f"{self.name!r} is not the name of a host; write NAME or NAME:SLOTS, as in h1:8,h2:8")


@dataclass(frozen=True)
class Where:
    """On which hosts a job runs, as the options of `mpies train` with these names say."""

    hosts: str | None = None
    hostfile: str | None = None
    min_ranks: int = 1
    wait: float = 0.0
    restarts: int = RESTARTS
    launcher: str = "auto"


class HostSource(ABC):
    """Something that knows which hosts there are."""

    @abstractmethod
    def hosts(self) -> list[Host]:
        """The hosts that there are now; whether they answer is another question.  Raises ConfigError."""

    def given(self) -> list[Host]:
        """The hosts that the job was given, those that it has lost included.  Raises ConfigError."""
        return self.hosts()


class GivenHosts(HostSource):
    """Hosts as the command line has them: h1:8,h2:8, or h1,h2 with one rank each."""

    def __init__(self, text: str) -> None:
        words = [word.strip() for word in text.split(",")]
        for word in words:
            if not re.fullmatch(r"[^\s:=]+(:[1-9]\d*)?", word):
                raise ConfigError(f"--hosts {text}: {word!r} is not a host; write NAME or NAME:SLOTS, as in h1:8,h2:8")
        self._hosts = [Host(name, slots) for name, slots in parse_hosts("\n".join(words), default=1).items()]

    def hosts(self) -> list[Host]:
        return self._hosts


class Hostfile(HostSource):
    """A hostfile of Open MPI or MPICH, read anew each time; or a program that prints one, such as discover_hosts.sh.

    slots: of a line that says none; a host that is on several lines has the sum.  One that has 0 is left out.
    """

    def __init__(self, path: str | Path, slots: int = 1) -> None:
        self._path, self._slots = Path(path).absolute(), slots
        self.hosts()

    def hosts(self) -> list[Host]:
        try:
            content = self._path.read_bytes()
            # There are file systems on which all files can be executed.
            is_program = os.access(self._path, os.X_OK) and content.startswith((b"#!", b"\x7fELF"))
            text: str | None = None if is_program else content.decode()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise ConfigError(f"--hostfile {self._path}: cannot be read ({reason}); a line is NAME slots=N") from None
        if text is None:
            text, errors = run_quietly([str(self._path)])
            if text is None:
                raise ConfigError(f"--hostfile {self._path}: the program failed: {errors.splitlines()[-1]}")
        return [Host(name, slots) for name, slots in parse_hosts(text, self._slots).items() if slots]


class SlurmHosts(HostSource):
    """The nodes of a Slurm job.  With --no-kill, Slurm takes a lost node out of the job; then it is here no more."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self._job = environment.get("SLURM_JOB_ID", "")
        if not self._job:
            raise ConfigError(
                "--hosts slurm works only in a Slurm job, but SLURM_JOB_ID is not set; use sbatch or salloc"
            )
        self._names = expand_names(environment.get("SLURM_JOB_NODELIST", ""))
        counts = expand_counts(environment.get("SLURM_TASKS_PER_NODE", ""))
        if not self._names or len(counts) < len(self._names):
            raise ConfigError("--hosts slurm: SLURM_JOB_NODELIST or SLURM_TASKS_PER_NODE does not name the nodes")
        self._slots = dict(zip(self._names, counts, strict=False))

    def hosts(self) -> list[Host]:
        listed = output_of(["squeue", "--noheader", f"--jobs={self._job}", "--format=%N"])
        names = expand_names(listed.strip()) if listed and listed.strip() else self._names
        return [host for host in self.given() if host.name in names]

    def given(self) -> list[Host]:
        return [Host(name, self._slots[name]) for name in self._names]


def parse_hosts(text: str, default: int = 0) -> dict[str, int]:
    """The hosts and slots of a hostfile's text.  default: slots of a line that says none.

    A line is NAME slots=N (Open MPI), NAME:N (MPICH) or NAME N ... ($PE_HOSTFILE of Grid Engine).  The slots of lines
    with the same name are added up.
    """
    hosts: dict[str, int] = {}
    for line in text.splitlines():
        if words := line.partition("#")[0].split():
            name, _, number = words[0].partition(":")
            given = re.search(r"(?<![\w-])slots ?= ?(\d+)", " ".join(words[1:]))  # not max_slots= or max-slots=
            second = words[1] if words[1:] and words[1].isdecimal() else ""
            slots = given[1] if given else number or second
            hosts[name] = hosts.get(name, 0) + (int(slots) if slots.isdecimal() else default)
    return hosts


def expand_names(nodes: str) -> list[str]:
    """The names in Slurm's "n[1-3,7]"."""
    return (output_of(["scontrol", "show", "hostnames", nodes]) or "").split() if nodes else []


def expand_counts(text: str) -> list[int]:
    """[4, 4, 4, 2] of Slurm's "4(x3),2"."""
    counts = []
    for number, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", text):
        counts += [int(number)] * int(times or 1)
    return counts


def run_quietly(
    command: Sequence[str], environment: Mapping[str, str] | None = None, timeout: float | None = None
) -> tuple[str | None, str]:
    """Standard output and standard error of a command, which sees nothing of this process's.

    timeout: seconds that it may take; None for TIMEOUT.  Where it takes longer, fails or is absent, its output is None,
    and the other text says why.
    """
    timeout = TIMEOUT if timeout is None else timeout
    try:
        done = mpiexec.run(command, os.environ if environment is None else environment, timeout=timeout)
    except subprocess.TimeoutExpired:
        return None, f"no answer within {timeout:g} s"
    except OSError as error:
        return None, f"{command[0]}: {error.strerror}"
    errors = done.stderr.strip()
    if done.returncode:
        return None, errors or done.stdout.strip() or f"it ended with code {done.returncode}"
    return done.stdout, errors


def output_of(command: Sequence[str], environment: Mapping[str, str] | None = None) -> str | None:
    """The standard output of a command; None where it fails, takes longer than TIMEOUT or is absent."""
    return run_quietly(command, environment)[0]


def find_source(
    hosts: str | None, hostfile: str | None, environment: Mapping[str, str] = os.environ
) -> HostSource | None:
    """What --hosts and --hostfile say; None for this host alone.  Raises ConfigError."""
    if hosts and hostfile:
        raise ConfigError("--hosts and --hostfile cannot be used together; leave one out")
    if hostfile:
        slots = environment.get(DEFAULT_SLOTS, "")
        return Hostfile(hostfile, int(slots) if slots.isdecimal() and int(slots) else 1)
    if hosts == "slurm":
        return SlurmHosts(environment)
    return GivenHosts(hosts) if hosts else None


def count_ranks(hosts: Iterable[Host]) -> int:
    """The number of ranks on hosts with so many slots."""
    return sum(host.slots for host in hosts)


def names_of(hosts: Iterable[Host]) -> str:
    """Hosts for a line of the log: a few names, and how many more."""
    return name_few([host.name for host in hosts])


def check_slots(hosts: Sequence[Host], ranks: int | None, min_ranks: int) -> None:
    """Raise ConfigError where the hosts have too few slots for a job.  ranks, min_ranks: as for Placement."""
    needed, slots = max(ranks or 1, min_ranks), count_ranks(hosts)
    if not hosts:
        raise ConfigError("no hosts are named; give --hosts h1:8,h2:8 or a --hostfile with lines NAME slots=N")
    if ranks is not None and min_ranks > ranks:
        raise ConfigError(f"--min-ranks {min_ranks} is more than --ranks {ranks}; lower it")
    if slots < needed:
        option = "--ranks" if ranks and ranks >= min_ranks else "--min-ranks"
        raise ConfigError(
            f"{option} {needed} is more than the {slots} slots of {names_of(hosts)}; lower it, or name more hosts"
        )


def count_slots(where: Where, ranks: int | None) -> tuple[int | None, int | None]:
    """How many ranks `ranks` are on the hosts of a job, and how many of them the largest host has.

    None where there are no hosts, or no `ranks`, which say so.  Raises ConfigError, also where there are too few slots.
    """
    source = find_source(where.hosts, where.hostfile)
    if source is None:
        return ranks, ranks
    listed = source.given()
    check_slots(listed, ranks, where.min_ranks)
    slots = [host.slots for host in listed]
    return ranks or sum(slots), max(slots)
