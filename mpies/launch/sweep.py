"""A sweep on the ranks of a job: groups of ranks that take one trial after the other until none is left."""

import contextlib
import logging
import os
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mpies.comm import Communicator, RankLost
from mpies.comm.mpiexec import JOB
from mpies.comm.together import do_together
from mpies.core.errors import FAILED, FINISHED, REQUEUE, ConfigError, EnvironmentProblem
from mpies.core.text import counted
from mpies.launch.forecast import TRIED, Forecast, choose_ranks_per_run
from mpies.launch.goal import Goal
from mpies.launch.hosts import count_slots
from mpies.launch.rank import run_on_this_rank
from mpies.launch.simulate import read_constants
from mpies.launch.start import Start
from mpies.launch.supervisor import LOCAL, Supervisor, Where, place
from mpies.runs.pace import Pace, growth_pays
from mpies.sweeps.folder import SweepFolder
from mpies.sweeps.output import print_ending
from mpies.sweeps.rank_groups import DivisionRequest, divide, estimate_works, measure_remaining, wait_for_all
from mpies.sweeps.screen import open_screen
from mpies.sweeps.table import Result, ResultReader, write_table
from mpies.sweeps.trial_ranks import RankGroup, Report, SweepRanks
from mpies.sweeps.trials import Sweep, check_trials
from mpies.training.control import Signals
from mpies.training.finished_run import find_finished_run
from mpies.training.logs import use_json_if_wanted
from mpies.training.noise_tables import NoiseTables

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SweepRequest:
    """What to train, and where to.

    load: reads the sweep.  out: its folder.  ranks_per_run: of a group; None lets `choose_ranks_per_run` decide.
    retries: whether trials that have failed are tried again.  report: called on rank 0 of a group when a trial has
    ended.  is_live: whether that is shown on a live screen instead, where there is a terminal.
    constants: path of what `mpies bench` measured, or None.
    """

    load: Callable[[], Sweep]
    out: str
    ranks_per_run: int | None = None
    retries: bool = False
    report: Report = lambda result, ended, total, out: None
    is_live: bool = False
    constants: str | None = None


@dataclass(frozen=True)
class SweepEnding:
    """How a sweep ended.

    code: the exit code.  results: of all trials on rank 0, else [].  varied: keys that vary.
    total: how many trials there are, those that a sampler has yet to propose among them.
    """

    code: int
    results: list[Result]
    varied: Sequence[str]
    total: int


def train_sweep(comm: Communicator, request: SweepRequest, signals: Signals) -> SweepEnding:
    """Train the trials of a sweep that nobody has trained.  All ranks call this.

    Raises CollectiveError on all ranks for a user's mistake that is found before the first trial.
    """
    folder = do_together(comm, lambda: open_sweep(request, comm))
    own = comm.broadcast([np.frombuffer(uuid.uuid4().bytes, np.uint8)])[0].tobytes().hex()
    name = f"{os.environ.get(JOB, '')}.{own}"  # a supervisor tells by it which groups were its own
    efficient = do_together(comm, lambda: find_ranks_per_run(folder, request, comm) if comm.is_root else None)
    ranks_per_run = comm.broadcast_int(efficient)
    screen = open_screen(SweepFolder(request.out, folder.sweep)) if request.is_live and comm.is_root else None
    report = SweepRequest.report if comm.broadcast_int(int(screen is not None)) else request.report
    tables = NoiseTables(comm.open_node_file())
    try:
        ranks = SweepRanks(folder, name, comm.size, report, signals, tables)
        cause = _train_in_groups(comm, ranks, ranks_per_run)
    finally:
        tables.close()
        if screen:
            screen.close()
    varied, total = folder.sweep.varied, folder.total
    if not comm.is_root:
        return SweepEnding(_agree_on_code(comm, FINISHED), [], varied, total)
    results = ResultReader(folder)
    with contextlib.suppress(OSError):  # the disk may be full; the same command writes it
        write_table(results)
    found, total = results.refresh(), folder.total
    is_left = sum(one.has_ended for one in found) < total
    code = REQUEUE if cause == "signal" and is_left else FINISHED
    if code == FINISHED and (cause == "disk" or any(one.state == "failed" for one in found)):
        code = FAILED
    return SweepEnding(_agree_on_code(comm, code), found, varied, total)


def _train_in_groups(comm: Communicator, ranks: SweepRanks, ranks_per_run: int) -> str:
    """Divide the ranks into groups that train trials, as often as that pays.

    Returns what has ended it: signal, disk (which cannot be written), or '' where nothing is left.
    """
    number = 0
    while True:
        try:
            wait_for_all(comm)
            if number and comm.is_root:
                DivisionRequest(ranks.folder.path, ranks.job, number).end()
            number = comm.broadcast_int(number) + 1  # rank 0's: others may have repaired the ranks more often
            cause = "signal" if ranks.signals.raised is not None else "disk" if ranks.is_disk_full else ""
            if cause := comm.first_error(cause):
                return cause
            division, place = divide(comm, ranks.folder, ranks_per_run)
            if not division.sizes:
                return ""
            group = division.group(place)
            part = comm.split(group)
        except RankLost:
            lost = comm.repair()
            if lost and comm.is_root:
                log.warning("lost %s; the sweep continues on %s", lost, counted(comm.size, "rank"))
            continue
        ranks.size, ranks.folder.job = comm.size, f"{ranks.job}.{number}.{group}"
        trained = RankGroup(part, ranks, DivisionRequest(ranks.folder.path, ranks.job, number), division.trials[group])
        trained.work()
        trained.comm.close()


