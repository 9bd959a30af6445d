"""A sweep on the ranks of a job: groups of ranks that take one trial after the other until none is left."""

import contextlib
import logging
import os
import sys
import time
import traceback
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np

from mpies.comm import LAUNCHED, Communicator, RankLost
from mpies.comm.together import CollectiveError, do_together
from mpies.errors import FAILED, FINISHED, REQUEUE, USER_ERRORS, ConfigError, RunLocked, escape
from mpies.jobs.finished_run import find_finished_run
from mpies.jobs.logs import use_json_if_wanted
from mpies.jobs.rank import run_on_this_rank
from mpies.jobs.supervisor import Supervisor
from mpies.jobs.training import RunRequest, train_run
from mpies.runs.lock import Lock
from mpies.scaling.cost import predict_cost
from mpies.sweeps.folder import SweepFolder
from mpies.sweeps.table import Result, Results, describe_result, format_standings, write_table
from mpies.sweeps.trials import Sweep, Trial, check_trials
from mpies.training.control import Signals
from mpies.views.progress import NoProgress, format_entry, is_json_wanted

log = logging.getLogger(__name__)

POLL = 0.5  # seconds between two looks at the queue, while other groups of the job train what is left
ROWS = 40  # settings that the table shows
WAIT, END = -1, -2  # in place of a trial's number

Report = Callable[[Result, int, int, str], object]  # a result, how many trials have ended, how many there are, --out


@dataclass(frozen=True)
class SweepRequest:
    """What to train, and where to.

    load: reads the sweep.  out: its folder.  ranks_per_run: of a group.  retries: whether trials that have failed are
    tried again.  report: called on rank 0 of a group when a trial has ended.
    """

    load: Callable[[], Sweep]
    out: str
    ranks_per_run: int = 1
    retries: bool = False
    report: Report = lambda result, ended, total, out: None


@dataclass(frozen=True)
class SweepEnding:
    """code: the exit code.  results: of all trials, on rank 0; [] elsewhere."""

    code: int
    results: list[Result]


def train_sweep(comm: Communicator, request: SweepRequest, signals: Signals) -> SweepEnding:
    """Train the trials of a sweep that nobody has trained.  All ranks call this.

    Raises CollectiveError on all ranks for a user's mistake that is found before the first trial.
    """
    folder = do_together(comm, lambda: open_sweep(request, comm))
    name = comm.broadcast([np.frombuffer(uuid.uuid4().bytes, np.uint8)])[0].tobytes().hex()
    number = comm.rank // request.ranks_per_run
    folder.job = f"{name}.{number}"
    part = comm.split(number) if request.ranks_per_run < comm.size else comm
    is_stopped = _Group(part, folder, request.report, signals, name).work()
    if part is not comm:
        part.close()
    while True:
        try:
            is_stopped = bool(comm.first_error("signal" if is_stopped else ""))
            break
        except RankLost:
            comm.repair()
    if not comm.is_root:
        return SweepEnding(_agree_on_code(comm, FINISHED), [])
    results = Results(folder)
    write_table(results)
    found = results.refresh()
    is_left = any(one.state in ("new", "stopped", "running") for one in found)
    code = REQUEUE if is_stopped and is_left else FINISHED
    if code == FINISHED and any(one.state == "failed" for one in found):
        code = FAILED
    return SweepEnding(_agree_on_code(comm, code), found)


def _agree_on_code(comm: Communicator, code: int) -> int:
    """Rank 0's code; of ranks that are lost now, no other one needs anything."""
    with contextlib.suppress(RankLost):
        return comm.broadcast_int(code)
    return code


def open_sweep(request: SweepRequest, comm: Communicator) -> SweepFolder:
    """The folder of the sweep, which rank 0 checks and makes.  Raises ConfigError."""
    folder = SweepFolder(request.out, request.load())
    if request.ranks_per_run > comm.size:
        raise ConfigError(
            f"--ranks-per-run is {request.ranks_per_run}, but the job has {comm.size} rank{'s' * (comm.size > 1)}; "
            "lower it, or start more with --ranks"
        )
    if comm.is_root:
        check_trials(folder.sweep, folder.trials)
        folder.open(
            lambda trial: find_finished_run(folder.run(trial), folder.sweep.config(trial)) is not None, request.retries
        )
    return folder


