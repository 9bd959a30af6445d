"""Train in processes of their own, as a user does on the command line."""

import sys
from collections.abc import Sequence

from mpies.comm import mpiexec
from mpies.errors import ConfigError


def require_mpiexec() -> str:
    """The mpiexec that starts ranks here.  Raises ConfigError if there is none."""
    program = mpiexec.find()
    if program is None:
        raise ConfigError('several ranks need mpiexec; pip install "mpies[mpi]" or load an MPI')
    return program


def train(ranks: int, arguments: Sequence[str]) -> None:
    """Run `mpies train` with these arguments to its end, without MPI on one rank.

    Raises ConfigError if it fails, with the beginning of its messages.
    """
    command = [sys.executable, "-m", "mpies", "train", *arguments]
    if ranks > 1:
        command = mpiexec.command(require_mpiexec(), ranks, ["train", *arguments])
    done = mpiexec.run(command)
    if done.returncode:
        lines = done.stderr.splitlines()
        messages = [line for line in lines if line.startswith("mpies: ")][:3] or lines[-3:]
        raise ConfigError(f"training on {ranks} ranks ended with code {done.returncode}: {' '.join(messages)}")