def _agree_on_code(comm: Communicator, code: int) -> int:
    """Rank 0's code; of ranks that are lost now, no other one needs anything."""
    with contextlib.suppress(RankLost):
        return comm.broadcast_int(code)
    return code


def open_sweep(request: SweepRequest, comm: Communicator) -> SweepFolder:
    """The folder of the sweep, which rank 0 checks and makes.  Raises ConfigError."""
    folder = SweepFolder(request.out, request.load())
    if JOB not in os.environ:  # else the supervisor has checked it, and hosts may have been lost since then
        check_ranks_per_run(request.ranks_per_run, comm.size)
    if comm.is_root:
        check_trials(folder.sweep, folder.list_to_check())
        open_folder(folder, request.retries)
    return folder


def open_folder(folder: SweepFolder, retries: bool) -> None:
    """Make the folder of a sweep, or go on with the sweep in it.  Raises ConfigError."""
    folder.open(lambda trial: find_finished_run(folder.run(trial), folder.config(trial)) is not None, retries)


def check_ranks_per_run(wanted: int | None, ranks: int) -> None:
    """Raise ConfigError where a run is to have more than all ranks.  wanted: of a run; None where that is left open."""
    if wanted and wanted > ranks:
        has = counted(ranks, "rank")
        raise ConfigError(f"--ranks-per-run is {wanted}, but the job has {has}; lower it, or start more ranks")


def find_ranks_per_run(folder: SweepFolder, request: SweepRequest, comm: Communicator) -> int:
    """How many ranks of this job train a run together.  Rank 0 calls this."""
    if request.ranks_per_run or comm.size == 1:
        return request.ranks_per_run or 1
    constants = read_constants(request.constants) if request.constants else None
    forecast, left = Forecast(folder.sweep, constants), folder.count_left()
    # A trial whose environment or policy cannot be built will fail, and others may not.  But it may be the constants
    # that do not fit.
    problems = (EnvironmentProblem,) if constants else (EnvironmentProblem, ConfigError)
    for trial in folder.list_to_check()[:TRIED]:
        with contextlib.suppress(*problems):
            return choose_ranks_per_run(forecast, folder.sweep.config(trial), left, comm.size, comm.node_size)
    return 1


def sweep_on_this_rank(request: SweepRequest) -> int:
    """Train a sweep on all ranks of this job.  Returns the exit code.  All ranks call this."""

    def train(comm: Communicator) -> int:
        signals = Signals()
        use_json_if_wanted(comm)
        for handler in logging.getLogger().handlers:  # of the runs; their log.txt has all of it
            handler.setLevel(logging.WARNING)
        ending = train_sweep(comm, request, signals)
        if comm.is_root:
            print_ending(ending.results, ending.total, str(Path(request.out)), ending.varied)
        signals.close()
        return comm.finalize(ending.code)

    return run_on_this_rank(train)


def supervise_sweep(
    arguments: Sequence[str], request: SweepRequest, ranks: int | None, folder: SweepFolder, where: Where = LOCAL
) -> Supervisor:
    """The Supervisor of `mpies sweep` on `ranks` ranks of a job of its own; None takes all that the hosts have.

    arguments: besides those that the request tells.  folder: of the request's sweep.  where: on which hosts.
    Raises ConfigError for mistakes in the sweep.
    """
    check_trials(folder.sweep, folder.list_to_check())
    folder.check()
    given = {"--out": request.out, "--ranks-per-run": request.ranks_per_run, "--constants": request.constants}
    flags = [str(word) for flag, value in given.items() if value is not None for word in (flag, value)]
    placement, launcher = place(where, ranks)
    check_ranks_per_run(request.ranks_per_run, count_slots(where.hosts, where.hostfile, ranks)[0] or 1)

    supervisor = Supervisor(
        ["sweep", *flags, *arguments], ranks or 1, SweepFinished(folder), placement, launcher, where.restarts
    )
    open_folder(folder, request.retries)  # the ranks may be started several times
    return supervisor


class SweepFinished(Goal):
    """All trials of a sweep, until none is left to train."""

    can_grow = True

    def __init__(self, folder: SweepFolder) -> None:
        self._folder = folder
        super().__init__(self._list_runs)

    def _list_runs(self) -> list[Path]:
        if self._folder.proposals:  # there may be a new batch
            self._folder.refresh()
        return [self._folder.path / trial.name for trial in self._folder.trials]

    def exit_code(self, start: Start, hosts_answer: Callable[[], bool]) -> int | None:
        self._folder.remove_leftovers(self.job)
        if self._folder.has_work():
            return None
        return FAILED if any(map(self._folder.has_failed, self._folder.trials)) else FINISHED

    def is_reached_since(self, start: Start) -> bool:
        return self._folder.count_left() == 0  # trials may have ended before the start, or have no finished.yaml

    def measure(self) -> int:
        return self._folder.measure()

    def growth_pays(self, start: Start, more: int) -> bool:
        folder = self._folder
        trials = [*folder.list_trained_by(self.job), *(folder.trials[number] for number in folder.list_left())]
        found = [measure_remaining(folder, trial) for trial in trials]
        known = [one for one in found if one]
        if not known:
            return False
        generation = max(one.generation for one in known)
        useful = sum(one.most_ranks if one else 1 for one in found)
        pace = Pace(0, generation, sum(estimate_works(found)) / start.ranks / generation)
        grace = folder.config(trials[0]).stop.grace
        return growth_pays(pace, start.ranks, min(more, useful), start.start_up(generation), grace)
