"""What `mpies doctor` checks before a run in a shell, a Slurm job or a pod: one finding a line, with its cure.

Each check yields Findings from the values it is given; `examine` runs all checks.
"""

import os
import shutil
import socket
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

from mpies import kernels
from mpies.comm import is_launched, mpiexec
from mpies.comm.limits import available_memory, describe_size, find_limits
from mpies.config.loading import load_config
from mpies.core.errors import ConfigError
from mpies.core.text import counted
from mpies.core.threads import VARIABLES
from mpies.launch.forecast.cost import SMALL_RUN, NodeMemory, examine_run
from mpies.launch.hosts import Host, expand_counts, expand_names, output_of, parse_hosts
from mpies.launch.placement import ask_hosts, is_this_host
from mpies.launch.ranks.launcher import list_pmi
from mpies.runs.lock import STALE

# A program for two ranks; each prints its number.
PRINT_RANK = "from mpi4py import MPI; print('rank', MPI.COMM_WORLD.rank, 'of', MPI.COMM_WORLD.size)"
# Prints the version without starting MPI, which would join a job that this process is in.
PRINT_VERSION = "import mpi4py; mpi4py.rc.initialize = False; from mpi4py import MPI; print(MPI.Get_library_version())"

Findings = Iterator["Finding"]


@dataclass(frozen=True)
class Finding:
    """The result of a check.

    cure: what to do; '' if nothing is wrong.  otherwise: the level where something is: BAD if a run does not work, note
    if it does, but not at its best.
    """

    subject: str
    text: str
    cure: str = ""
    otherwise: str = "BAD"

    @property
    def level(self) -> str:
        """ok, note or BAD."""
        return self.otherwise if self.cure else "ok"

    def __str__(self) -> str:
        return f"{self.level:<4}  {self.subject:<14}  {self.text}" + (f"; {self.cure}" if self.cure else "")


@dataclass(frozen=True)
class Allocation:
    """What this process is part of: a shell, a Slurm job or a pod.

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

    def number(name: str) -> int:
        """Of the first node: 4 of Slurm's "4(x3),2"; 0 where the variable is absent or empty."""
        return next(iter(expand_counts(environment.get(name, ""))), 0)

    if job := environment.get("SLURM_JOB_ID"):
        megabytes = number("SLURM_MEM_PER_NODE") or number("SLURM_MEM_PER_CPU") * number("SLURM_JOB_CPUS_PER_NODE")
        names = expand_names(environment.get("SLURM_JOB_NODELIST", ""))
        return Allocation(f"Slurm job {job}", names, number("SLURM_TASKS_PER_NODE"), megabytes * 2**20 or None)
    is_pod = "KUBERNETES_SERVICE_HOST" in environment or "K_MPI_JOB_ROLE" in environment
    kind = "pod" if is_pod else "container" if Path("/.dockerenv").exists() else "shell"
    given = next((environment[name] for name in mpiexec.HOSTFILES if name in environment), hostfile)
    try:
        hosts = parse_hosts(Path(given).read_text(errors="replace"))
    except OSError:
        return Allocation(kind)
    return Allocation(kind, list(hosts), next(iter(hosts.values()), 0))


def examine_config(config: str | None, overrides: Sequence[str], folder: str) -> Findings:
    """All Findings about the run of a config, as they are made.

    config: its path; None stands for a run with a small policy.  folder: where runs are to be written.
    Raises ConfigError where the config or the folder cannot be used.
    """
    if not Path(folder).is_dir():
        raise ConfigError(f"--out {folder}: is not a folder; give an existing one, such as a shared volume")
    needed = examine_run(load_config(config, overrides, trains=False))[1] if config else SMALL_RUN
    yield from examine(needed, folder)


def examine(needed: NodeMemory, folder: str) -> Findings:
    """All Findings about this allocation, as they are made.  needed: by a run."""
    allocation, folder = find_allocation(), str(Path(folder).resolve())
    limit, quota = find_limits()
    pinned, total = len(os.sched_getaffinity(0)), os.cpu_count() or 1
    ranks = f", {counted(allocation.ranks, 'rank')} on this node" if allocation.ranks else ""
    where = f"{allocation.kind} on {socket.gethostname()}, {counted(len(allocation.hosts) or 1, 'host')}{ranks}"
    yield Finding("place", where)
    yield from check_mpi(allocation)
    yield from check_shared_memory(needed.table)
    yield from check_memory(needed.total(allocation.ranks or pinned), limit, allocation.memory, available_memory())
    yield from check_processors(allocation.ranks, pinned, total, quota)
    yield from check_threads()
    yield from check_kernels()
    yield from check_hosts(allocation)
    yield from check_clock(folder)


def check_mpi(allocation: Allocation) -> Findings:
    """The MPI library that mpi4py uses, and whether ranks that mpiexec starts are connected.

    In a Slurm job the ranks are not tried: the batch script finds out what can start them.
    """
    library = output_of([sys.executable, "-c", PRINT_VERSION])
    if not library:
        cure = 'pip install "mpies[mpi]", or load an MPI and: pip install --no-binary mpi4py mpi4py'
        yield Finding("MPI", "mpi4py finds no MPI library", cure)
        return
    name = library.strip().splitlines()[0].split(", package")[0].rstrip(",")
    yield Finding("MPI", f"{name} behind mpi4py")
    program = mpiexec.find()
    if allocation.is_slurm:
        kinds = " and ".join(list_pmi()) or "no PMI"
        yield Finding("starting ranks", f"srun has {kinds}, mpirun is {program}")
        return
    if program is None:
        yield Finding("mpiexec", "none beside this Python or on the path", 'pip install "mpies[mpi]"')
        return
    if is_launched():
        yield Finding("mpiexec", "this process is one of its ranks")
        return
    trial = [program, "-n", "2", sys.executable, "-c", PRINT_RANK]
    printed = sorted((output_of(trial, mpiexec.environment()) or "").split("\n"))
    are_connected = printed[-2:] == ["rank 0 of 2", "rank 1 of 2"]
    cure = "" if are_connected else f'run this to see the error: {program} -n 2 {sys.executable} -c "{PRINT_RANK}"'
    yield Finding("mpiexec", f"2 ranks of {program} {'find' if are_connected else 'do not find'} each other", cure)


