"""What this process may use: a shell, a Slurm job or a pod, its hosts, and the limits of its container."""

import os
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
        names = output_of(["scontrol", "show", "hostnames", environment.get("SLURM_JOB_NODELIST", "")])
        cpus = _leading_number(environment.get("SLURM_JOB_CPUS_PER_NODE", ""))
        megabytes = int(environment.get("SLURM_MEM_PER_NODE", 0))
        megabytes = megabytes or int(environment.get("SLURM_MEM_PER_CPU", 0)) * cpus
        ranks = _leading_number(environment.get("SLURM_TASKS_PER_NODE", ""))
        return Allocation(f"Slurm job {number}", (names or "").split(), ranks, megabytes * 2**20 or None)
    given = next((environment[name] for name in mpiexec.HOSTFILES if name in environment), hostfile)
    is_pod = "KUBERNETES_SERVICE_HOST" in environment or "K_MPI_JOB_ROLE" in environment
    kind = "pod" if is_pod else "container" if Path("/.dockerenv").exists() else "shell"
    hosts, slots = read_hostfile(given)
    return Allocation(kind, hosts, slots)


def read_hostfile(path: str | Path) -> tuple[list[str], int]:
    """The hosts of a hostfile of Open MPI (NAME slots=N) or MPICH (NAME:N), and the slots of the first host.

    Without such a file there are no hosts and 0 slots.
    """
    try:
        lines = [line.partition("#")[0].split() for line in Path(path).read_text().splitlines()]
    except OSError:
        return [], 0
    lines = [words for words in lines if words]
    hosts = [words[0].partition(":")[0] for words in lines]
    slots = [_leading_number(" ".join(words).partition("slots=")[2] or words[0].partition(":")[2]) for words in lines]
    return hosts, slots[0] if slots else 0


def _leading_number(text: str) -> int:
    """4 of Slurm's "4(x3),2"; 0 where the text does not begin with a number."""
    digits = text[: len(text) - len(text.lstrip("0123456789"))]
    return int(digits or 0)


def find_limits(
    groups: str | Path = "/proc/self/cgroup", root: str | Path = "/sys/fs/cgroup"
) -> tuple[int | None, float | None]:
    """Bytes of memory, and number of processors, that control groups allow; None where they set no limit.

    groups: the file that names this process's group.  Limits of the group and of all groups above it count, as far as
    they can be read below `root`, in versions 1 and 2 of the interface.
    """
    try:
        lines = [line.split(":", 2) for line in Path(groups).read_text().splitlines()]
    except OSError:
        return None, None
    memory: list[int] = []
    processors: list[float] = []
    for _, controllers, path in lines:
        for controller in controllers.split(",") if controllers else [""]:
            base = Path(root) / controller
            group = base / path.lstrip("/")
            for folder in (group, *group.parents):
                if not folder.is_relative_to(base):
                    break
                memory += _read_numbers(folder / "memory.max") + _read_numbers(folder / "memory.limit_in_bytes")
                quota = _read_numbers(folder / "cpu.max")  # microseconds in each period, and its length
                quota = quota or _read_numbers(folder / "cpu.cfs_quota_us") + _read_numbers(
                    folder / "cpu.cfs_period_us"
                )
                if len(quota) == 2 and quota[0] > 0:
                    processors.append(quota[0] / quota[1])
    memory = [bound for bound in memory if bound < 2**60]  # version 1 writes "no limit" as a huge number
    return min(memory, default=None), min(processors, default=None)


def _read_numbers(path: Path) -> list[int]:
    """The whole numbers in a file of the kernel; none where it is absent or holds the word max."""
    try:
        return [int(word) for word in path.read_text().split()]
    except (OSError, ValueError):
        return []


def available_memory() -> int:
    """Bytes of memory that the machine could give to a new process."""
    lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    return int(lines["MemAvailable"].split()[0]) * 1024


def output_of(command: Sequence[str], environment: Mapping[str, str] | None = None) -> str | None:
    """The standard output of a command; None where it fails, takes longer than TIMEOUT or is absent."""
    try:
        done = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
