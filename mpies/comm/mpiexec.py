"""How this machine starts MPI ranks: the command and the environment variables it needs."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from mpies.core.errors import ConfigError
from mpies.core.threads import VARIABLES, limit_threads

JOB = "MPIES_JOB"  # the variable with a name that a supervisor gives all ranks that it starts
SSH_ARGUMENTS = "PRTE_MCA_plm_ssh_args"  # the variable with Open MPI 5's arguments for ssh
# Parts of Open MPI that are left out.
COMPONENTS = {
    "OMPI_MCA_btl": "^ofi",  # is for one-sided access between nodes, which nothing here needs, and costs each start 1 s
}
# Variables that name a default hostfile: Open MPI 5 and 4, MPICH.
HOSTFILES = ("PRTE_MCA_prte_default_hostfile", "OMPI_MCA_orte_default_hostfile", "HYDRA_HOST_FILE")
ATTEMPTS = 3  # how often a command is started whose mpiexec starts no rank
# How Open MPI 5 says so: where a killed mpiexec had the same process number and left its folder /tmp/ompi.NUMBER, and
# where a host has answered a moment ago but its daemon does not come up.
_NEVER_BEGAN = "listener thread failed to start", "daemon failed to report back after being spawned"


def find() -> str | None:
    """The mpiexec beside this Python, which the wheel of Open MPI installs, else the one on PATH, else None."""
    beside = Path(sys.executable).with_name("mpiexec")
    return str(beside) if beside.exists() else shutil.which("mpiexec")


def require(option: str) -> str:
    """What `find` finds.  Raises ConfigError where that is nothing.  option: which needs it, for the message."""
    if (program := find()) is None:
        raise ConfigError(f'{option} needs mpirun: pip install "mpies[mpi]", or load an MPI')
    return program


def command(mpiexec: str, ranks: int, arguments: Sequence[str], flags: Sequence[str] = ()) -> list[str]:
    """The command line that runs `mpies` with these arguments on `ranks` ranks.  flags: further ones of mpiexec.

    -P: a file queue.py, say, in the working directory does not stand for Python's.
    """
    return [mpiexec, "-n", str(ranks), *flags, sys.executable, "-P", "-m", "mpies", *arguments]


def forwarded(variables: Mapping[str, str]) -> list[str]:
    """Names of those variables that ranks on other hosts need, where neither ssh nor Open MPI hands them on."""
    exact = {*VARIABLES, "LD_LIBRARY_PATH", "MPLCONFIGDIR"}
    return sorted(
        name for name, value in variables.items() if value and (name in exact or name.startswith(("MPIES_", "PYTHON")))
    )


def environment() -> dict[str, str]:
    """The variables of this process, one thread for linear algebra, and what Open MPI needs for local ranks.

    MPICH ignores what is for Open MPI.
    """
    home = os.path.expanduser("~")
    added = {
        **COMPONENTS,
        "HOME": home if os.path.isabs(home) else tempfile.gettempdir(),  # mpirun does not start without one
        "OMPI_MCA_mpi_yield_when_idle": "1",  # more ranks than cores must not spin
        # More ranks than cores are fine.  Without "slot", all ranks would be put on the first of several hosts.
        "PRTE_MCA_rmaps_default_mapping_policy": "slot:oversubscribe",
        # A host that vanishes without a word ends the job after 5 seconds; by default nobody would ask for it.
        "PRTE_MCA_oob_tcp_keepalive_time": "3",
        "PRTE_MCA_oob_tcp_keepalive_intvl": "1",
        "PRTE_MCA_oob_tcp_keepalive_probes": "2",
    }
    if os.geteuid() == 0:
        added |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    variables = added | dict(os.environ)
    limit_threads(variables)
    return variables


def never_began(output: str) -> bool:
    """Whether mpiexec gave up before it started a rank.  output: what it printed."""
    return any(words in output for words in _NEVER_BEGAN)


def run(
    command: Sequence[str],
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    timeout: float | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end and capture its output as text; start it again where mpiexec started no rank.

    env: its variables; None takes `environment`.  cwd: its directory.
    timeout: seconds; raises subprocess.TimeoutExpired after them.
    """
    env = environment() if env is None else env
    for _ in range(ATTEMPTS):
        done = subprocess.run(
            command,
            env=env,
            cwd=cwd,
            timeout=timeout,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",  # a user's code may print anything
        )
        if not never_began(done.stdout + done.stderr):
            break
    return done