def check_shared_memory(needed: int, folder: str | Path = "/dev/shm") -> Findings:
    """Whether the noise table fits into shared memory.  needed: bytes."""
    try:
        free = shutil.disk_usage(folder).free
    except OSError:
        yield Finding("shared memory", f"there is no {folder}", "mount a tmpfs there", "note")
        return
    text = f"{describe_size(free)} free in {folder}, the noise table needs {describe_size(needed)}"
    cure = "" if free > needed else "lower noise.size, or enlarge it: docker --shm-size, an emptyDir of medium Memory"
    yield Finding("shared memory", text, cure)


def check_memory(needed: int, limit: int | None, granted: int | None, available: int) -> Findings:
    """Whether all ranks of the node fit into memory.

    All in bytes.  limit: of the container, or None.  granted: by Slurm, or None.  available: on the machine.
    """
    room, bound_by = min(
        (bound, name)
        for bound, name in ((limit, "this container may use"), (granted, "--mem grants"), (available, "are free"))
        if bound is not None
    )
    text, more = f"{describe_size(room)} {bound_by}, this node's ranks need about {describe_size(needed)}", 1.2 * needed
    cure = "" if room >= needed else f"ask for {describe_size(more)} (sbatch --mem, resources.limits), or fewer ranks"
    yield Finding("memory", text, cure)


def check_processors(ranks: int, pinned: int, total: int, quota: float | None) -> Findings:
    """Whether each rank has a processor.

    ranks: on this node, 0 where nothing tells.  pinned: hardware threads that this process may use.
    total: hardware threads of the machine.  quota: number of processors that a container may use, or None.
    """
    usable = pinned if quota is None else min(pinned, quota)
    text = f"{usable:g} of {total} usable" + (f" (pinned to {pinned})" if pinned < total else "")
    text += f", time for {quota:g}" if quota is not None else ""
    text += f"; {ranks} ranks would take turns" if ranks > usable else f" by {counted(ranks, 'rank')}" if ranks else ""
    cure = f"start {int(usable) or 1}, or set OMPI_MCA_mpi_yield_when_idle=1" if ranks > usable else ""
    yield Finding("processors", text, cure, "note")


def check_threads(environment: Mapping[str, str] = os.environ) -> Findings:
    """Whether linear algebra uses one thread per rank, as mpies sets it unless the environment does otherwise."""
    wanted = {name: environment[name] for name in VARIABLES if environment.get(name, "1") != "1"}
    listed = ", ".join(f"{name}={value}" for name, value in wanted.items())
    text = f"{listed}: every rank would start that many threads" if listed else "one per rank for linear algebra"
    yield Finding("threads", text, "unset it, or set it to 1" if listed else "", "note")


def check_kernels(compiled: ModuleType | None = kernels.compiled) -> Findings:
    """Whether the inner loop of rollouts was compiled.  compiled: its module, or None."""
    text, cure = "compiled", ""
    if compiled is None:
        text = "the inner loop is not compiled, so perceptrons are several times slower (the results are the same)"
        cure = "install a C compiler and Python's headers (Debian: gcc libc6-dev python3-dev), then mpies again"
    yield Finding("inner loop", text, cure, "note")


def check_hosts(allocation: Allocation) -> Findings:
    """Whether ranks can run on all other hosts, as a run with --hosts asks them."""
    here = socket.gethostname().partition(".")[0]
    others = [Host(name, 1) for name in allocation.hosts if name.partition(".")[0] != here and not is_this_host(name)]
    way = "srun" if allocation.is_slurm else "ssh"
    problems = [answer.problem for answer in ask_hosts(others, way) if answer.problem]
    if problems:
        cure = "ask sinfo for their state" if allocation.is_slurm else "try ssh by hand: it must not ask anything"
        yield Finding("hosts", f"no ranks on {len(problems)} of {len(others)} others: {problems[0]}", cure)
    else:
        yield Finding("hosts", f"{len(others)} others answer through {way}" if others else "only this one")


def check_clock(folder: str | Path) -> Findings:
    """Whether the file system's clock agrees with this machine's.

    The lock of a run compares the two: a writer without a recent heartbeat counts as dead.
    """
    probe = Path(folder) / f".mpies-doctor-{os.getpid()}"
    try:
        before = time.time()
        probe.touch()
        apart = max(before - probe.stat().st_mtime, probe.stat().st_mtime - time.time())
        probe.unlink()
    except OSError as error:
        yield Finding("disk", f"{folder} cannot be written ({error.strerror})", "give another folder as --out")
        return
    cure = "run an NTP client (chrony) on all hosts" if apart > STALE / 2 else ""
    text = f"files here are dated within {max(apart, 0):.1f} s of this clock"
    yield Finding("clock", text, cure)
