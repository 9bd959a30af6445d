"""Start ranks with mpirun or srun, start them again where hosts are lost or come back, and end them as a user expects.

mpirun kills its ranks half a second after Ctrl-C or SIGTERM, in the middle of a generation.  The supervisor is one
process that is no rank.  It keeps mpirun in a process group of its own, where a terminal's Ctrl-C does not reach it,
and hands signals on as SIGUSR1, which mpirun forwards to every rank: they finish the generation and write a checkpoint.
It judges by the run directory how a start has ended, as mpirun may say 0 after it has lost a host.
"""

import contextlib
import ctypes
import itertools
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType

from mpies.comm import is_launched, mpiexec
from mpies.comm.mpiexec import JOB
from mpies.comm.processes import kill_with_variable
from mpies.config.loading import load_config
from mpies.core.errors import FAILED, FAILED_FOR_GOOD, FINISHED, REQUEUE, USER_ERROR, ConfigError
from mpies.core.paths import absolute
from mpies.launch.forwarder import Forwarder, write_lines
from mpies.launch.goal import Goal, RunsFinished
from mpies.launch.hosts import RESTARTS, Host, Where, count_ranks, find_source, names_of
from mpies.launch.launcher import Launcher, Mpirun, SlurmLauncher, explain_no_start, remove_folder_of
from mpies.launch.placement import Placement, TooFewHosts, missing_in
from mpies.launch.run_progress import newest_generation
from mpies.launch.start import TEARDOWN, GrowthWatch, RanksLook, Start, StartUpWatch, TeardownWatch
from mpies.runs.directory import check_directory
from mpies.runs.files import default_out
from mpies.training import logs

LOCAL = Where()
FRUITLESS = 2  # starts in a row, where several hosts are named, that may make no generation although hosts answer
PATIENCE = 5.0  # seconds that mpirun has to end after SIGTERM
DRAIN = 0.5  # seconds that its last lines have to come through the pipe
PAUSE = 2.0  # seconds before mpirun is tried again where it started no rank, and twice as many before the third time
POLL = 0.1  # seconds between two looks at signals and at the run


