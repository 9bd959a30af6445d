"""How the ranks of a job are divided into groups that each train a trial of a sweep, and when to divide them anew.

A group that finds no trial left waits.  When that costs more than a new division, it requests one: each group of the
job stops its trial behind a generation, as for a callback, and the ranks are divided among the trials that are left.
So the last trial has all of them, and no result changes: a run has the same bits on any number of ranks.
"""

import contextlib
import heapq
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mpies.comm import Communicator
from mpies.core.errors import ConfigError
from mpies.core.text import counted
from mpies.report.ranking import Trial
from mpies.runs.pace import WORTH, Pace, recent_pace
from mpies.sweeps.folder import DIVISION, SweepFolder

ANY = -1  # in place of a trial's number: the next one of the queue
START_UP = 1.0  # seconds that a trial is taken to need before its first generation, until one has been measured
LEAST = 0.01  # seconds of a generation that each rank is to play
LOOK = 0.2  # seconds between two looks for a request


@dataclass(frozen=True)
class Division:
    """How the ranks are divided into groups; without any group, the job has nothing left to train.

    sizes: ranks of each group, in the order of nodes.  trials: the number of the trial that each begins with, or ANY.
    """

    sizes: Sequence[int]
    trials: Sequence[int]

    def group(self, place: int) -> int:
        """The group of the rank at this place."""
        return int(np.searchsorted(np.cumsum(self.sizes), place, side="right"))


def divide(comm: Communicator, folder: SweepFolder, ranks_per_run: int) -> tuple[Division, int]:
    """The Division of all ranks, which rank 0 decides on, and the place of this rank in it.

    With at least as many trials as groups, groups have ranks_per_run ranks.  With fewer, the trials share all ranks,
    but one of which no pace is known yet has ranks_per_run.
    """
    nodes = comm.allgather(np.array([comm.node], np.int64))[0]
    places = np.argsort(np.argsort(nodes, kind="stable"))  # ranks of a node are neighbours, however they are numbered
    decided = None
    if comm.is_root:
        sizes = equal_groups(np.bincount(nodes).tolist(), ranks_per_run)
        left = folder.list_left(len(sizes)) or folder.list_abandoned(len(sizes))
        trials = [ANY] * len(sizes)
        if len(left) < len(sizes):
            found = [measure_remaining(folder, folder.trials[number]) for number in left]
            works, most = estimate_works(found), [one.most_ranks if one else ranks_per_run for one in found]
            sizes, trials = share_ranks(comm.size, works, most), left
            # The ranks that are not needed wait, and request a new division when more is known of the trials.
            if left and sum(sizes) < comm.size:
                sizes, trials = [*sizes, comm.size - sum(sizes)], [*left, ANY]
        decided = [np.array([*sizes, *trials], np.int64)]
    both = np.split(comm.broadcast(decided)[0], 2)
    return Division(*(part.tolist() for part in both)), int(places[comm.rank])


def check_ranks_per_run(wanted: int | None, ranks: int) -> None:
    """Raise ConfigError where a run is to have more than all ranks.  wanted: of a run; None where that is left open."""
    if wanted and wanted > ranks:
        has = counted(ranks, "rank")
        raise ConfigError(f"--ranks-per-run is {wanted}, but the job has {has}; lower it, or start more ranks")


