"""What this process may use: a shell, a Slurm job or a pod, its hosts, and the limits of its container."""

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mpies.comm import mpiexec

TIMEOUT = 30  # seconds that a command may take


@dataclass(frozen=True)
class Allocation:
    """The surroundings of this process.

    kind: for people.  hosts: names of those that ranks would run on.  ranks: on this node, 0 where nothing tells.
    memory: bytes that Slurm grants on a node, None without a limit.
    """

    kind: str
    hosts: list[str] = field(default_factory=list)
    ranks: int = 0
    memory: int | None = None

    @property
    def is_slurm(self) -> bool:
        return self.kind.startswith("Slurm")


def find_allocation(
    environment: Mapping[str, str] = os.environ, hostfile: str | Path = "/etc/mpi/hostfile"
) -> Allocation:
    """The Allocation of this process.

    environment: variables of the process; one that names a default hostfile takes the place of `hostfile`, which is
    the one of an MPIJob.
    """
    if number := environment.get("SLURM_JOB_ID"):
        names = expand_names(environment.get("SLURM_JOB_NODELIST", ""))
        cpus = _leading_number(environment.get("SLURM_JOB_CPUS_PER_NODE", ""))
        megabytes = _leading_number(environment.get("SLURM_MEM_PER_NODE", ""))
        megabytes = megabytes or _leading_number(environment.get("SLURM_MEM_PER_CPU", "")) * cpus
        ranks = _leading_number(environment.get("SLURM_TASKS_PER_NODE", ""))
        return Allocation(f"Slurm job {number}", names, ranks, megabytes * 2**20 or None)
    given = next((environment[name] for name in mpiexec.HOSTFILES if name in environment), hostfile)
    is_pod = "KUBERNETES_SERVICE_HOST" in environment or "K_MPI_JOB_ROLE" in environment
    kind = "pod" if is_pod else "container" if Path("/.dockerenv").exists() else "shell"
    hosts, slots = read_hostfile(given)
    return Allocation(kind, hosts, slots)


def read_hostfile(path: str | Path) -> tuple[list[str], int]:
    """The hosts of a hostfile, and the slots of the first host.

    A line is NAME slots=N (Open MPI), NAME:N (MPICH) or NAME N ... ($PE_HOSTFILE of Grid Engine).
    Without such a file there are no hosts and 0 slots.
    """
    try:
        hosts = parse_hosts(Path(path).read_text(errors="replace"))
    except OSError:
        return [], 0
    return list(hosts), next(iter(hosts.values()), 0)


def parse_hosts(text: str, default: int = 0) -> dict[str, int]:
    """The hosts and slots of a hostfile's text, as for `read_hostfile`.  default: slots of a line that says none.

    The slots of lines with the same name are added up.
    """
    hosts: dict[str, int] = {}
    for line in text.splitlines():
        if words := line.partition("#")[0].split():
            name, _, number = words[0].partition(":")
            given = re.search(r"(?<![\w-])slots ?= ?(\d+)", " ".join(words[1:]))  # not max_slots= or max-slots=
            second = words[1] if words[1:] and words[1].isdecimal() else ""
            slots = given[1] if given else number or second
            hosts[name] = hosts.get(name, 0) + (_leading_number(slots) if slots[:1].isdigit() else default)
    return hosts


def expand_names(nodes: str) -> list[str]:
    """The names in Slurm's "n[1-3,7]"."""
    return (output_of(["scontrol", "show", "hostnames", nodes]) or "").split() if nodes else []


def _leading_number(text: str) -> int:
    """4 of Slurm's "4(x3),2"; 0 where the text does not begin with a number."""
    digits = text[: len(text) - len(text.lstrip("0123456789"))]
    return int(digits or 0)


def output_of(command: Sequence[str], environment: Mapping[str, str] | None = None) -> str | None:
    """The standard output of a command; None where it fails, takes longer than TIMEOUT or is absent."""
    try:
        done = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",  # another host may print anything
            timeout=TIMEOUT,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