class Supervisor:
    """Runs `mpies ARGUMENTS` on ranks.  Raises ConfigError where there is no mpirun, or this process is a rank itself.

    ranks: their number; with a placement it decides instead.  goal: what they are to finish.
    placement: chooses the hosts of each start; None for this host alone.  launcher: what starts ranks; None for mpirun.
    restarts: how often at most ranks that ended unexpectedly are started again.

    output: where the ranks' standard output goes, as for subprocess.Popen; None for that of this process.
    write: called with the lines that the ranks and mpirun print on standard error.
    received: the signals that have arrived, as numbers.

    `run` may be called in any thread, but only in the main one it handles signals.  `stop` may be called anywhere.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        ranks: int,
        goal: Goal,
        placement: Placement | None = None,
        launcher: Launcher | None = None,
        restarts: int = RESTARTS,
    ) -> None:
        if is_launched():
            raise ConfigError("--ranks starts ranks of its own, but this process is a rank already; leave one out")
        self._goal, self._progress = goal, goal.progress
        self._launcher = launcher or Mpirun()
        self._launcher.added[JOB] = goal.job
        self._arguments, self._ranks, self._placement = list(arguments), ranks, placement
        self._restarts = restarts
        self._restarted = 0  # how often ranks that ended unexpectedly were started again
        self._fruitless = 0  # how many of these starts in a row made no generation, although all hosts were there
        self.output: int | None = None
        self.write: Callable[[Iterable[str]], object] = write_lines
        self._process: subprocess.Popen[str] | None = None
        self._wanted: list[Host] = []  # hosts of a larger start, for which the ranks have been asked to stop
        self._signals = 0  # that have arrived, and calls of `stop`
        self.received: list[int] = []
        self._looker = ThreadPoolExecutor(1)  # asks hosts while ranks run
        self._libc = ctypes.CDLL(None)  # loaded before any child is forked
        if placement:
            placement.is_stopped, placement.job = lambda: self._signals > 0, goal.job

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
        process = self._process
        if self._signals == 2 and process and process.poll() is None:
            process.terminate()
            timer = threading.Timer(PATIENCE, process.kill)
            timer.daemon = True  # nobody waits for it when mpirun has ended before
            timer.start()

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self.received.append(number)
        self.stop()

    def _on_pause(self, _number: int, _frame: FrameType | None) -> None:
        """Ctrl-Z: stop the ranks, by way of Open MPI's mpirun, and this process; SIGCONT continues both."""
        process = self._process
        if process:
            process.send_signal(signal.SIGTSTP)  # nothing is sent where it has ended
        os.kill(os.getpid(), signal.SIGSTOP)
        if process:
            process.send_signal(signal.SIGCONT)

    def _report(self, severity: str, message: str) -> None:
        runs = self._progress.runs
        logs.report(severity, message, self._progress.current() or (runs[0] if runs else None))

    def _supervise(self) -> int:
        try:
            start = self._start(self._choose_first_hosts())
        except ConfigError as error:
            if self._signals:  # nobody waits for the ranks any more
                return REQUEUE
            # Slurm gave the job enough nodes, so it has lost some since; in the queue it waits for others.
            if not (isinstance(error, TooFewHosts) and self._launcher.way == "srun" and error.answering):
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

    def _choose_hosts(self, is_first: bool) -> list[Host] | None:
        return self._placement.choose(self._report, is_first) if self._placement else None

    def _choose_first_hosts(self) -> list[Host] | None:
        """The hosts of the first start, on which ranks can be started.  Raises ConfigError where there are none."""
        while True:
            hosts = self._choose_hosts(is_first=True)
            try:
                self._launcher.prepare(hosts)
                return hosts
            except ConfigError:  # a host may have been lost meanwhile
                if self._signals or not self._placement or self._placement.all_answer(hosts or []):
                    raise

    def _exit_code(self, start: Start) -> int | None:
        """The exit code of the job where the ranks have nothing left to do, else None."""
        placement = self._placement
        return self._goal.exit_code(start, lambda: not placement or placement.all_answer(start.hosts or []))

    def _find_next_start(self, start: Start, code: int) -> Start | int:
        """The start that goes on after one that ended with this code, or the exit code where none does."""
        newest = newest_generation(self._progress.current())
        has_grown = self._goal.measure() > start.measured
        stopped_at = self._progress.written_at() if has_grown else start.stopped_at or start.began
        larger = self._wanted
        if code == REQUEUE and not larger:  # somebody has signalled the ranks themselves
            return REQUEUE
        try:
            hosts = self._choose_hosts(is_first=False)
        except TooFewHosts as error:
            self._report("ERROR", f"{error}; nothing is lost, the same command continues from generation {newest}")
            return REQUEUE
        if self._signals:  # they came while hosts were asked
            return REQUEUE
        if code == REQUEUE:
            return self._start(hosts, f"the return of {names_of(missing_in(start.hosts, larger))}", stopped_at)
        lost = missing_in(hosts, start.hosts)
        self._restarted += 1
        self._fruitless = 0 if has_grown or lost else self._fruitless + 1
        # A host may be lost while ranks start, and back before it is asked.
        tolerated = FRUITLESS if self._placement and self._placement.count_listed > 1 else 0
        if self._restarted > self._restarts or self._fruitless > tolerated:
            self._report_the_end(code, newest)
            return FAILED
        cause = f"the loss of {names_of(lost)}" if lost else f"an unexpected end (code {code})"
        number = f"restart {self._restarted} of {self._restarts}"
        self._report("WARNING", f"{cause} after generation {newest}: {number}")
        return self._start(hosts, cause, stopped_at)

    def _report_the_end(self, code: int, newest: int) -> None:
        """Say why ranks that ended with this code are not started again.  newest: the last generation."""
        if self._restarted > self._restarts > 0:
            self._report("ERROR", f"the ranks ended unexpectedly after generation {newest}, more than --restarts times")
        elif code != FAILED:  # else the ranks have said why
            self._report("ERROR", f"the ranks ended after generation {newest}, and the run is not complete")

    def _start(self, hosts: list[Host] | None, cause: str = "", stopped_at: float = 0.0) -> Start:
        ranks = count_ranks(hosts) if hosts else self._ranks
        now = Start(hosts, ranks, time.time(), self._progress.writer(), self._progress.finished())
        now.cause, now.stopped_at, now.measured = cause, stopped_at, self._goal.measure()
        if (hosts or cause) and not self._signals:
            after = f" after {cause}" if cause else ""
            self._report("INFO", f"starting {now.describe()} by {self._launcher.name}{after}")
        if cause:  # the run is there now, and is meant to go on
            pairs = itertools.pairwise(["", *self._arguments])
            self._arguments = ["auto" if pair == ("--resume", "never") else pair[1] for pair in pairs]
        return now

    def _run_once(self, start: Start) -> int:
        """The exit code of a start; it is tried again where mpirun started no rank at all.

        mpirun reports on standard output or error that a host's daemon does not come up, and ends with a code of its
        own; it may report the same of a host that is lost later.
        """
        for attempt in range(mpiexec.ATTEMPTS):
            time.sleep(attempt * PAUSE)
            if attempt and self._placement and start.hosts and not self._placement.all_answer(start.hosts):
                break  # a host is lost; the next start is without it
            self._wanted = []
            start.began = time.time()
            self._process = process = subprocess.Popen(
                self._launcher.command(start.hosts, start.ranks, self._arguments),
                env=self._launcher.environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL if self.output is None and is_unread(1) else self.output,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                process_group=0,
                preexec_fn=self._prepare_child,
            )
            assert process.stderr
            errors = Forwarder(process.stderr, self.write)
            errors.start()
            try:
                code = start.code = self._wait(process, start)
            except BaseException:
                self._end(process, FAILED)  # nobody would look after the ranks any more
                raise
            finally:
                remove_folder_of(process.pid)
            is_final = code in (USER_ERROR, FAILED_FOR_GOOD, REQUEUE)
            is_of_mpirun = not is_final and code not in (FINISHED, FAILED)  # and not of a rank
            has_ended_well = is_final or self._exit_code(start) is not None
            is_killed = process.returncode < 0
            self._drain(errors, may_have_lost=start.hosts is not None and (is_killed or not has_ended_well))
            has_begun = start.length is not None or not (errors.never_began or (start.hosts and is_of_mpirun))
            if self._signals or has_begun:
                break
        if errors.never_began and (why := explain_no_start()):
            self._report("ERROR", why)
        return code if code >= 0 else 128 - code  # of a killed mpirun, as shells have it

    def _drain(self, errors: Forwarder, may_have_lost: bool) -> None:
        """Wait until all that was printed is forwarded.  may_have_lost: whether a host may be lost.

        mpirun leaves its ssh to a lost host behind, which holds the pipe open until it notices that itself.
        """
        if may_have_lost:
            errors.join(DRAIN)
            if errors.is_alive():
                kill_with_variable(JOB, self._goal.job)
        errors.join(PATIENCE)

    def _wait(self, process: subprocess.Popen[str], start: Start) -> int:
        """Wait for mpirun's end, and ask the ranks to stop when a signal has arrived.  Returns the exit code."""
        growth = GrowthWatch(
            self._placement, self._goal.growth_pays if self._goal.can_grow else None, self._looker, start
        )
        incomplete, silent = self._look(start, sought=False, every=TEARDOWN), self._look(start, sought=None, every=POLL)
        start_up = StartUpWatch(process.pid, start, incomplete)
        teardown = TeardownWatch(self._progress, start, self._goal.is_reached_since, silent)
        is_asked = False
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.wait(POLL)
            self._note_first_generation(start)
            if not (is_asked or self._signals):
                self._wanted = growth.find_larger()
            if not is_asked and (self._signals or self._wanted):
                if start.length is None:  # nothing is being played, so nothing is lost
                    return self._end(process, REQUEUE)
                process.send_signal(signal.SIGUSR1)
                is_asked = True
            if host := start_up.find_incomplete():
                self._report("ERROR", f"a rank of {host} ended before all ranks were connected")
                return self._end(process, FAILED)
            if teardown.has_hung(is_asked):
                return self._end(process, REQUEUE if is_asked else FAILED)

    def _look(self, start: Start, sought: bool | None, every: float) -> RanksLook:
        way = self._placement.way if self._placement else ""
        return RanksLook(self._looker, start, way, self._goal.job, sought, every)

    def _end(self, process: "subprocess.Popen[str]", code: int) -> int:
        """End mpirun, which may wait for ssh to a host that is lost.  Returns `code`."""
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(PATIENCE)
        process.kill()
        process.wait()
        return code

    def _note_first_generation(self, start: Start) -> None:
        """Take note of when the ranks began to write; log what a restart has cost when a generation is on record.

        What ranks of the start before may still write does not count.
        """
        if start.length is None:
            self._progress.refresh()
            if self._progress.writer() in ("", start.writer):
                return
            start.length = self._progress.length()
        if start.first_row or self._progress.length() <= start.length:
            return
        start.first_row = self._progress.written_at()
        if start.cause:
            seconds = start.first_row - start.stopped_at
            newest = newest_generation(self._progress.current())
            message = f"{start.cause} cost {seconds:.1f} s: generation {newest} is done by {start.describe()}"
            self._report("INFO", message)

    def _prepare_child(self) -> None:
        """In the child: have the kernel send SIGTERM when the supervisor dies, even by SIGKILL.

        The ranks may also print on the terminal whose foreground is the supervisor's: `stty tostop` would stop them.
        """
        self._libc.prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)


def is_unread(descriptor: int) -> bool:
    """Whether a descriptor is of a pipe that nobody reads any more.  mpirun would end at the first line of a rank."""
    poll = select.poll()
    poll.register(descriptor, 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


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
        known = load_config(config, overrides)
        for run in runs:
            check_directory(run, known, resume)
    placement, launcher = place(where, ranks)
    return Supervisor(
        ["train", *flags, "--", config, *overrides],
        ranks or 1,
        RunsFinished([absolute(run) for run in runs], lambda: load_config(config, overrides).stop),
        placement,
        launcher,
        where.restarts,
    ).run()


def place(where: Where, ranks: int | None) -> tuple[Placement | None, Launcher]:
    """What chooses the hosts, and what starts ranks on them.  Raises ConfigError."""
    source = find_source(where.hosts, where.hostfile)
    if source is None:
        if where.min_ranks > 1:
            raise ConfigError("--min-ranks needs several hosts: --hosts or --hostfile")
        return None, Mpirun()
    launcher = SlurmLauncher(where.launcher) if where.hosts == "slurm" else Mpirun()
    return Placement(source, ranks, where.min_ranks, where.wait, launcher.way), launcher
