"""Start ranks with mpirun or srun, start them again where hosts are lost or come back, and end them as a user expects.

mpirun kills its ranks half a second after Ctrl-C or SIGTERM, in the middle of a generation.  The supervisor is one
process that is no rank.  It hands signals on as SIGUSR1, which mpirun forwards to every rank: they finish the
generation and write a checkpoint.  It judges by the run directory how a start has ended, as mpirun may say 0 after it
has lost a host.
"""

import itertools
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType

from mpies.comm import is_launched, mpiexec
from mpies.comm.mpiexec import JOB
from mpies.core.errors import FAILED, FAILED_FOR_GOOD, FINISHED, REQUEUE, USER_ERROR, ConfigError
from mpies.core.paths import absolute
from mpies.core.text import counted
from mpies.launch.goal import Goal, RunsFinished, Start
from mpies.launch.hosts import Host, Where, count_ranks, find_source, names_of
from mpies.launch.placement import Placement, TooFewHosts, missing_in
from mpies.launch.ranks.launcher import Launcher, Mpirun, find_slurm_launcher
from mpies.launch.ranks.rank_processes import RankProcesses, Write, write_lines
from mpies.launch.ranks.watches import StartWatch
from mpies.runs.files import default_out
from mpies.training import logs

LOCAL = Where()
FRUITLESS = 2  # starts in a row, where several hosts are named, that may make no generation although hosts answer
PAUSE = 2.0  # seconds before mpirun is tried again where it started no rank, and twice as many before the third time
CROWD = 4  # ranks for each processor, beyond which a user is told that this is slow
POLL = 0.1  # seconds between two looks at signals and at the run


