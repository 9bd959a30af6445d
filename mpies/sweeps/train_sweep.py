"""A sweep on the ranks of a job: groups of ranks that take one trial after the other until none is left."""

import contextlib
import logging
import os
import uuid
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mpies.comm import Communicator, RankLost
from mpies.comm.mpiexec import JOB
from mpies.comm.together import do_together
from mpies.core.errors import FAILED, FINISHED, REQUEUE
from mpies.core.text import counted
from mpies.sweeps.folder import SweepFolder
from mpies.sweeps.rank_groups import check_ranks_per_run, choose_ranks_per_run, find_group, wait_for_all
from mpies.sweeps.table import ResultReader, write_table
from mpies.sweeps.trial_ranks import RankGroup, Report, SweepRanks
from mpies.sweeps.trials import Sweep, check_trials
from mpies.training.control import Signals
from mpies.training.evaluation.noise_tables import NoiseTables

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SweepRequest:
    """What to train, and where to.

    load: reads the sweep.  out: its folder.  ranks_per_run: of a group; None lets `choose_ranks_per_run` decide.
    retries: whether trials that have failed are tried again.  report: called on rank 0 of a group when a trial has
    ended.
    """

    load: Callable[[], Sweep]
    out: str
    ranks_per_run: int | None = None
    retries: bool = False
    report: Report = lambda result, ended, total, out: None


def train_sweep(comm: Communicator, request: SweepRequest, signals: Signals) -> tuple[int, ResultReader]:
    """Train the trials of a sweep that nobody has trained.  All ranks call this.

    Returns the exit code, and what reads the results.
    Raises CollectiveError on all ranks for a user's mistake that is found before the first trial.
    """
    folder = do_together(comm, lambda: open_sweep(request, comm))
    drawn = comm.broadcast([np.frombuffer(uuid.uuid4().bytes, np.uint8)])[0].tobytes().hex()
    name = f"{os.environ.get(JOB, '')}.{drawn}"  # a supervisor tells its groups by it

    def choose() -> int:
        return request.ranks_per_run or choose_ranks_per_run(folder.count_left(), comm.size, comm.node_size)

    ranks_per_run = comm.broadcast_int(do_together(comm, lambda: choose() if comm.is_root else None))
    file = comm.open_node_file()
    tables = do_together(comm, lambda: NoiseTables(file))
    try:
        ranks = SweepRanks(folder, name, request.report, signals, tables)
        cause = _train_in_groups(comm, ranks, ranks_per_run)
    finally:
        tables.close()
    results, code = ResultReader(folder), FINISHED
    if comm.is_root:
        with contextlib.suppress(OSError):  # the disk may be full; the same command writes it
            write_table(results)
        found = results.refresh()
        if cause == "signal" and sum(one.has_ended for one in found) < folder.total:
            code = REQUEUE
        elif cause == "disk" or any(one.state == "failed" for one in found):
            code = FAILED
    with contextlib.suppress(RankLost):  # of ranks that are lost now, no other one needs anything
        code = comm.broadcast_int(code)
    return code, results


def _train_in_groups(comm: Communicator, ranks: SweepRanks, ranks_per_run: int) -> str:
    """Divide the ranks into groups that train trials; again where ranks were lost, or left a trial.

    comm: of all ranks of the job.
    Returns what has ended it: signal, disk (which cannot be written), or '' where nothing is left.
    """
    number = 0
    while True:
        try:
            wait_for_all(comm)
            number = comm.broadcast_int(number) + 1  # rank 0's: others may have repaired the ranks more often
            cause = "signal" if ranks.signals.raised is not None else "disk" if ranks.is_disk_full else ""
            if cause := comm.first_error(cause):
                return cause
            if not comm.broadcast_int(ranks.folder.is_any_left() if comm.is_root else None):
                return ""
            group = find_group(comm, ranks_per_run)
            part = comm.split(group)
        except RankLost:
            lost = comm.repair()
            if lost and comm.is_root:
                log.warning("lost %s; the sweep continues on %s", lost, counted(comm.size, "rank"))
            continue
        trained = RankGroup(part, ranks, f"{ranks.job}.{number}.{group}")
        trained.work()
        trained.comm.close()


def open_sweep(request: SweepRequest, comm: Communicator) -> SweepFolder:
    """The folder of the sweep, which rank 0 checks and makes.  Raises ConfigError."""
    folder = SweepFolder(request.out, request.load())
    if JOB not in os.environ:  # else the supervisor has checked it, and hosts may have been lost since then
        check_ranks_per_run(request.ranks_per_run, comm.size)
    if comm.is_root:
        check_trials(folder.sweep, folder.list_to_check())
        folder.open(request.retries)
    return folder
