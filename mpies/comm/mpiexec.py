"""How this machine starts MPI ranks: the command and the variables it needs."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

SSH_ARGUMENTS = "PRTE_MCA_plm_ssh_args"  # the variable that tells Open MPI 5 how to call ssh
# Variables that name a default hostfile: Open MPI 5 and 4, MPICH.
HOSTFILES = ("PRTE_MCA_prte_default_hostfile", "OMPI_MCA_orte_default_hostfile", "HYDRA_HOST_FILE")


def find():
    """The mpiexec beside this Python (the wheel's), else the one on PATH, else None."""
    beside = Path(sys.executable).with_name("mpiexec")
    return str(beside) if beside.exists() else shutil.which("mpiexec")


def command(mpiexec, ranks, arguments):
    """The command line for `ranks` ranks of `mpies` with these arguments, as a list."""
    return [mpiexec, "-n", str(ranks), sys.executable, "-m", "mpies", *arguments]


def environment():
    """This process's environment, made fit for local ranks of Open MPI; MPICH ignores what is added."""
    added = {
        "OMPI_MCA_osc": "^ucx",  # complains on machines without the hardware
        "OMPI_MCA_mpi_yield_when_idle": "1",  # more ranks than cores must not spin
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    }
    if os.geteuid() == 0:
        added |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return added | dict(os.environ)


def never_began(output):
    """Whether mpiexec gave up before it started a rank.

    Open MPI 5 does where one that was killed had the same process number, and left its folder /tmp/ompi.NUMBER.
    """
    return "listener thread failed to start" in output


def run(command, **options):
    """subprocess.run with the output captured as text, in `environment`; again where mpiexec never began."""
    options = {"env": environment(), "stdin": subprocess.DEVNULL, **options}
    for _ in range(3):
        done = subprocess.run(command, capture_output=True, text=True, **options)
        if not never_began(done.stderr):
            break
    return done