class _Group:
    """One rank's part of a group, which trains one trial at a time.

    comm: of the group.  name: how the names of all groups of the job begin.
    """

    def __init__(self, comm: Communicator, folder: SweepFolder, report: Report, signals: Signals, name: str) -> None:
        self.comm, self._folder, self._report, self._signals, self._name = comm, folder, report, signals, name
        self._results = Results(folder)
        self._lock: Lock | None = None  # on rank 0: of the trial that is being trained

    def work(self) -> bool:
        """Train trials until none is left for this job.  Returns whether a signal has ended that."""
        while True:
            try:
                number = self.comm.broadcast_int(self._next() if self.comm.is_root else None)
            except RankLost:
                self.comm.repair()
                continue
            if number == END:
                return self._signals.raised is not None
            if number == WAIT:
                continue
            if self._train(self._folder.trials[number]):
                return True

    def _next(self) -> int:
        """The number of the trial that this group has taken, or WAIT, or END."""
        if self._signals.raised is not None:
            return END
        taken = self._folder.take()
        if taken:
            number, self._lock = taken
            return number
        if not self._folder.is_trained_by(self._name):
            return END
        time.sleep(POLL)  # a group that dies leaves its trial to this one
        return WAIT

    def _train(self, trial: Trial) -> bool:
        """Train a trial, or write down why that failed.  Returns whether a signal has ended it."""
        run, sweep = self._folder.run(trial), self._folder.sweep
        request = RunRequest(lambda: sweep.config(trial), run, run, "auto", job=self._folder.job, has_plots=False)
        reason, problem, details = "", "", ""
        try:
            ending = train_run(self.comm, request, self._signals, NoProgress(), time.monotonic())
            reason, problem = ending.reason, ending.problem
        except CollectiveError as error:
            problem = "" if isinstance(error.mistake, RunLocked) else str(error)  # another job was faster
        except Exception as error:
            details = traceback.format_exc()
            if isinstance(error, RunLocked):
                log.warning("%s", error)
            else:
                problem = str(error) if isinstance(error, USER_ERRORS) else f"{type(error).__name__}: {error}"
            if self.comm.size > 1:  # the others of the group would wait for ever: the job ends, the next one goes on
                if problem:
                    self._folder.record_failure(trial, problem, details)
                raise
        if self.comm.is_root and problem and reason != "signal":
            self._folder.record_failure(trial, problem, details)
        if self._lock:
            self._folder.give_back(trial, self._lock)
            self._lock = None
        self.comm.free()
        if self.comm.is_root and reason != "signal":
            self._show(trial)
        return reason == "signal"

    def _show(self, trial: Trial) -> None:
        with contextlib.suppress(OSError):  # the disk may be full; the next trial tries again
            write_table(self._results)
        results = self._results.refresh()
        ended = sum(one.is_finished or one.state == "failed" for one in results)
        result = next(one for one in results if one.trial is trial)
        if result.is_finished or result.state == "failed":  # else another job has it
            self._report(result, ended, len(results), self._folder.name)


def print_result(result: Result, ended: int, total: int, out: str) -> None:
    """Print a trial that has ended on standard output."""
    message = f"[{ended}/{total}] {describe_result(result, out)}"
    severity = "WARNING" if result.state == "failed" else "INFO"
    print(format_entry(severity, message, {}) if is_json_wanted() else escape(message), flush=True)


def sweep_on_this_rank(request: SweepRequest) -> int:
    """Train a sweep on all ranks of this job.  Returns the exit code.  All ranks call this."""

    def train(comm: Communicator) -> int:
        signals = Signals()
        use_json_if_wanted(comm)
        for handler in logging.getLogger().handlers:  # of the runs; their log.txt has all of it
            handler.setLevel(logging.WARNING)
        ending = train_sweep(comm, request, signals)
        if comm.is_root:
            print_ending(ending, request)
        signals.close()
        return comm.finalize(ending.code)

    return run_on_this_rank(train)


