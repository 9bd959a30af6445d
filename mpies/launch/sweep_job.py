"""`mpies sweep` on the ranks of this job, or under a supervisor that starts them."""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from mpies.core.errors import FAILED, FINISHED
from mpies.launch.goal import Goal, Start
from mpies.launch.hosts import Where, count_slots
from mpies.launch.ranks.rank import this_rank
from mpies.launch.ranks.rank_processes import Write, write_lines
from mpies.launch.supervisor import LOCAL, Supervisor
from mpies.sweeps.folder import SweepFolder
from mpies.sweeps.rank_groups import check_ranks_per_run
from mpies.sweeps.table import print_ending
from mpies.sweeps.train_sweep import SweepRequest, train_sweep
from mpies.sweeps.trials import check_trials
from mpies.training.control import Signals


def sweep_on_this_rank(request: SweepRequest) -> int:
    """Train a sweep on all ranks of this job.  Returns the exit code.  All ranks call this."""
    with this_rank() as comm:
        signals = Signals()
        for handler in logging.getLogger().handlers:  # of the runs; their log.txt has all of it
            handler.setLevel(logging.WARNING)
        code, results = train_sweep(comm, request, signals)
        if comm.is_root:
            print_ending(results)
        signals.close()
        return comm.finalize(code)


def supervise_sweep(
    arguments: Sequence[str],
    request: SweepRequest,
    ranks: int | None,
    folder: SweepFolder,
    where: Where = LOCAL,
    output: int | None = None,
    write: Write = write_lines,
) -> Supervisor:
    """The Supervisor of `mpies sweep` on `ranks` ranks of a job of its own; None takes all that the hosts have.

    arguments: besides those that the request tells.  folder: of the request's sweep.  where: on which hosts.
    output, write: as for RankProcesses.  Raises ConfigError for mistakes in the sweep.
    """
    check_trials(folder.sweep, folder.list_to_check())
    folder.check()
    given = {"--out": request.out, "--ranks-per-run": request.ranks_per_run}
    flags = [str(word) for flag, value in given.items() if value is not None for word in (flag, value)]
    check_ranks_per_run(request.ranks_per_run, count_slots(where, ranks)[0] or 1)
    supervisor = Supervisor(["sweep", *flags, *arguments], ranks, SweepFinished(folder), where, None, output, write)
    folder.open(request.retries)  # the ranks may be started several times
    return supervisor


class SweepFinished(Goal):
    """All trials of a sweep, until none is left to train."""

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
        self.refresh()
        return self.length() + sum(map(self._folder.has_failed, self._folder.trials))

    def needs_more_ranks(self) -> bool:
        return any(True for _ in self._folder.find_left())
