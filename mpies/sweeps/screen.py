"""The live screen of a sweep on a terminal: what is being trained, how many trials have ended, the best so far."""

import contextlib
import threading
import time
from typing import TYPE_CHECKING

import numpy as np

from mpies.core.text import escape
from mpies.report.display import find_terminal, open_terminal, shows_errors
from mpies.report.ranking import Result, Trial, rank_settings
from mpies.runs.reader import RunView
from mpies.sweeps.folder import ENDED, SweepFolder
from mpies.sweeps.output import describe_trial
from mpies.sweeps.table import ResultReader
from mpies.training.progress import format_mean

if TYPE_CHECKING:  # rich takes long to import
    from rich.console import Group

PAUSE = 0.5  # seconds between two looks at the runs
SHARE = 50  # a pause is at least so many times as long as a look, which takes time from this rank's training
MARGIN = 8  # lines of the terminal that are not rows of the table


class SweepScreen:
    """Shows a sweep until it is closed.  A thread reads the runs, so that what other jobs train is shown, too.

    terminal: of `find_terminal`.  Raises OSError if it cannot be opened.
    """

    def __init__(self, folder: SweepFolder, terminal: str) -> None:
        from rich.console import Console
        from rich.live import Live

        self._folder, self._results = folder, ResultReader(folder)
        console, self._file = open_terminal(terminal)
        self._console = console or Console()
        self._live = Live(
            console=self._console, auto_refresh=False, transient=True, redirect_stderr=shows_errors(terminal)
        )
        self._began = time.monotonic()
        self._ended: dict[str, Result] = {}  # by the trial's name
        self._views: dict[str, RunView] = {}  # of the trials in training, by name
        self._best = ""
        self._look(is_first=True)
        self._live.start(refresh=True)
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Show what has ended since the last look, and leave the terminal as it was."""
        self._is_closed.set()
        self._thread.join()
        self._look()
        self._live.stop()
        if self._file:
            self._file.close()

    def _follow(self) -> None:
        took = 0.0
        while not self._is_closed.wait(max(PAUSE, SHARE * took)):
            began = time.monotonic()
            with contextlib.suppress(OSError):  # of a file system that is away for a moment
                self._look()
            took = time.monotonic() - began

    def _look(self, is_first: bool = False) -> None:
        """Read the trials that have not ended yet, print those that have ended now, and draw the others."""
        self._folder.refresh()
        running: list[Trial] = []
        has_news = is_first
        for trial in self._folder.trials:
            if trial.name in self._ended:
                continue
            state = self._folder.state(trial)
            if state == "running":
                running.append(trial)
            elif state in ENDED:
                self._ended[trial.name] = result = self._results.read(trial)
                has_news = True
                if not is_first:
                    place = f"[{len(self._ended)}/{self._folder.total}]"
                    line = escape(f"{place} {describe_trial(result, self._folder.name)}")
                    self._console.print(line, highlight=False, markup=False, soft_wrap=True)
        self._views = {one.name: self._views.get(one.name) or RunView(self._folder.path / one.name) for one in running}
        if has_news:
            self._best = self._describe_best()
        self._live.update(self._draw(running), refresh=not is_first)

    def _describe_best(self) -> str:
        results = [*self._ended.values()]
        if self._folder.halving:  # the best ones have not ended yet
            results += [self._results.read(trial) for trial in self._folder.trials if trial.name not in self._ended]
        standings = rank_settings(results)
        if not standings or not standings[0].rank:
            return ""
        first = standings[0]
        return f"best so far: {first.results[0].trial.label or 'the config'}, {format_mean(first.mean, first.interval)}"

    def _draw(self, running: list[Trial]) -> "Group":
        from rich import box
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        table = Table(box=box.SIMPLE)
        table.add_column("training")
        for heading in ("generation", "return", "evaluation", "seconds"):
            table.add_column(heading, justify="right")
        rows = max(1, self._console.size.height - MARGIN)
        for trial in running[:rows]:
            table.add_row(*(Text(cell) for cell in self._describe_running(trial)))
        ended, total = len(self._ended), self._folder.total
        failed = sum(result.state == "failed" for result in self._ended.values())
        words = [f"{ended} of {total} trials ended", *([f"{failed} failed"] if failed else [])]
        words += [f"{len(running)} in training", f"{time.monotonic() - self._began:,.0f} s"]
        more = [Text(f"and {len(running) - rows} more")] if len(running) > rows else []
        best = [Text(self._best)] if self._best else []
        state = Table.grid(padding=(0, 2))
        state.add_row(ProgressBar(total, ended, width=30), Text(", ".join(words)))
        return Group(table, *more, state, *best)

    def _describe_running(self, trial: Trial) -> tuple[str, ...]:
        """The cells of a trial that is being trained."""
        columns = self._views[trial.name].metrics.refresh().columns
        cells = []
        for name, form in (("generation", ".0f"), ("return_mean", ",.4g"), ("eval_mean", ",.4g"), ("seconds", ",.4g")):
            numbers = columns.get(name, np.empty(0))
            known = numbers[np.isfinite(numbers)]
            cells.append(f"{known[-1]:{form}}" if len(known) else "-")
        return trial.name, *cells


def open_screen(folder: SweepFolder) -> SweepScreen | None:
    """The SweepScreen on this job's terminal; None where there is none."""
    terminal = find_terminal()
    with contextlib.suppress(OSError):  # it belongs to another user, or to another container
        return None if terminal is None else SweepScreen(folder, terminal)
    return None
