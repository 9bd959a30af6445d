"""What `mpies doctor` looks at before a run: a shell, a Slurm job or a pod, one finding a line, with its cure.

Every check returns Findings from what it is given; `examine` runs them all.
"""

import os
import shutil
import socket
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from mpies import kernels
from mpies.comm import mpiexec
from mpies.comm import LAUNCHED
from mpies.runs.lock import STALE
from mpies.jobs.allocation import available_memory, find_limits, find_allocation, output_of

FULL = 100 * 2**20  # bytes of free disk below which the first checkpoints may not fit
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS")

# What a rank says to be met: its number among how many.
MEET = "from mpi4py import MPI; print('rank', MPI.COMM_WORLD.rank, 'of', MPI.COMM_WORLD.size)"
# Asked without starting MPI, which would join a job that this process is in.
VERSION = "import mpi4py; mpi4py.rc.initialize = False; from mpi4py import MPI; print(MPI.Get_library_version())"


@dataclass(frozen=True)
class Finding:
    """level: ok; note, where a run works but not at its best; BAD, where it does not.  cure: for the last two."""

    level: str
    subject: str
    text: str
    cure: str = ""

    def __str__(self):
        return f"{self.level:<4}  {self.subject:<14}  {self.text}" + (f"; {self.cure}" if self.cure else "")


def check_mpi(place):
    """The MPI library that mpi4py is built for, and whether ranks that mpiexec starts find each other.

    Within a Slurm job the batch script finds out by itself what starts them.
    """
    library = output_of([sys.executable, "-c", VERSION])
    if not library:
        cure = 'pip install "mpies[mpi]", or load an MPI and: pip install --no-binary mpi4py mpi4py'
        yield Finding("BAD", "MPI", "mpi4py finds no MPI library", cure)
        return
    name = library.strip().splitlines()[0].split(", package")[0].rstrip(",")
    yield Finding("ok", "MPI", f"{name} behind mpi4py")
    program = mpiexec.find()
    if place.is_slurm:
        known = (output_of(["srun", "--mpi=list"]) or "").replace("MPI plugin types are...", "").split()
        kinds = [kind for kind in ("pmix", "pmi2") if kind in known]
        yield Finding("ok", "starting ranks", f"srun has {' and '.join(kinds) or 'no PMI'}, mpirun is {program}")
        return
    if program is None:
        yield Finding("BAD", "mpiexec", "none beside this Python or on the path", 'pip install "mpies[mpi]"')
        return
    if any(name in os.environ for name in LAUNCHED):
        yield Finding("ok", "mpiexec", "this process is one of its ranks")
        return
    trial = [program, "-n", "2", sys.executable, "-c", MEET]
    met = sorted((output_of(trial, mpiexec.environment()) or "").split("\n"))
    if met[-2:] == ["rank 0 of 2", "rank 1 of 2"]:
        yield Finding("ok", "mpiexec", f"2 ranks of {program} find each other")
    else:
        cure = f'see what this says: {program} -n 2 {sys.executable} -c "{MEET}"'
        yield Finding("BAD", "mpiexec", f"2 ranks of {program} do not find each other", cure)
    survives = output_of([program, "--with-ft", "ulfm", "-n", "1", "true"], mpiexec.environment()) is not None
    if survives:
        yield Finding("ok", "ULFM", "mpirun --with-ft ulfm goes on after the loss of a rank")
    else:
        cure = "start it again, it goes on; Open MPI 5 would survive it"
        yield Finding("note", "ULFM", "the loss of a rank ends the job with this mpiexec", cure)


def check_shared_memory(needed, folder="/dev/shm"):
    """Room for the noise table.  needed: bytes."""
    try:
        free = shutil.disk_usage(folder).free
    except OSError:
        yield Finding("note", "shared memory", f"there is no {folder}", "mount a tmpfs there")
        return
    text = f"{_size(free)} free in {folder}, the noise table needs {_size(needed)}"
    cure = "" if free > needed else "lower noise.size, or enlarge it: docker --shm-size, an emptyDir of medium Memory"
    yield Finding("BAD" if cure else "ok", "shared memory", text, cure)


def check_memory(needed, limit, granted, available):
    """Room for all ranks of the node.  All in bytes: needed, the container's limit or None, Slurm's or None, free."""
    room, whose = min(
        (bound, name)
        for bound, name in ((limit, "this container may use"), (granted, "--mem grants"), (available, "are free"))
        if bound is not None
    )
    text = f"{_size(room)} {whose}, this node's ranks need about {_size(needed)}"
    cure = "" if room >= needed else f"ask for {_size(1.2 * needed)} (sbatch --mem, resources.limits), or fewer ranks"
    yield Finding("BAD" if cure else "ok", "memory", text, cure)


def check_processors(ranks, pinned, total, quota):
    """Whether each rank has a processor.

    ranks: on this node, 0 where nothing says.  pinned, total: hardware threads that this process may use and that
    there are.  quota: processors' worth of time that a container gets, or None.
    """
    usable = pinned if quota is None else min(pinned, quota)
    text = f"{usable:g} of {total} usable" + (f" (pinned to {pinned})" if pinned < total else "")
    text += f", time for {quota:g}" if quota is not None else ""
    if ranks > usable:
        cure = f"start {int(usable) or 1}, or set OMPI_MCA_mpi_yield_when_idle=1"
        yield Finding("note", "processors", f"{text}; {ranks} ranks would take turns", cure)
    else:
        yield Finding("ok", "processors", text + (f" by {ranks} ranks" if ranks else ""))


