"""On which hosts a job starts: those that answer and have the same mpies; never more ranks than wanted."""

import contextlib
import json
import os
import shlex
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from mpies.comm import mpiexec
from mpies.comm.mpiexec import JOB
from mpies.comm.processes import kill_with_variable, variables_with
from mpies.core.errors import ConfigError
from mpies.launch.hosts import Host, HostSource, check_slots, count_ranks, run_quietly
from mpies.runs.machine import OPTIONAL, versions

AGAIN = 2.0  # seconds between two questions to hosts that are waited for
CONNECT = 2  # seconds that a connection to a host may take
PATIENCE = 20  # seconds that its whole answer may take, a Python that reads the versions of packages included
CROWD = 64  # hosts that are asked at the same time
LOCAL = ("localhost", "127.0.0.1", "::1")
LOCAL_RANK = "OMPI_COMM_WORLD_LOCAL_RANK"  # the variables in which Open MPI tells a rank its number on its host,
LOCAL_SIZE = "OMPI_COMM_WORLD_LOCAL_SIZE"  # and how many its host has
PRINT_VERSIONS = """
import json, sys
from mpies.launch.placement import end_leftovers
from mpies.runs.machine import versions

end_leftovers(sys.argv[1])
print(json.dumps(versions()))
"""
PRINT_HAS_ALL_RANKS = """
import sys
from mpies.launch.placement import has_all_ranks

print(has_all_ranks(sys.argv[1]))
"""

T = TypeVar("T")


class TooFewHosts(ConfigError):
    """Fewer hosts answer than the job needs.  answering: how many do."""

    def __init__(self, message: str, answering: int) -> None:
        super().__init__(message)
        self.answering = answering


@dataclass(frozen=True)
class Answer:
    """Whether ranks can run on a host.

    problem: why not, beginning with its name; '' if they can.  is_mismatch: it answers, but with other versions.
    """

    host: Host
    problem: str = ""
    is_mismatch: bool = False


