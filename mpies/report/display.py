"""How the progress of a run is shown: by a live bar, on a terminal or in a notebook, or by lines of text or JSON."""

import contextlib
import math
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mpies.comm import is_launched
from mpies.config.schema import StopSection
from mpies.core.text import escape, is_terminal
from mpies.runs.formats.metrics import Row
from mpies.training.logs import format_entry, is_json_wanted
from mpies.training.progress import (
    GENERATIONS,
    Phase,
    Progress,
    as_float,
    describe_generation,
    format_evaluation,
    format_number,
)

PATIENCE = 2.0  # seconds after which a phase is worth a line
SILENCE = 60.0  # seconds without a line after which the phase is named again
INTERVAL = 0.25  # seconds between two changes in a notebook at least


def make_progress() -> Progress:
    """What fits where this process prints: JSON where it is wanted, else a live bar, else lines of text."""
    if is_json_wanted():
        return LineProgress(is_json=True)
    ipython = sys.modules.get("IPython")
    if ipython is not None and getattr(ipython.get_ipython(), "kernel", None) is not None:
        return NotebookProgress()
    terminal = find_terminal()
    with contextlib.suppress(OSError):  # it belongs to another user, or to another container
        if terminal is not None:
            return ProgressBar(terminal)
    return LineProgress()


class LineProgress(Progress):
    """A line for each generation and each phase that takes long, and one when nothing was printed for a minute.

    is_json: whether a line is a JSON object, for log viewers: the numbers of a generation under their names in
    metrics.csv.  Otherwise the lines of generations are a table.
    """

    def __init__(self, is_json: bool = False) -> None:
        self._is_json = is_json
        self._has_generation = False  # whether one was shown; from then on their lines come by themselves
        self._printed_at = time.monotonic()
        self._phase: Phase | None = None  # the newest that was printed

    def show(self, row: Row) -> None:
        if self._is_json:
            # JSON has neither NaN nor infinity, to which the standard deviation of huge returns overflows.
            numbers = {
                name: value
                for name, value in row.items()
                if isinstance(value, str) or (value is not None and math.isfinite(value))
            }
            self._print(describe_generation(row), numbers)
        else:
            if not self._has_generation:
                self._print(
                    f"{'generation':>10} {'mean':>10} {'max':>10} {'length':>8} {'evaluation':>18} {'steps':>12} "
                    f"{'steps/s':>9} {'seconds':>8}"
                )
            self._print(
                f"{row['generation']:>10} {format_number(row['return_mean']):>10} "
                f"{format_number(row['return_max']):>10} {format_number(row['length_mean']):>8} "
                f"{format_evaluation(row):>18} {row['steps']:>12,} {row['steps_per_second']:>9,.0f} "
                f"{row['seconds']:>8.1f}"
            )
        self._has_generation = True

    def show_outcome(self, message: str, values: Mapping[str, Any]) -> None:
        facts = "; ".join(message.splitlines()[:2])  # what follows is for a person
        print(format_entry("INFO", facts, values) if is_json_wanted() else escape(message), flush=True)

    def show_phase(self, phase: Phase) -> None:
        now = time.monotonic()
        is_new = phase is not self._phase and not (phase.kind == GENERATIONS and self._has_generation)
        is_long = now - phase.began > PATIENCE
        if (is_new and is_long) or now - max(self._printed_at, phase.began) > SILENCE:
            self._phase = phase
            self._print(f"{phase.name} ..." if is_new and is_long else phase.describe(), {"phase": phase.name})

    def _print(self, message: str, values: Mapping[str, Any] | None = None) -> None:
        """Print a line.  values: what it says, as names and values of a JSON object."""
        self._printed_at = time.monotonic()
        print(format_entry("INFO", message, values or {}) if self._is_json else message, flush=True)


@dataclass
class TimeLeft:
    """Extrapolates how long a run still takes.

    evaluations: (seconds, mean return) of each so far.  share: how much of the run is done: of the way from the first
    evaluation to the target, or of the generations, whichever is more.
    """

    stop: StopSection = field(default_factory=StopSection)
    evaluations: list[tuple[float, float]] = field(default_factory=list)
    share: float = 0.0

    def describe(self, row: Row) -> str:
        """The time left after a generation, such as `0:12:30 to the target`, and sets `share`.  row: of the generation.

        The mean returns of the last five evaluations are extrapolated to the target.  Where they do not rise, or there
        is no target, the time to the first of the limits of generations, steps and seconds is given.
        """
        stop = self.stop
        generation, steps, seconds = (as_float(row[name]) for name in ("generation", "steps", "seconds"))
        if row.get("eval_mean") is not None:
            self.evaluations.append((seconds, as_float(row["eval_mean"])))
        self.share = max(self.share, generation / stop.generations)
        if stop.target is not None and len(self.evaluations) >= 2:
            first, newest = self.evaluations[0][1], self.evaluations[-1][1]
            if first < stop.target and math.isfinite(newest):
                self.share = max(self.share, min((newest - first) / (stop.target - first), 1.0))
            (start, first), (end, newest) = self.evaluations[-5:][0], self.evaluations[-1]
            slope = (newest - first) / max(end - start, 1e-9)
            if 0 < slope < math.inf:
                return f"{format_duration((stop.target - newest) / slope)} to the target"
        limits = [(seconds / generation * (stop.generations - generation), "last generation")]
        if stop.steps is not None:
            limits.append((seconds / max(steps, 1.0) * (stop.steps - steps), "limit of steps"))
        if stop.seconds is not None:
            limits.append((stop.seconds - seconds, "limit of seconds"))
        left, name = min(limits)
        return f"{format_duration(left)} to the {name}"