def print_ending(ending: SweepEnding, request: SweepRequest) -> None:
    """Print the table of the settings, and a line that says how the sweep ended."""
    states = [one.state for one in ending.results]
    left, running, failed = states.count("new") + states.count("stopped"), *map(states.count, ("running", "failed"))
    parts = [f"{len(states) - left - running - failed} of {len(states)} trials finished"]
    parts += [f"{failed} failed (--retry tries them again)"] if failed else []
    parts += [f"{running} trained by other jobs"] if running else []
    parts += [f"{left} left; the same command goes on"] if left else []
    message = f"{request.out}: {', '.join(parts)}; {request.out}/trials.csv has all of them"
    if is_json_wanted():
        print(format_entry("INFO", message, {}), flush=True)
        return
    if not all(state == "new" for state in states):
        heading, *rows = format_standings(ending.results, request.load().varied)
        print_table([heading, *rows[:ROWS]])
        if len(rows) > ROWS:
            print(f"and {len(rows) - ROWS} more", flush=True)
    print(escape(message), flush=True)


def print_table(rows: Iterable[tuple[str, ...]]) -> None:
    """Print a heading and rows as a table, as wide as the terminal, or 140 columns in a file."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    heading, *rest = rows
    table = Table(box=box.SIMPLE)
    for cell in heading:
        table.add_column(Text(cell))
    for row in rest:
        table.add_row(*(Text(cell) for cell in row))
    is_terminal = sys.stdout.isatty() and not any(name in os.environ for name in LAUNCHED)
    Console(width=None if is_terminal else 140, force_terminal=False).print(table)


def dry_run(request: SweepRequest, ranks: int | None) -> int:
    """Print what a sweep would do, and write nothing.  ranks: that would be started.  Returns the exit code."""

    def show(comm: Communicator) -> int:
        text = do_together(comm, lambda: describe_sweep(request, ranks or comm.size) if comm.is_root else "")
        if comm.is_root:
            click.echo(escape(text))
        return comm.finalize(FINISHED)

    return run_on_this_rank(show)


def describe_sweep(request: SweepRequest, ranks: int) -> str:
    """What a sweep would do on so many ranks, as lines of text.  Raises what the sweep would."""
    folder = SweepFolder(request.out, request.load())
    if request.ranks_per_run > ranks:
        raise ConfigError(f"--ranks-per-run is {request.ranks_per_run}, but there are {ranks} ranks; lower it")
    check_trials(folder.sweep, folder.trials)
    folder.check()
    groups = -(-ranks // request.ranks_per_run)
    memory = predict_cost(folder.sweep.config(folder.trials[0]), request.ranks_per_run).memory
    size = groups * (memory.table + memory.root) + ranks * memory.rank
    width = max(len(trial.name) for trial in folder.trials)
    lines = [
        f"{trial.name:{width}}  {folder.state(trial):8}  {' '.join(trial.overrides)}".rstrip()
        for trial in folder.trials
    ]
    left = folder.count_left()
    return "\n".join(
        [
            *lines,
            "",
            f"trials              {len(folder.trials)}, of which {left} are to be trained, in {folder.name}",
            f"ranks               {ranks}, in {groups} group{'s' * (groups > 1)} of {request.ranks_per_run}",
            f"memory of a node    {size / 2**20:,.0f} MB with all groups, as the first trial needs it",
            "",
            "nothing was written",
        ]
    )


def supervise_sweep(arguments: Sequence[str], request: SweepRequest, ranks: int, folder: SweepFolder) -> Supervisor:
    """The Supervisor of `mpies sweep` on `ranks` ranks of a job of its own.

    arguments: besides those that the request tells.  folder: of the request's sweep.  Raises ConfigError for mistakes
    in the sweep.
    """
    check_trials(folder.sweep, folder.trials)
    folder.check()
    if request.retries:  # once, and not whenever the ranks are started again
        folder.forget_failures()
    arguments = ["--out", request.out, "--ranks-per-run", str(request.ranks_per_run), *arguments]
    runs: list[Path] = [folder.path / trial.name for trial in folder.trials]
    supervisor = Supervisor(["sweep", *arguments], ranks, lambda: runs)
    supervisor.is_over = lambda: not any(folder.state(trial) in ("new", "stopped") for trial in folder.trials)
    return supervisor