class Placement:
    """Chooses the hosts of each start of a job.

    source: which hosts there are.  ranks: at most, None for all slots.  min_ranks: with fewer the job does not go on.
    wait: seconds that hosts have to answer: all of them before the first start, then enough for min_ranks.
    way: how they are asked, ssh or srun.  job: the name that all ranks of the job share.
    is_stopped: tells whether nobody waits any more.  report: called with a severity and a line.
    Raises ConfigError where the hosts have too few slots.
    """

    def __init__(
        self,
        source: HostSource,
        ranks: int | None = None,
        min_ranks: int = 1,
        wait: float = 0.0,
        way: str = "ssh",
        job: str = "",
        is_stopped: Callable[[], bool] = lambda: False,
        report: Callable[[str, str], object] = lambda severity, line: None,
    ) -> None:
        self._source, self._ranks, self._min_ranks, self._wait = source, ranks, min_ranks, wait
        self._way, self._job, self._is_stopped, self._report = way, job, is_stopped, report
        self.count_listed = 0  # how many hosts there were when they were last looked for
        self._silent: set[str] = set()  # hosts whose silence has been reported
        check_slots(source.given(), ranks, min_ranks)

    def choose(self, is_first: bool) -> list[Host]:
        """The hosts to start on, each with as many slots as are to be used.  Ends what is left of an earlier start.

        Raises TooFewHosts after `wait` seconds, and ConfigError where a host has another mpies at the first start.
        """
        deadline = time.monotonic() + self._wait
        end_leftovers(self._job)
        while True:
            try:
                listed, unlisted = self._source.hosts(), "no hosts are named"
            except ConfigError as error:
                if is_first:
                    raise
                listed, unlisted = [], str(error)  # a hostfile that cannot be read may be one that is being replaced
            self.count_listed = len(listed)
            answers = ask_hosts(listed, self._way, self._job)
            fit = [answer.host for answer in answers if not answer.problem]
            for answer in answers:
                if answer.is_mismatch and is_first:
                    raise ConfigError(answer.problem)
            slots = count_ranks(fit)
            is_over = self._is_stopped() or time.monotonic() >= deadline
            problems = [answer for answer in answers if answer.problem]
            news = [answer.problem for answer in problems if answer.host.name not in self._silent]
            self._silent = {answer.host.name for answer in problems}
            if is_over and slots < self._min_ranks:
                few = f"{len(fit)} of {len(listed)} hosts answer, with {slots} slots" if fit else "no host answers"
                why = "; ".join(news[:3] or [answer.problem for answer in problems[:1]] or [unlisted])
                raise TooFewHosts(f"{few}, but --min-ranks is {self._min_ranks}; {why}", len(fit))
            for problem in news:
                self._report("WARNING", f"no ranks on {problem}")
            if fit and slots >= self._min_ranks and (not is_first or len(fit) == len(listed) or is_over):
                return self.limit(fit)
            time.sleep(AGAIN)

    def all_answer(self, hosts: Sequence[Host]) -> bool:
        """Whether ranks can run on all of these hosts now."""
        return not any(answer.problem for answer in ask_hosts(hosts, self._way, self._job))

    def limit(self, hosts: Sequence[Host]) -> list[Host]:
        """The first of the hosts, as many as `ranks` needs."""
        left = self._ranks or count_ranks(hosts)
        chosen = []
        for host in hosts:
            if left > 0:
                chosen.append(Host(host.name, min(host.slots, left)))
                left -= chosen[-1].slots
        return chosen

    def find_larger(self, used: Sequence[Host]) -> list[Host]:
        """The hosts of a start on more ranks than on the hosts in use; [] where there are none."""
        listed = self._source.hosts()
        others = missing_in(used, listed)
        if not others or (self._ranks and count_ranks(used) >= self._ranks):
            return []
        came = {answer.host.name for answer in ask_hosts(others, self._way, self._job) if not answer.problem}
        self._silent -= came
        names = {host.name for host in used} | came
        larger = self.limit([host for host in listed if host.name in names])
        return larger if count_ranks(larger) > count_ranks(used) else []

    def look_for_ranks(self, hosts: Sequence[Host]) -> dict[str, bool | None]:
        """Whether each of the other hosts has all ranks of the job that were started on it; None without an answer."""

        def ask(host: Host) -> bool | None:
            question = [sys.executable, "-c", PRINT_HAS_ALL_RANKS, self._job]
            output = run_quietly(command_on(host.name, question, self._way), timeout=PATIENCE)[0] or ""
            # Its shell may print something, too.
            return next((line == "True" for line in output.splitlines() if line in ("True", "False")), None)

        others = [host for host in hosts if not is_this_host(host.name)]
        return {host.name: answer for host, answer in zip(others, _ask_all(others, ask), strict=True)}


def missing_in(hosts: Sequence[Host] | None, others: Sequence[Host] | None) -> list[Host]:
    """Those of `others` that are not among `hosts`."""
    names = {host.name for host in hosts or ()}
    return [host for host in others or () if host.name not in names]


def ask_hosts(hosts: Sequence[Host], way: str = "ssh", job: str = "") -> list[Answer]:
    """Ask each host for the versions of its packages, all at the same time.

    way: ssh or srun.  job: the name that all ranks of the job share; on other hosts, what is left of them is ended.
    """
    own = versions()

    def ask(host: Host) -> Answer:
        if is_this_host(host.name):
            return Answer(host)
        question = [sys.executable, "-c", PRINT_VERSIONS, job]
        output, errors = run_quietly(command_on(host.name, question, way), timeout=PATIENCE)
        return judge_answer(host, own, output or "", errors)

    return _ask_all(hosts, ask)


def _ask_all(hosts: Sequence[Host], ask: Callable[[Host], T]) -> list[T]:
    with ThreadPoolExecutor(max(1, min(CROWD, len(hosts)))) as pool:
        return list(pool.map(ask, hosts))


def end_leftovers(job: str) -> None:
    """On this host, end the ranks that a job's lost mpirun has left.

    Where the network was cut, or mpirun has just lost a host, ranks live on for seconds and would go on training.
    """
    if job:
        kill_with_variable(JOB, job)


def has_all_ranks(job: str) -> bool:
    """Whether this host has all ranks of a job that were started on it.  True before the first one is there."""
    found = [one for one in variables_with(JOB, job) if LOCAL_RANK in one and LOCAL_SIZE in one]
    return not found or len({one[LOCAL_RANK] for one in found}) >= int(found[0][LOCAL_SIZE])


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