def choose_ranks_per_run(trials: int, ranks: int, node_ranks: int) -> int:
    """How many ranks train a run together, where nobody says.

    As few as leave no rank without a trial: on one rank a run is most efficient.  With fewer trials than ranks they
    divide a node, or are whole nodes.

    trials: how many are to be trained.  ranks: of the job.  node_ranks: of a node.
    """
    sizes, wanted = group_sizes(ranks, node_ranks), -(-ranks // max(1, trials))
    return next((size for size in sizes if size >= wanted), sizes[-1])


def group_sizes(ranks: int, node_ranks: int) -> list[int]:
    """Numbers of ranks of which groups can be made that share no node with a part of another one, the least first."""
    parts = [size for size in range(1, min(node_ranks, ranks) + 1) if node_ranks % size == 0]
    nodes = [node_ranks * 2**power for power in range(1, 24) if node_ranks * 2**power <= ranks]
    return [*parts, *nodes]


def equal_groups(node_sizes: Sequence[int], ranks_per_run: int) -> list[int]:
    """Sizes of groups of ranks_per_run ranks, none of them on two nodes where a node has as many.

    node_sizes: ranks of each node.  What is left of a node, or of all of them, makes a smaller group.
    """
    whole = node_sizes if ranks_per_run <= min(node_sizes) else [sum(node_sizes)]
    return [min(ranks_per_run, size - start) for size in whole for start in range(0, size, ranks_per_run)]


def share_ranks(ranks: int, works: Sequence[float], most: Sequence[int]) -> list[int]:
    """How many ranks each trial gets, at least one, so that the last one ends as early as it can.

    works: core seconds of each, fewer than ranks.  most: ranks that each can use.
    """
    sizes = [1] * len(works)
    waiting = [(-work, number) for number, work in enumerate(works) if most[number] > 1]
    heapq.heapify(waiting)
    for _ in range(ranks - len(works)):
        if not waiting:
            break
        _, number = waiting[0]
        sizes[number] += 1
        if sizes[number] < most[number]:
            heapq.heapreplace(waiting, (-works[number] / sizes[number], number))
        else:
            heapq.heappop(waiting)
    return sizes


@dataclass(frozen=True)
class Remaining:
    """What is left of a trial, by its pace.

    seconds: of wall time.  ranks: that it has.  generation: seconds of one.
    """

    seconds: float
    ranks: int
    generation: float

    @property
    def work(self) -> float:
        """Core seconds."""
        return self.seconds * self.ranks

    @property
    def most_ranks(self) -> int:
        """How many ranks can use it: with more, the time goes into their exchange."""
        return max(self.ranks, int(self.generation * self.ranks / LEAST))


def measure_remaining(folder: SweepFolder, trial: Trial) -> Remaining | None:
    """The Remaining of a trial; None before two generations since it was begun or taken up."""
    found = recent_pace(folder.path / trial.name, folder.config(trial).stop)
    if found is None:
        return None
    pace, ranks = found
    return Remaining(pace.left * pace.seconds, ranks, pace.seconds)


def estimate_works(found: Sequence[Remaining | None]) -> list[float]:
    """Core seconds that are left of each trial.  One that nothing is known of counts as the longest of the others."""
    longest = max((one.work for one in found if one), default=1.0)
    return [max(one.work, 1e-9) if one else longest for one in found]


def division_pays(running: Sequence[Remaining], ranks: int, start_up: float) -> bool:
    """Whether to stop the trials that are running, and to divide all ranks anew.

    It ends the last trial earlier: at best when the work that is left takes all ranks the same time.  It costs the
    start-up of a trial, and the wait for the longest generation.  It must save WORTH times that.

    ranks: of the job.
    """
    if not running:
        return False
    together = max(sum(one.work for one in running) / ranks, *(one.work / one.most_ranks for one in running))
    saved = max(one.seconds for one in running) - together
    return saved > WORTH * (start_up + max(one.generation for one in running))


class DivisionRequest:
    """A request to all groups of a job to be divided anew.  A file in the sweep's folder passes it on.

    job: its name.  number: of the division that this ends.
    """

    def __init__(self, folder: Path, job: str, number: int) -> None:
        self._file = folder / f"{DIVISION}{job}-{number}"
        self._looked_at, self._is_made = -LOOK, False

    def make(self) -> None:
        """Make the request."""
        with contextlib.suppress(OSError):  # the disk may be full; the trials end all the same
            self._file.touch()

    @property
    def is_made(self) -> bool:
        """Whether a group has made it."""
        now = time.monotonic()
        if not self._is_made and now - self._looked_at >= LOOK:
            self._looked_at, self._is_made = now, self._file.exists()
        return self._is_made

    def end(self) -> None:
        """Remove the file.  One rank does that, when all have come."""
        with contextlib.suppress(OSError):
            self._file.unlink(missing_ok=True)


def wait_for_all(comm: Communicator) -> None:
    """Wait for all ranks of the job, without load on the processors that others still need."""
    barrier = comm.nonblocking_barrier()
    while not barrier.is_over():
        time.sleep(LOOK / 10)


def is_nearly_done(pace: Pace | None, start_up: float) -> bool:
    """Whether a trial ends sooner than it could be begun anew; then it is not stopped for a new division."""
    return pace is not None and pace.left * pace.seconds <= start_up