class ProgressBar(LineProgress):
    """A live line on a terminal: what the run is doing, return, speed and the time left.  Once closed, plain lines.

    terminal: path of the terminal to write to; '' for standard output.  Raises OSError if it cannot be opened.
    """

    def __init__(self, terminal: str = "") -> None:
        super().__init__()
        from rich import console, progress

        shown, self._file = None, None
        if terminal:
            self._file = os.fdopen(os.open(terminal, os.O_WRONLY | os.O_NOCTTY), "w")
            size = os.get_terminal_size(self._file.fileno())
            shown = console.Console(file=self._file, width=size.columns or None, height=size.lines or None)
        text = progress.TextColumn
        columns = text("{task.description}"), progress.BarColumn(), text("{task.fields[state]}")
        # Only what leads to this terminal may appear above a live bar.
        are_shown = is_terminal(sys.stderr) or (bool(terminal) and _parents_stream(2) == terminal)
        self._bar = progress.Progress(*columns, console=shown, auto_refresh=False, redirect_stderr=are_shown)
        self._task = self._bar.add_task("starting", total=None, state="")
        self._time_left = TimeLeft()
        self._is_closed = False

    def set_stop(self, stop: StopSection) -> None:
        self._time_left = TimeLeft(stop)
        self._bar.update(self._task, total=stop.generations)

    def show_phase(self, phase: Phase) -> None:
        if self._is_closed:
            super().show_phase(phase)
            return
        self._bar.start()
        completed = self._bar.tasks[0].completed
        if phase.generation is not None and phase.played:
            completed = max(completed, phase.generation + phase.played())  # a second batch begins from 0 again
        is_shown = phase.kind != GENERATIONS or phase.played
        self._bar.update(
            self._task, completed=completed, description=phase.describe() if is_shown else phase.name, refresh=True
        )

    def show(self, row: Row) -> None:
        self._bar.start()
        self._has_generation = True
        if evaluation := format_evaluation(row):
            target = self._time_left.stop.target
            mark = "" if target is None else f", target {target:g}"
            self._bar.console.print(f"generation {row['generation']}: evaluation {evaluation}{mark}", highlight=False)
        left = self._time_left.describe(row)
        self._bar.update(
            self._task,
            completed=self._time_left.share * self._time_left.stop.generations,
            description=f"generation {row['generation']}",
            state=f"return {format_number(row['return_mean'])}  {row['steps_per_second']:,.0f} steps/s  {left}",
            refresh=True,
        )

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed, self._printed_at = True, time.monotonic()
            self._bar.stop()
            if self._file:
                self._file.close()


class NotebookProgress(Progress):
    """A live bar below the cell of a notebook that trains: one line, which is replaced as the run goes on."""

    def __init__(self) -> None:
        from IPython.display import HTML, display

        self._html = HTML
        self._time_left = TimeLeft()
        self._text, self._has_generation, self._changed_at = "starting", False, 0.0
        self._display = display(self._draw(), display_id=True)

    def set_stop(self, stop: StopSection) -> None:
        self._time_left = TimeLeft(stop)
        self._refresh(now=True)

    def show(self, row: Row) -> None:
        self._has_generation = True
        self._text = f"{describe_generation(row)}; {self._time_left.describe(row)}"
        self._refresh()

    def show_phase(self, phase: Phase) -> None:
        if not self._has_generation:
            self._text = phase.describe()
            self._refresh()

    def show_outcome(self, message: str, values: Mapping[str, Any]) -> None:
        self._text = message.partition("\n")[0]
        self._refresh(now=True)

    def close(self) -> None:
        self._refresh(now=True)

    def _refresh(self, now: bool = False) -> None:
        if self._display and (now or time.monotonic() - self._changed_at > INTERVAL):
            self._changed_at = time.monotonic()
            self._display.update(self._draw())

    def _draw(self) -> Any:
        import html

        bar = f'<progress value="{self._time_left.share:.3f}"></progress>'
        return self._html(f"<div>{bar} {html.escape(self._text)}</div>")


def find_terminal() -> str | None:
    """The terminal that something live can be drawn on: a path, or '' for standard output; None where there is none."""
    is_plain = os.environ.get("TERM", "").lower() in ("dumb", "unknown")  # rich would draw nothing before the end
    if is_json_wanted() or is_plain or not is_terminal(sys.stdout):
        return None
    if not is_launched():
        return ""
    # mpirun connects its ranks to pseudo-terminals of its own, and holds back what they print until a line is complete.
    # Under it, mpirun's standard output decides, and the bar is written there.
    terminal = _parents_stream(1)
    return terminal if terminal.startswith(("/dev/pts/", "/dev/tty")) else None


def _parents_stream(number: int) -> str:
    """Path of the file behind standard output (1) or error (2) of the parent process, '' if it cannot be found."""
    try:
        return os.readlink(f"/proc/{os.getppid()}/fd/{number}")
    except OSError:
        return ""


def format_duration(seconds: float) -> str:
    """Seconds as hours:minutes:seconds."""
    seconds = max(0, round(min(seconds, 3.6e9)))
    return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
