"""Which hosts answer, and whether they have the same mpies as this one."""

import contextlib
import json
import os
import shlex
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from mpies.comm import mpiexec
from mpies.comm.mpiexec import JOB
from mpies.comm.processes import kill_with_variable, variables_with
from mpies.launch.hosts import Host
from mpies.runs.machine import OPTIONAL, versions

CONNECT = 2  # seconds that a connection to a host may take
PATIENCE = 20  # seconds that its whole answer may take, a Python that reads the versions of packages included
CROWD = 64  # hosts that are asked at the same time
LOCAL = ("localhost", "127.0.0.1", "::1")
PRINT_VERSIONS = """
import json, sys
from mpies.launch.answers import end_leftovers
from mpies.runs.machine import versions

end_leftovers(sys.argv[1])
print(json.dumps(versions()))
"""
PRINT_HAS_ALL_RANKS = """
import sys
from mpies.launch.answers import has_all_ranks

print(has_all_ranks(sys.argv[1]))
"""
LOCAL_RANK = "OMPI_COMM_WORLD_LOCAL_RANK"  # the variables in which Open MPI tells a rank its number on its host,
LOCAL_SIZE = "OMPI_COMM_WORLD_LOCAL_SIZE"  # and how many its host has


@dataclass(frozen=True)
class Answer:
    """Whether ranks can run on a host.

    problem: why not, beginning with its name; '' if they can.  is_mismatch: it answers, but with other versions.
    """

    host: Host
    problem: str = ""
    is_mismatch: bool = False


def ask_hosts(hosts: Sequence[Host], way: str = "ssh", job: str = "") -> list[Answer]:
    """Ask each host for the versions of its packages, all at the same time.

    way: ssh or srun.  job: the name that all ranks of the job share; on other hosts, what is left of them is ended.
    """
    own = versions()

    def ask(host: Host) -> Answer:
        if is_this_host(host.name):
            return Answer(host)
        return judge_answer(host, own, *_run(command_on(host.name, [sys.executable, "-c", PRINT_VERSIONS, job], way)))

    with ThreadPoolExecutor(max(1, min(CROWD, len(hosts)))) as pool:
        return list(pool.map(ask, hosts))


def end_leftovers(job: str) -> None:
    """On this host, end the ranks that a job's lost mpirun has left, and remove its temporary files.

    Where the network was cut, or mpirun has just lost a host, ranks live on for seconds and would go on training.
    """
    if job:
        kill_with_variable(JOB, job)
    with contextlib.suppress(OSError):  # there may be no folder for temporary files that can be written
        mpiexec.remove_leftovers()


def has_all_ranks(job: str) -> bool:
    """Whether this host has all ranks of a job that were started on it.  True before the first one is there."""
    found = [one for one in variables_with(JOB, job) if LOCAL_RANK in one and LOCAL_SIZE in one]
    return not found or len({one[LOCAL_RANK] for one in found}) >= int(found[0][LOCAL_SIZE])


def look_for_ranks(hosts: Sequence[Host], way: str, job: str) -> dict[str, bool | None]:
    """Whether each of the other hosts has all ranks of a job that were started on it; None where it does not answer.

    way: ssh or srun.
    """

    def ask(host: Host) -> bool | None:
        output = _run(command_on(host.name, [sys.executable, "-c", PRINT_HAS_ALL_RANKS, job], way))[0]
        # Its shell may print something, too.
        return next((line == "True" for line in output.splitlines() if line in ("True", "False")), None)

    others = [host for host in hosts if not is_this_host(host.name)]
    with ThreadPoolExecutor(max(1, min(CROWD, len(others)))) as pool:
        return {host.name: answer for host, answer in zip(others, pool.map(ask, others), strict=True)}


def is_this_host(name: str) -> bool:
    """Whether a host's name is that of this machine, which mpirun needs no ssh for."""
    own = socket.gethostname()
    return name in (*LOCAL, own, own.partition(".")[0])


def command_on(host: str, command: Sequence[str], way: str = "ssh") -> list[str]:
    """The command line that runs a command on another host.  way: ssh, or srun within a Slurm job."""
    settings = [f"{name}={os.environ[name]}" for name in mpiexec.forwarded(os.environ)]
    words = ["env", *settings, *command]
    if way == "srun":
        step = ["srun", "--overlap", "--mpi=none", "--nodes=1", "--ntasks=1", f"--nodelist={host}", "--quiet"]
        return [*step, *words]
    arguments = os.environ.get(mpiexec.SSH_ARGUMENTS, "").split()
    options = ("BatchMode=yes", f"ConnectTimeout={CONNECT}", "ConnectionAttempts=1")
    flags = [word for option in options for word in ("-o", option)]
    return ["ssh", *flags, *arguments, host, shlex.join(words)]


def _run(command: Sequence[str]) -> tuple[str, str]:
    """Standard output and standard error; no output where the command fails."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=PATIENCE
        )
    except subprocess.TimeoutExpired:
        return "", f"no answer within {PATIENCE} s"
    except OSError as error:
        return "", f"{command[0]}: {error.strerror}"
    return (done.stdout if done.returncode == 0 else ""), done.stderr


def judge_answer(host: Host, own: Mapping[str, str], output: str, errors: str) -> Answer:
    """What a host said.  own: versions of packages here.  output, errors: of PRINT_VERSIONS on the host."""
    lines = [line for line in errors.strip().splitlines() if line.strip()]
    theirs = _find_versions(output)
    if theirs is None:
        reason = lines[-1].strip() if lines else "there is no answer"
        if "Permission denied" in reason:
            reason = f"ssh asks for a password or key ({reason}); install a key: ssh-copy-id {host.name}"
        return Answer(host, f"{host.name}: {reason}")
    # A run that uses an optional package ends in one line where it is absent.
    compared = {*own, *theirs} - {name for name in OPTIONAL if name not in own or name not in theirs}
    different = [name for name in sorted(compared) if own.get(name) != theirs.get(name)]
    if different:
        said = ", ".join(f"{name} {theirs.get(name, 'absent')} (here {own.get(name, 'absent')})" for name in different)
        return Answer(host, f"{host.name} has {said}; install the same versions on all hosts", is_mismatch=True)
    return Answer(host)


def _find_versions(output: str) -> dict[str, str] | None:
    """What PRINT_VERSIONS has printed; None without that.  The host's shell may print something before and after it."""
    for line in output.splitlines():
        with contextlib.suppress(ValueError, RecursionError):
            found = json.loads(line)
            if isinstance(found, dict):
                return found
    return None
