"""What the ranks of a job are to finish.  The supervisor asks it after each start whether more is left to do."""

import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from mpies.config.schema import StopSection
from mpies.core.errors import FINISHED
from mpies.launch.run_progress import RunProgress
from mpies.launch.start import Start
from mpies.runs.pace import growth_pays, recent_pace


class Goal(ABC):
    """Runs that a job is to finish, told from their directories.

    list_runs: tells these directories.  job: the name that all ranks of all starts share; locks of runs begin with it.
    progress: how far the runs have come.  can_grow: whether the ranks may be stopped and started again on more hosts.
    """

    can_grow = False

    def __init__(self, list_runs: Callable[[], Iterable[Path]]) -> None:
        self.job = uuid.uuid4().hex
        self.progress = RunProgress(list_runs, self.job)

    @abstractmethod
    def exit_code(self, start: Start, hosts_answer: Callable[[], bool]) -> int | None:
        """The exit code of the job when the ranks of a start have ended, or None where something is left to do.

        hosts_answer: tells whether all hosts of the start are still there.
        """

    def is_reached_since(self, start: Start) -> bool:
        """Whether all runs have come to their ends since a start began, so that its ranks have nothing left to do."""
        return self.progress.is_finished_since(start.finished)

    def measure(self) -> int:
        """How far the job is.  Ranks that ended unexpectedly are started again where this has grown."""
        return self.progress.generations()

    def growth_pays(self, start: Start, more: int) -> bool:
        """Whether it pays to stop the ranks of a start, and to start again on `more` ranks."""
        return False


class RunsFinished(Goal):
    """Runs that follow one another, each until it has a finished.yaml.

    stop: tells the stop section of the config; None where the job is never to grow.
    """

    def __init__(self, runs: Sequence[Path], stop: Callable[[], StopSection] | None = None) -> None:
        super().__init__(lambda: runs)
        self._stop, self.can_grow = stop, stop is not None

    def exit_code(self, start: Start, hosts_answer: Callable[[], bool]) -> int | None:
        if self.is_reached_since(start):
            return FINISHED
        # A complete run that cannot be written stays as it was.  Of lost ranks mpirun may say FINISHED as well, so the
        # hosts are asked.  That is the last condition, because it takes seconds where a host does not answer.
        is_complete = start.code == FINISHED and self.progress.is_finished_since({})
        return FINISHED if is_complete and hosts_answer() else None

    def growth_pays(self, start: Start, more: int) -> bool:
        run, stop = self.progress.current(), self._stop() if self._stop else None
        found = recent_pace(run, stop) if run and stop else None
        if found is None or stop is None:
            return False
        return growth_pays(found[0], start.ranks, more, start.start_up(found[0].seconds), stop.grace)
