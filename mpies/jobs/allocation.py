"""Where this process is: a shell, a Slurm job or a pod; its hosts, and the limits of its container."""

import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from mpies.comm import mpiexec

PATIENCE = 30  # seconds that a command may take


@dataclass(frozen=True)
class Allocation:
    """Where this process is.  hosts: names that ranks would run on.  ranks: on this node, 0 where nothing says."""

    kind: str
    hosts: list = field(default_factory=list)
    ranks: int = 0
    memory: int | None = None  # bytes that Slurm grants on a node

    @property
    def is_slurm(self):
        return self.kind.startswith("Slurm")


def find_allocation(environment=os.environ, hostfile="/etc/mpi/hostfile"):
    """The Place of this process, from its environment and the hostfile of an MPIJob or the user's own."""
    if number := environment.get("SLURM_JOB_ID"):
        names = output_of(["scontrol", "show", "hostnames", environment.get("SLURM_JOB_NODELIST", "")])
        cpus = _leading_number(environment.get("SLURM_JOB_CPUS_PER_NODE", ""))
        megabytes = int(environment.get("SLURM_MEM_PER_NODE", 0))
        megabytes = megabytes or int(environment.get("SLURM_MEM_PER_CPU", 0)) * cpus
        ranks = _leading_number(environment.get("SLURM_TASKS_PER_NODE", ""))
        return Allocation(f"Slurm job {number}", (names or "").split(), ranks, megabytes * 2**20 or None)
    given = next((environment[name] for name in mpiexec.HOSTFILES if name in environment), hostfile)
    pod = "KUBERNETES_SERVICE_HOST" in environment or "K_MPI_JOB_ROLE" in environment
    kind = "pod" if pod else "container" if Path("/.dockerenv").exists() else "shell"
    hosts, slots = read_hostfile(given)
    return Allocation(kind, hosts, slots)


def read_hostfile(path):
    """The hosts of a hostfile of Open MPI (NAME slots=N) or MPICH (NAME:N), and the slots of the first.

    [] and 0 where there is none.
    """
    try:
        lines = [line.partition("#")[0].split() for line in Path(path).read_text().splitlines()]
    except OSError:
        return [], 0
    lines = [words for words in lines if words]
    hosts = [words[0].partition(":")[0] for words in lines]
    slots = [_leading_number(" ".join(words).partition("slots=")[2] or words[0].partition(":")[2]) for words in lines]
    return hosts, slots[0] if slots else 0


def _leading_number(text):
    """4 of Slurm's "4(x3),2"; 0 where there is none."""
    digits = text[: len(text) - len(text.lstrip("0123456789"))]
    return int(digits or 0)


def find_limits(groups="/proc/self/cgroup", root="/sys/fs/cgroup"):
    """Bytes of memory and processors' worth of time that control groups allow; None where they set no limit.

    Reads versions 1 and 2, of this process's group and of all above it, as far as they can be seen.
    """
    try:
        lines = [line.split(":", 2) for line in Path(groups).read_text().splitlines()]
    except OSError:
        return None, None
    memory, time_share = [], []
    for _, controllers, path in lines:
        for controller in controllers.split(",") if controllers else [""]:
            base = Path(root) / controller
            group = base / path.lstrip("/")
            for folder in (group, *group.parents):
                if not folder.is_relative_to(base):
                    break
                memory += _numbers(folder / "memory.max") + _numbers(folder / "memory.limit_in_bytes")
                quota = _numbers(folder / "cpu.max")  # microseconds, of so many
                quota = quota or _numbers(folder / "cpu.cfs_quota_us") + _numbers(folder / "cpu.cfs_period_us")
                if len(quota) == 2 and quota[0] > 0:
                    time_share.append(quota[0] / quota[1])
    memory = [bound for bound in memory if bound < 2**60]  # version 1 writes "no limit" as a huge number
    return min(memory, default=None), min(time_share, default=None)


def _numbers(path):
    """The whole numbers in a file of the kernel; [] where it is absent or says max."""
    try:
        return [int(word) for word in path.read_text().split()]
    except (OSError, ValueError):
        return []


def available_memory():
    """Bytes of memory that the machine could give now."""
    lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    return int(lines["MemAvailable"].split()[0]) * 1024


def output_of(command, environment=None):
    """What a command says on standard output; None where it fails, hangs or is absent."""
    try:
        done = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