class Supervisor:
    """Runs `mpies ARGUMENTS` on ranks.

    ranks: their number; on the hosts of `where` at most, and None for all slots.  goal: what they are to finish.
    where: on which hosts, and how often at most ranks that ended unexpectedly are started again.
    launcher: what starts ranks; None for mpirun, or for what works in a Slurm job whose hosts are used.
    output, write: as for RankProcesses.
    received: the signals that have arrived, as numbers.

    `run` may be called in any thread, but only in the main one it handles signals.  `stop` may be called anywhere.
    Raises ConfigError where there is no mpirun, where the hosts have too few slots, or this process is a rank itself.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        ranks: int | None,
        goal: Goal,
        where: Where = LOCAL,
        launcher: Launcher | None = None,
        output: int | None = None,
        write: Write = write_lines,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        if is_launched():
            raise ConfigError("--ranks starts ranks of its own, but this process is a rank already; leave one out")
        self._arguments, self._ranks, self._goal, self._restarts = list(arguments), ranks or 1, goal, where.restarts
        self._output, self._write, self._variables = output, write, variables or {}
        source = find_source(where.hosts, where.hostfile)
        self._where, self._way = where, "srun" if where.hosts == "slurm" else "ssh"
        self._launcher = launcher or (None if self._way == "srun" else Mpirun())  # None before its hosts are known
        self._placement = (
            Placement(
                source, ranks, where.min_ranks, where.wait, self._way, goal.job, lambda: self._signals > 0, self._report
            )
            if source
            else None
        )
        self._restarted = 0  # how often ranks that ended unexpectedly were started again
        self._fruitless = 0  # how many of these starts in a row made no generation, although all hosts were there
        self._processes: RankProcesses | None = None
        self._wanted: list[Host] = []  # hosts of a larger start, for which the ranks have been asked to stop
        self._signals = 0  # that have arrived, and calls of `stop`
        self.received: list[int] = []
        self._looker = ThreadPoolExecutor(1)  # asks hosts while ranks run

    def run(self) -> int:
        """Start the ranks, and start them again as long as that helps.  Returns the exit code."""
        before = {}
        if threading.current_thread() is threading.main_thread():  # Python handles signals nowhere else
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
                before[number] = signal.signal(number, self._on_signal)
            if signal.getsignal(signal.SIGTSTP) == signal.SIG_DFL:
                before[signal.SIGTSTP] = signal.signal(signal.SIGTSTP, self._on_pause)
        try:
            return self._supervise()
        finally:
            self._looker.shutdown(wait=False, cancel_futures=True)
            for number, handler in before.items():
                signal.signal(number, handler)

    def stop(self) -> None:
        """Have the ranks finish this generation and write a checkpoint; called again, end them at once."""
        self._signals += 1
        if self._signals == 2 and self._processes:
            self._processes.terminate()

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self.received.append(number)
        self.stop()

    def _on_pause(self, _number: int, _frame: FrameType | None) -> None:
        """Ctrl-Z: stop the ranks, by way of Open MPI's mpirun, and this process; SIGCONT continues both."""
        processes = self._processes
        if processes:
            processes.send_signal(signal.SIGTSTP)  # nothing is sent where mpirun has ended
        os.kill(os.getpid(), signal.SIGSTOP)
        if processes:
            processes.send_signal(signal.SIGCONT)

    def _report(self, severity: str, message: str) -> None:
        _, newest = self._goal.newest()
        logs.report_of_supervisor(severity, message, newest or next(iter(self._goal.runs), None))

    def _supervise(self) -> int:
        if not self._placement and self._ranks > CROWD * (here := len(os.sched_getaffinity(0))):
            cure = f"that is slower than a rank for each; --ranks auto starts {here}"
            self._report("WARNING", f"{self._ranks} ranks share {counted(here, 'processor')}: {cure}")
        try:
            start = self._make_start(self._choose_first_hosts())
        except ConfigError as error:
            if self._signals:  # nobody waits for the ranks any more
                return REQUEUE
            # Slurm gave the job enough nodes, so it has lost some since; in the queue it waits for others.
            if not (isinstance(error, TooFewHosts) and self._way == "srun" and error.answering):
                raise
            self._report("ERROR", f"{error}; nothing is lost, the same command continues")
            return REQUEUE
        code = REQUEUE  # of a signal before the ranks are started, or between two starts: nothing is lost
        while not self._signals:
            code = self._run_once(start)
            ended = self._exit_code(start)
            if ended is not None and code != USER_ERROR:
                return ended
            if self._signals or code in (USER_ERROR, FAILED_FOR_GOOD):
                break
            following = self._find_next_start(start, code)
            if isinstance(following, int):
                return following
            start, code = following, REQUEUE
        if self._signals and self._placement and code != USER_ERROR:
            return REQUEUE  # nothing is lost, whatever mpirun says of a host that it has lost while the ranks stopped
        return code if code in (USER_ERROR, REQUEUE) else FAILED

    def _choose_first_hosts(self) -> list[Host] | None:
        """The hosts of the first start, on which ranks can be started.  Raises ConfigError where there are none."""
        while True:
            hosts = self._placement.choose(is_first=True) if self._placement else None
            try:
                self._launcher = self._launcher or find_slurm_launcher(hosts or [], self._where.launcher)
                return hosts
            except ConfigError:  # a host may have been lost meanwhile
                if self._signals or self._all_answer(hosts):
                    raise

    def _all_answer(self, hosts: list[Host] | None) -> bool:
        return not self._placement or self._placement.all_answer(hosts or [])

    def _exit_code(self, start: Start) -> int | None:
        """The exit code of the job where the ranks have nothing left to do, else None."""
        return self._goal.exit_code(start, lambda: self._all_answer(start.hosts))

    def _find_next_start(self, start: Start, code: int) -> Start | int:
        """The start that goes on after one that ended with this code, or the exit code where none does."""
        newest = self._goal.newest_generation()
        has_grown = self._goal.measure() > start.measured
        stopped_at = self._goal.newest()[0] if has_grown else start.stopped_at or start.began
        larger = self._wanted
        if code == REQUEUE and not larger:  # somebody has signalled the ranks themselves
            return REQUEUE
        try:
            hosts = self._placement.choose(is_first=False) if self._placement else None
        except TooFewHosts as error:
            self._report("ERROR", f"{error}; nothing is lost, the same command continues from generation {newest}")
            return REQUEUE
        if self._signals:  # they came while hosts were asked
            return REQUEUE
        if code == REQUEUE:
            return self._make_start(hosts, f"the return of {names_of(missing_in(start.hosts, larger))}", stopped_at)
        lost = missing_in(hosts, start.hosts)
        self._restarted += 1
        self._fruitless = 0 if has_grown or lost else self._fruitless + 1
        # A host may be lost while ranks start, and back before it is asked.
        tolerated = FRUITLESS if self._placement and self._placement.count_listed > 1 else 0
        if self._restarted > self._restarts or self._fruitless > tolerated:
            if self._restarted > self._restarts > 0:
                why = f"the ranks ended unexpectedly after generation {newest}, more than --restarts times"
                self._report("ERROR", why)
            elif code != FAILED:  # else the ranks have said why
                self._report("ERROR", f"the ranks ended after generation {newest}, and the run is not complete")
            return FAILED
        cause = f"the loss of {names_of(lost)}" if lost else f"an unexpected end (code {code})"
        number = f"restart {self._restarted} of {self._restarts}"
        self._report("WARNING", f"{cause} after generation {newest}: {number}")
        return self._make_start(hosts, cause, stopped_at)

    def _make_start(self, hosts: list[Host] | None, cause: str = "", stopped_at: float = 0.0) -> Start:
        assert self._launcher
        start = Start(self._goal, hosts, count_ranks(hosts) if hosts else self._ranks, cause, stopped_at)
        if (hosts or cause) and not self._signals:
            after = f" after {cause}" if cause else ""
            self._report("INFO", f"starting {start.size()} by {self._launcher.name}{after}")
        if cause:  # the run is there now, and is meant to go on
            pairs = itertools.pairwise(["", *self._arguments])
            self._arguments = ["auto" if pair == ("--resume", "never") else pair[1] for pair in pairs]
        return start

    def _run_once(self, start: Start) -> int:
        """The exit code of a start; it is tried again where mpirun started no rank at all.

        mpirun reports on standard output or error that a host's daemon does not come up, and ends with a code of its
        own; it may report the same of a host that is lost later.
        """
        assert self._launcher
        for attempt in range(mpiexec.ATTEMPTS):
            time.sleep(attempt * PAUSE)
            if attempt and start.hosts and not self._all_answer(start.hosts):
                break  # a host is lost; the next start is without it
            self._wanted = []
            start.began = time.time()
            variables = self._launcher.environment() | {JOB: self._goal.job, **self._variables}
            command = self._launcher.start_command(start.hosts, start.ranks, variables)
            command += [sys.executable, "-P", "-m", "mpies", *self._arguments]
            self._processes = processes = RankProcesses(command, variables, self._output, self._write)
            try:
                start.code = code = self._wait(processes, start)
            except BaseException:
                processes.end(FAILED)  # nobody would look after the ranks any more
                raise
            finally:
                processes.remove_folder()
            is_final = code in (USER_ERROR, FAILED_FOR_GOOD, REQUEUE)
            is_of_mpirun = not is_final and code not in (FINISHED, FAILED)  # and not of a rank
            has_ended_well = is_final or self._exit_code(start) is not None
            processes.drain(self._goal.job, start.hosts is not None, has_ended_well)
            has_begun = start.is_writing or not (processes.errors.never_began or (start.hosts and is_of_mpirun))
            if self._signals or has_begun:
                break
        if processes.errors.never_began:
            folder = os.environ.get("TMPDIR", "/tmp")
            why = f"a full disk is a frequent reason: it writes to {folder} (TMPDIR)"
            self._report("ERROR", f"mpirun started no rank; {why}")
        return code if code >= 0 else 128 - code  # of a killed mpirun, as shells have it

    def _wait(self, processes: RankProcesses, start: Start) -> int:
        """Wait for mpirun's end, and ask the ranks to stop when a signal has arrived.  Returns the exit code."""
        watch = StartWatch(self._placement, self._goal, start, self._looker)
        is_asked = False
        while True:
            if (code := processes.wait(POLL)) is not None:
                return code
            if start.look() and start.cause:
                seconds, newest = start.first_row - start.stopped_at, self._goal.newest_generation()
                done = f"generation {newest} is done by {start.size()}"
                self._report("INFO", f"{start.cause} cost {seconds:.1f} s: {done}")
            if not (is_asked or self._signals):
                self._wanted = watch.find_larger()
            if not is_asked and (self._signals or self._wanted):
                if not start.is_writing:  # nothing is being played, so nothing is lost
                    return processes.end(REQUEUE)
                processes.send_signal(signal.SIGUSR1)
                is_asked = True
            if host := watch.find_incomplete():
                self._report("ERROR", f"a rank of {host} ended before all ranks were connected")
                return processes.end(FAILED)
            if watch.has_hung(is_asked):
                return processes.end(REQUEUE if is_asked else FAILED)


def supervise_training(
    config: str,
    out: str | None,
    resume: str,
    overrides: Sequence[str],
    seeds: Sequence[int] | None,
    ranks: int | None,
    log_format: str = "text",
    where: Where = LOCAL,
) -> int:
    """`mpies train` with these arguments on `ranks` ranks.  Returns the exit code.

    seeds: that follow one another, or None.  where: on which hosts.  Raises ConfigError.
    """
    words = f"{seeds[0]}..{seeds[-1]}" if seeds else None
    given = {"--out": out, "--resume": resume, "--log-format": log_format, "--seeds": words}
    flags = [word for flag, value in given.items() if value is not None for word in (flag, value)]
    base = Path(out or default_out(config, overrides))
    runs = [Path(f"{base}-seed-{seed}") for seed in seeds] if seeds else [base]
    if resume == "never":  # all at once: when ranks are started again, a run that is there is taken to be theirs
        from mpies.config.loading import load_config  # like NumPy, it takes long to import
        from mpies.runs.directory import check_directory

        known = load_config(config, overrides)
        for run in runs:
            check_directory(run, known, resume)
    goal = RunsFinished([absolute(run) for run in runs])
    return Supervisor(["train", *flags, "--", config, *overrides], ranks, goal, where).run()
