"""What starts the ranks of a job: mpirun on this host or on others, or srun in a Slurm job."""

import os
import re
import shlex
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from mpies.comm import mpiexec
from mpies.core.errors import ConfigError
from mpies.launch.hosts import Host, count_ranks, output_of, run_quietly

OPTIONS = "MPIES_MPIRUN"  # the variable with further options of mpirun
AGENT = "PRTE_MCA_plm_ssh_agent"  # the variable with what Open MPI 5 takes in place of ssh
CONNECT = 10  # seconds that mpirun's ssh to a host may take, which has just answered; without it, minutes
TRIAL = 120  # seconds that a way of starting ranks has to show that it works
# A program for all ranks: fails unless they are connected.  MPICH changes the list that sys.argv is, hence the integer.
COUNT_RANKS = "import sys; wanted = int(sys.argv[1]); from mpi4py import MPI; sys.exit(MPI.COMM_WORLD.size != wanted)"


class Launcher(ABC):
    """A way of starting ranks.  name: for people."""

    name = "mpirun"

    @abstractmethod
    def start_command(self, hosts: Sequence[Host] | None, ranks: int, variables: Mapping[str, str]) -> list[str]:
        """What to put before a program to start it on `ranks` ranks.

        hosts: None for this host alone.  variables: the environment that the command gets.
        """

    def environment(self) -> dict[str, str]:
        """The variables that the command needs."""
        return mpiexec.environment()


class Mpirun(Launcher):
    """mpirun of Open MPI or MPICH.  has_hosts_alone: whether the ranks have their hosts to themselves and are bound.

    Raises ConfigError where there is none, or where its options in the environment cannot be read.
    """

    def __init__(self, has_hosts_alone: bool = False) -> None:
        self._program = mpiexec.require("--ranks")
        try:
            self._options = shlex.split(os.environ.get(OPTIONS, ""))
        except ValueError:
            raise ConfigError(
                f"{OPTIONS} must be options of mpirun, but a quote in {os.environ[OPTIONS]!r} is not closed"
            ) from None
        self.version = find_version(self._program)
        self._is_new = self.version[:1] >= (5,)
        if has_hosts_alone:  # the ranks of Open MPI 5 may be more than there are cores; others know no qualifiers
            binding = "core:overload-allowed:if-supported" if self._is_new else "core"
            self._options = ["--bind-to", binding, *self._options]

    def start_command(self, hosts: Sequence[Host] | None, ranks: int, variables: Mapping[str, str]) -> list[str]:
        flags = [*self._options]
        if self._is_new and "--with-ft" not in flags:
            flags += ["--with-ft", "ulfm"]  # the ranks that are left go on where one is lost
        if hosts is not None:
            listed = ",".join(f"{host.name}:{host.slots}" for host in hosts)
            flags += ["--host" if self.version else "-hosts", listed]
            if self.version:
                flags += [word for name in mpiexec.forwarded(variables) for word in ("-x", name)]
        return [self._program, "-n", str(ranks), *flags]

    def environment(self) -> dict[str, str]:
        variables = {name: value for name, value in super().environment().items() if name not in mpiexec.HOSTFILES}
        if AGENT in variables:  # another program than ssh
            return variables
        given = variables.get(mpiexec.SSH_ARGUMENTS, "")  # of several values ssh takes the first
        return variables | {mpiexec.SSH_ARGUMENTS: f"{given} -o ConnectTimeout={CONNECT}".strip()}


class Srun(Launcher):
    """Starts ranks by srun in a Slurm job.  kind: of its PMI, pmix or pmi2.

    is_native: whether PMIx is told to authenticate natively: where the PMIx of Slurm and the one of the MPI share no
    other way.
    """

    def __init__(self, kind: str, is_native: bool = False) -> None:
        self._kind, self._is_native, self.name = kind, is_native, f"srun --mpi={kind}"

    def start_command(self, hosts: Sequence[Host] | None, ranks: int, variables: Mapping[str, str]) -> list[str]:
        # Ranks leave together, each with its exit code; where one does so alone, the others get half a minute.
        flags = [f"--mpi={self._kind}", "--kill-on-bad-exit=0", "--wait=30", "--cpu-bind=cores", "--overlap"]
        if hosts is not None:
            flags += [f"--nodelist={','.join(host.name for host in hosts)}", f"--nodes={len(hosts)}"]
        return ["srun", *flags, f"--ntasks={ranks}"]

    def environment(self) -> dict[str, str]:
        native = {"PMIX_MCA_psec": "native"} if self._is_native else {}
        return {**super().environment(), **native}


def find_slurm_launcher(hosts: Sequence[Host], wanted: str = "auto") -> Launcher:
    """The first way that starts connected ranks on these nodes of a Slurm job: srun with PMIx or PMI2, or mpirun.

    wanted: auto, srun, srun:pmix, srun:pmi2 or mpirun.  Raises ConfigError with what each said where none works.
    """
    ways: list[Launcher] = []
    for kind in list_pmi():
        if wanted in ("auto", "srun", f"srun:{kind}"):
            ways += [Srun(kind), Srun(kind, is_native=True)] if kind == "pmix" else [Srun(kind)]
    if wanted in ("auto", "mpirun") and mpiexec.find():
        ways.append(Mpirun(has_hosts_alone=True))
    trouble = []
    for launcher in ways:
        ranks, variables = count_ranks(hosts), launcher.environment()
        command = launcher.start_command(hosts, ranks, variables)
        trial = [*command, sys.executable, "-c", COUNT_RANKS, str(ranks)]
        output, errors = run_quietly(trial, variables, TRIAL)
        if output is not None:
            return launcher
        trouble.append(f"{' '.join(command[:2])}: {' '.join(errors.splitlines()[-3:])}")
    what = "; ".join(trouble) or "it must be auto, srun, srun:pmix, srun:pmi2 or mpirun, and be installed here"
    raise ConfigError(f"no way to start connected ranks (--launcher {wanted}): {what}")


def find_version(program: str) -> tuple[int, ...]:
    """(5, 0, 11) of Open MPI's mpirun; () of another's."""
    printed = output_of([program, "--version"], mpiexec.environment()) or ""
    found = re.search(r"Open MPI\D*(\d+)\.(\d+)\.(\d+)", printed)
    return tuple(map(int, found.groups())) if found else ()


def list_pmi() -> list[str]:
    """The kinds of PMI that srun offers, the preferred one first; [] where there is no srun."""
    output, errors = run_quietly(["srun", "--mpi=list"])
    known = (output or "") + errors  # older versions of Slurm print it on standard error
    return [kind for kind in ("pmix", "pmi2") if kind in known]
