"""Train in processes of their own, as a user does on the command line."""

import itertools
import sys
from collections.abc import Sequence

from mpies.comm import mpiexec
from mpies.core.errors import ConfigError
from mpies.core.text import counted


class TrainProcessFailed(ConfigError):
    """Training on a number of ranks has ended with another exit code than 0.  reason: its last error, in one line."""

    def __init__(self, ranks: int, code: int, reason: str) -> None:
        super().__init__(f"training on {counted(ranks, 'rank')} ended with code {code}: {reason}")
        self.code, self.reason = code, reason


def require_mpiexec() -> str:
    """The mpiexec that starts ranks here.  Raises ConfigError if there is none."""
    program = mpiexec.find()
    if program is None:
        raise ConfigError('several ranks need mpiexec; pip install "mpies[mpi]" or load an MPI')
    return program


def train(ranks: int, arguments: Sequence[str]) -> None:
    """Run `mpies train` with these arguments to its end, without MPI on one rank.  Raises TrainProcessFailed."""
    arguments = ["train", "--log-format", "text", *arguments]  # which find_reason reads, whatever MPIES_LOG says
    command = [sys.executable, "-m", "mpies", *arguments]
    if ranks > 1:
        command = mpiexec.command(require_mpiexec(), ranks, arguments)
    done = mpiexec.run(command)
    if done.returncode:
        raise TrainProcessFailed(ranks, done.returncode, find_reason(done.stderr))


def find_reason(output: str) -> str:
    """The last error that the standard error of `mpies train` tells of, in one line; without one, its last lines."""
    lines = [line for line in output.replace("\0", "").splitlines() if line.strip()]
    for number in reversed(range(len(lines))):
        message = lines[number]
        if message.startswith("ERROR rank "):  # of a run that could not go on
            return message
        if message.startswith("mpies: "):
            if message.endswith(":"):  # a traceback follows, and behind it perhaps a report of mpirun
                traceback = itertools.takewhile(lambda line: not line.startswith("---"), lines[number + 1 :])
                message = " ".join([message, *[line for line in traceback if not line.startswith(" ")][-1:]])
            return message
    return " ".join(lines[-3:])
