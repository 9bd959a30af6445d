"""How far the runs of a job have come, told from their directories."""

import contextlib
import json
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from mpies.runs.lock import LOCK_FILE
from mpies.runs.metrics import read_metrics


class RunProgress:
    """The runs that a job writes, seen from outside; what is not there yet is no progress.

    list_runs: tells their directories.  runs: these, as of the last `refresh`.
    job: how the names begin that its ranks have in the locks of runs; others may train trials of the same sweep.
    """

    def __init__(self, list_runs: Callable[[], Iterable[Path]], job: str = "") -> None:
        self._list_runs, self._job = list_runs, job
        self.refresh()

    def refresh(self) -> None:
        """Take note of runs that are new: the sampler of a sweep may have proposed some."""
        self.runs = list(self._list_runs())

    def length(self) -> int:
        """Bytes of all metrics.csv; it grows with each generation."""
        return sum(_size_and_time(run / "metrics.csv")[0] for run in self.runs)

    def generations(self) -> int:
        """Generations on record, of all runs: they may follow one another."""
        return sum(map(newest_generation, self.runs))

    def finished(self) -> dict[Path, tuple[int, int]]:
        """The runs with a finished.yaml, each with the inode and the time of that file, to tell it from a later one."""
        found = {}
        for run in self.runs:
            with contextlib.suppress(OSError):
                status = (run / "finished.yaml").stat()
                found[run] = (status.st_ino, status.st_mtime_ns)
        return found

    def is_finished_since(self, before: dict[Path, tuple[int, int]]) -> bool:
        """Whether all runs have finished since `finished` returned `before`."""
        now = self.finished()
        return all(run in now and now[run] != before.get(run) for run in self.runs)

    def writer(self) -> str:
        """The token of the newest lock of a run that a rank of the job holds, or held last; '' without one."""
        newest, token = 0.0, ""
        for run in self.runs:
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                file = run / LOCK_FILE
                if (moment := file.stat().st_mtime) > newest:
                    owner = json.loads(file.read_text())
                    if str(owner["job"]).startswith(self._job):
                        newest, token = moment, str(owner["token"])
        return token

    def current(self) -> Path | None:
        """The run that is being written, or was last; None before the first generation."""
        return self._newest()[1]

    def written_at(self) -> float:
        """When the newest generation came on record, as time.time(); 0 before the first."""
        return self._newest()[0]

    def _newest(self) -> tuple[float, Path | None]:
        """When the newest generation came on record, and of which run; 0 and None before the first."""
        newest: tuple[float, Path | None] = 0.0, None
        for run in self.runs:
            size, moment = _size_and_time(run / "metrics.csv")
            if size and (newest[1] is None or moment > newest[0]):
                newest = moment, run
        return newest


def _size_and_time(path: Path) -> tuple[int, float]:
    """Bytes of a file, and the time.time() at which it was written; 0 and 0 where there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return 0, 0.0
    return status.st_size, status.st_mtime


def newest_generation(run: Path | None) -> int:
    """The newest generation on record; 0 without one."""
    rows: Sequence[dict[str, str]] = read_metrics(run) if run else []
    return int(rows[-1]["generation"]) if rows else 0
