"""Ranks that train the trials of a sweep: each group takes one after the other, until none is left for it."""

import contextlib
import errno
import gc
import logging
import os
import socket
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mpies.comm import Communicator, RankLost
from mpies.comm.guarded import Guarded, PeerFailed
from mpies.comm.together import CollectiveError
from mpies.core.errors import NotEnoughSharedMemory, RunLocked, UserError
from mpies.core.text import one_line
from mpies.report.compare.ranking import Result, Trial
from mpies.runs.files import FULL
from mpies.runs.lock import Lock
from mpies.sweeps.folder import SweepFolder
from mpies.sweeps.table import ResultReader, write_table
from mpies.training.control import Signals
from mpies.training.evaluation.noise_tables import NoiseTables
from mpies.training.progress import Progress
from mpies.training.session import Ending, RunRequest, train_run

log = logging.getLogger(__name__)

POLL = 0.5  # seconds between two looks at the queue, while other groups of the job train what is left
ATTEMPTS = 3  # of a trial that fails for what may pass
PASSING = (errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EBUSY, errno.EMFILE, errno.ENOMEM, errno.EACCES)
WAIT, END = -1, -2  # in place of a trial's number

Report = Callable[[Result, int, int, str], object]  # a result, how many trials have ended, how many there are, --out


@dataclass
class SweepRanks:
    """What all groups of a job have in common, on one rank.

    folder: of the sweep.  job: how the names of its groups begin.
    report: called on rank 0 of a group when a trial has ended.  tables: noise tables of the node.
    is_disk_full: whether rank 0 of the group could not write how a trial has ended.
    """

    folder: SweepFolder
    job: str
    report: Report
    signals: Signals
    tables: NoiseTables | None = None
    is_disk_full: bool = False

    def note_full_disk(self, message: str) -> None:
        """Have the sweep end.  message: what could not be written."""
        self.is_disk_full = True
        log.error("%s: %s; the sweep ends, and the same command continues it", self.folder.name, message)


class RankGroup:
    """One rank's part of a group, which trains one trial at a time.

    comm: of the group.  name: under which it locks trials.
    """

    def __init__(self, comm: Communicator, ranks: SweepRanks, name: str) -> None:
        self.comm, self._ranks, self._folder, self._name = comm, ranks, ranks.folder, name
        self._results = ResultReader(ranks.folder)
        self._taken: tuple[Trial, Lock] | None = None  # on rank 0: the trial that is being trained, and its lock
        self._attempts: Counter[str] = Counter()  # names of trials that failed for what may pass

    def work(self) -> None:
        """Train trials until none is left for this job, or a signal arrives.

        It also ends where the disk refuses to be written: it would train the same trial again and again.
        """
        while True:
            try:
                taken = [np.array(self._next(), np.int64)] if self.comm.is_root else None
                number, budget = self.comm.broadcast(taken)[0].tolist()
            except RankLost:
                self._give_back()
                self.comm.repair()
                continue
            if number == END:
                return
            if number == WAIT:
                continue
            if self._train(self._folder.find(number), budget):
                return

    def _next(self) -> tuple[int, int]:
        """The number of the trial that this group has taken, or WAIT, or END; and the budget of halving, or 0."""
        if self._ranks.signals.raised is not None or self._ranks.is_disk_full:
            return END, 0
        folder = self._folder
        try:
            taken, is_busy = folder.take(self._name), True
            if not taken and not any(folder.find_trained_by("" if folder.may_grow else self._ranks.job)):
                is_busy = False
                taken = folder.take(self._name)  # what has ended in between may have brought new trials
        except OSError as error:
            self._ranks.note_full_disk(f"cannot be written ({error.strerror})")
            return END, 0
        if taken:
            number, lock = taken
            self._taken = folder.trials[number], lock
            return number, folder.budget
        if not is_busy:
            return END, 0
        time.sleep(POLL)  # a group that dies leaves its trial to this one
        return WAIT, 0

    def _train(self, trial: Trial, budget: int) -> bool:
        """Train a trial, or write down why that failed.  Returns whether a signal has stopped it."""
        folder, tables, run = self._folder, self._ranks.tables, self._folder.run(trial)
        request = RunRequest(lambda: folder.config(trial, budget), run, run, "auto", job=self._name, tables=tables)
        guarded, ending, failure, may_pass = Guarded(self.comm), Ending(""), "", False
        try:
            ending = train_run(guarded, request, self._ranks.signals, Progress(), time.monotonic())
            failure = ending.problem
            if self.comm.is_root and not failure and ending.reason != "signal" and not folder.has_ended(trial):
                failure = f"{run}: its last row is lost; remove its folder, and --retry trains it anew"
                may_pass = True  # it may be that the file could not be read
        except CollectiveError as error:
            failure = "" if isinstance(error.mistake, RunLocked) else str(error)  # another job was faster
            may_pass = isinstance(error.mistake, NotEnoughSharedMemory)
        except Exception as error:  # of this rank alone, or of another one that this one has learned of
            failure = guarded.fail(describe_failure(error, self.comm.rank))
        is_stopped = ending.reason == "signal"
        if self.comm.is_root and failure and not is_stopped:
            is_unwritten = bool(ending.problem) and ending.reason not in ("", "failures")
            self._record(trial, failure, is_unwritten, may_pass)
        self._give_back()
        if tables:
            tables.release()
        gc.collect()  # the memory that the ranks of the trial shared
        if guarded.has_failed:
            used, self.comm = self.comm, self.comm.split(0)
            used.close()
        if self.comm.is_root and not is_stopped:
            self._show(trial)
        return is_stopped

    def _record(self, trial: Trial, failure: str, is_unwritten: bool, may_pass: bool) -> None:
        """Write down why a trial has failed, unless the disk is to blame: then the trial is to be taken up again.

        What may pass, such as an error of the disk, is tried ATTEMPTS times before.
        is_unwritten: whether it was trained to its end, which could not be written.
        """
        reason, _, details = failure.partition("\n")
        may_pass = may_pass or any(os.strerror(number) in reason for number in PASSING)
        self._attempts[trial.name] += may_pass
        if may_pass and self._attempts[trial.name] < ATTEMPTS:
            log.warning("%s; it is tried again", reason)
            time.sleep(POLL)
            return
        if is_unwritten or any(os.strerror(number) in reason for number in FULL):
            self._ranks.note_full_disk(reason)
            return
        try:
            self._folder.record_failure(trial, reason, details)
        except OSError as error:
            self._ranks.note_full_disk(f"{trial.name}: {reason}; that cannot be written ({error.strerror})")

    def _give_back(self) -> None:
        """Release the trial that rank 0 has taken."""
        if self._taken:
            self._folder.give_back(*self._taken)
            self._taken = None

    def _show(self, trial: Trial) -> None:
        with contextlib.suppress(OSError):  # the disk may be full; the next trial tries again
            write_table(self._results)
        results = self._results.refresh()
        ended = sum(one.has_ended for one in results)
        result = next(one for one in results if one.trial.name == trial.name)
        if result.is_finished or result.state == "failed":  # else another job has it
            self._ranks.report(result, ended, self._folder.total, self._folder.name)


def describe_failure(error: Exception, rank: int) -> str:
    """Why a trial has failed: a line, and the traceback of the rank below it.  '' where the trial is not to blame."""
    if isinstance(error, RunLocked):  # another job has taken the run
        log.warning("%s", error)
    if isinstance(error, RunLocked | RankLost | PeerFailed):
        return ""
    reason = one_line(str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}")
    return f"{reason}\nrank {rank} of the group on {socket.gethostname()}\n{traceback.format_exc()}"