def check_threads(environment=os.environ):
    """One BLAS thread per rank: mpies sees to it unless the environment says otherwise."""
    wanted = {name: environment[name] for name in THREADS if environment.get(name, "1") != "1"}
    listed = ", ".join(f"{name}={value}" for name, value in wanted.items())
    if listed:
        yield Finding("note", "threads", f"{listed}: every rank would start so many", "unset it, or set it to 1")
    else:
        yield Finding("ok", "threads", "one per rank for linear algebra")


def check_kernels(library=kernels.LIBRARY):
    """Whether the inner loop was compiled."""
    if library is None:
        text = "the inner loop is not compiled, so perceptrons are several times slower (to the same bits)"
        cure = "install a C compiler (Debian: gcc libc6-dev python3-dev), then mpies again"
        yield Finding("note", "inner loop", text, cure)
    elif library.play is None:
        text = "compiled without Python's headers, so EnvPool's cheap environments are up to 40 % slower (same bits)"
        yield Finding("note", "inner loop", text, "install them (Debian: python3-dev), then mpies again")
    else:
        yield Finding("ok", "inner loop", "compiled")


def check_hosts(place, folder, ask):
    """Whether all hosts are reached, see this folder, and agree on the time.

    ask: function of (place, host, shell command) that returns what it said there, or None.
    """
    others = [host for host in place.hosts if host.partition(".")[0] != socket.gethostname().partition(".")[0]]
    way = "srun" if place.is_slurm else "ssh"
    if not others:
        yield Finding("ok", "hosts", "this one only")
        return
    silent, blind, apart = [], [], 0.0
    for host in others:
        before = time.time()
        said = ask(place, host, f"date +%s.%N; test -d '{folder}' && echo seen")
        after = time.time()
        if not said:
            silent.append(host)
            continue
        clock, *seen = said.split()
        blind += [] if seen else [host]
        apart = max(apart, before - float(clock), float(clock) - after)
    if silent:
        cure = "try ssh by hand: it must ask no question" if way == "ssh" else "ask sinfo for their state"
        yield Finding("BAD", "hosts", f"no answer by {way} from {_few(silent)} of {len(others)} others", cure)
    else:
        yield Finding("ok", "hosts", f"{len(others)} others answer by {way}")
    if blind:
        cure = "keep config and environment in a folder that all hosts share, or in the image"
        yield Finding("note", "shared files", f"{folder} is not on {_few(blind)}", cure)
    elif len(silent) < len(others):
        yield Finding("ok", "shared files", f"{folder} is on all hosts that answer")
    if len(silent) < len(others):
        yield _clock(f"hosts differ by up to {max(apart, 0):.1f} s", apart)


def check_clock(folder):
    """Whether the file system's clock is ours: a run's writer is known to live by the times it writes."""
    probe = Path(folder) / f".mpies-doctor-{os.getpid()}"
    try:
        before = time.time()
        probe.touch()
        apart = max(before - probe.stat().st_mtime, probe.stat().st_mtime - time.time())
        probe.unlink()
    except OSError as error:
        yield Finding("BAD", "disk", f"{folder} cannot be written ({error.strerror})", "give another folder as --out")
        return
    yield _clock(f"files here are dated within {max(apart, 0):.1f} s of this clock", apart)


def _clock(text, apart):
    """apart: seconds between two clocks."""
    bad = apart > STALE / 2
    return Finding("BAD" if bad else "ok", "clock", text, "run an NTP client (chrony) on the hosts" if bad else "")


def check_leftovers(folder):
    """Folders of launchers that were killed: Open MPI 5 gives up when it gets the process number of one of them."""
    left = [path for path in Path(folder).glob("ompi.*") if not Path("/proc", path.suffix[1:]).exists()]
    if left:
        text = f"{folder}/ompi.* of {len(left)} mpirun that were killed: one with the same process number fails"
        yield Finding("note", "leftovers", text, f"rm -r {folder}/ompi.* while no mpirun is running")


def check_disk(folder):
    """Room for a run."""
    free = shutil.disk_usage(folder).free
    cure = "make room, or give another folder as --out" if free < FULL else ""
    yield Finding("BAD" if cure else "ok", "disk", f"{_size(free)} free in {folder}", cure)


def ask_host(place, host, command):
    """What a shell command says on another host, or None.  Slurm's own way, or ssh as mpirun would."""
    if place.is_slurm:
        start = ["srun", "--overlap", "--mpi=none", "--nodes=1", "--ntasks=1", f"--nodelist={host}", "sh", "-c"]
        return output_of([*start, command])
    arguments = os.environ.get(mpiexec.SSH_ARGUMENTS, "").split()
    return output_of(["ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=5", *arguments, host, command])


def examine(table, needed, folder="."):
    """All Findings about this place, as they are made.

    table: bytes of the noise table.  needed: function of the ranks of a node that gives their bytes.
    """
    place, folder = find_allocation(), str(Path(folder).resolve())
    memory, quota = find_limits()
    pinned, total = len(os.sched_getaffinity(0)), os.cpu_count() or 1
    ranks = f", {place.ranks} ranks on this node" if place.ranks else ""
    yield Finding("ok", "place", f"{place.kind} on {socket.gethostname()}, {len(place.hosts) or 1} hosts{ranks}")
    yield from check_mpi(place)
    yield from check_shared_memory(table)
    yield from check_memory(needed(place.ranks or pinned), memory, place.memory, available_memory())
    yield from check_processors(place.ranks, pinned, total, quota)
    yield from check_threads()
    yield from check_kernels()
    yield from check_hosts(place, folder, ask_host)
    yield from check_clock(folder)
    yield from check_disk(folder)
    yield from check_leftovers(tempfile.gettempdir())


def _few(names):
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _size(count):
    return f"{count / 2**30:,.1f} GB" if count >= 2**30 else f"{count / 2**20:,.0f} MB"
