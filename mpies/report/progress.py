"""The progress of a run on standard output: a live bar, one aligned line a generation, or JSON lines."""

import contextlib
import math
import os
import sys
import time
from collections.abc import Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any

from mpies.comm import is_launched
from mpies.config.schema import StopSection
from mpies.runs.metrics import Row
from mpies.training.progress import (
    GENERATIONS,
    Phase,
    Progress,
    as_float,
    describe_generation,
    format_entry,
    format_evaluation,
    format_number,
    is_json_wanted,
)

if TYPE_CHECKING:  # rich takes long to import
    from rich.console import Console

PATIENCE = 2.0  # seconds after which a phase is worth a line
SILENCE = 60.0  # seconds without a line after which the phase is named again


class LineProgress(Progress):
    """Lines: one for each phase that takes long, and one when nothing has been printed for a minute."""

    def __init__(self) -> None:
        self._has_generation = False  # whether one was shown; from then on their lines come by themselves
        self._printed_at = time.monotonic()
        self._phase: Phase | None = None  # the newest that was printed

    def show_phase(self, phase: Phase) -> None:
        now = time.monotonic()
        is_new = phase is not self._phase and not (phase.kind == GENERATIONS and self._has_generation)
        if is_new and now - phase.began > PATIENCE:
            self._print_phase(phase, f"{phase.name} ...")
        elif now - max(self._printed_at, phase.began) > SILENCE:
            self._print_phase(phase, phase.describe())

    def _print_phase(self, phase: Phase, message: str) -> None:
        self._phase, self._printed_at = phase, time.monotonic()
        self._print(message, {"phase": phase.name})

    def _print_generation(self, message: str, values: Mapping[str, Any]) -> None:
        self._has_generation, self._printed_at = True, time.monotonic()
        self._print(message, values)

    def _print(self, message: str, values: Mapping[str, Any]) -> None:
        """Print a line.  values: what it says, as names and values."""
        print(message, flush=True)


class TextProgress(LineProgress):
    """One line a generation, for log files."""

    def __init__(self) -> None:
        super().__init__()
        self._has_header = False

    def show(self, row: Row) -> None:
        if not self._has_header:
            print(
                f"{'generation':>10} {'mean':>10} {'max':>10} {'length':>8} {'evaluation':>18} {'steps':>12} "
                f"{'steps/s':>9} {'seconds':>8}",
                flush=True,
            )
            self._has_header = True
        self._print_generation(
            f"{row['generation']:>10} {format_number(row['return_mean']):>10} {format_number(row['return_max']):>10} "
            f"{format_number(row['length_mean']):>8} {format_evaluation(row):>18} {row['steps']:>12,} "
            f"{row['steps_per_second']:>9,.0f} {row['seconds']:>8.1f}",
            {},
        )


class JsonProgress(LineProgress):
    """One JSON object a line, for log viewers: the numbers of a generation under their names in metrics.csv."""

    def show(self, row: Row) -> None:
        # JSON has neither NaN nor infinity, to which the deviation of huge returns overflows.
        numbers = {name: value for name, value in row.items() if isinstance(value, str) or _is_finite(value)}
        self._print_generation(describe_generation(row), numbers)

    def _print(self, message: str, values: Mapping[str, Any]) -> None:
        print(format_entry("INFO", message, values), flush=True)


class ProgressBar(LineProgress):
    """A live line on a terminal: what the run is doing, return, speed and the time left.  Once closed, plain lines.

    terminal: path of the terminal to write to; '' for standard output.  Raises OSError if it cannot be opened.
    """

    def __init__(self, terminal: str = "") -> None:
        super().__init__()
        from rich import progress

        console, self._file = open_terminal(terminal)
        text = progress.TextColumn
        columns = text("{task.description}"), progress.BarColumn(), text("{task.fields[state]}")
        are_shown = shows_errors(terminal)
        self._bar = progress.Progress(*columns, console=console, auto_refresh=False, redirect_stderr=are_shown)
        self._task = self._bar.add_task("starting", total=None, state="")
        self._stop = StopSection()
        self._is_closed = False
        self._evaluations: list[tuple[float, float]] = []  # seconds of training, mean return

    def set_stop(self, stop: StopSection) -> None:
        self._stop = stop
        self._bar.update(self._task, total=stop.generations)

    def show_phase(self, phase: Phase) -> None:
        if self._is_closed:
            super().show_phase(phase)
            return
        self._start()
        completed = self._bar.tasks[0].completed
        if phase.generation is not None and phase.played:
            completed = max(completed, phase.generation + phase.played())  # a second batch begins from 0 again
        is_shown = phase.kind != GENERATIONS or phase.played
        self._bar.update(
            self._task, completed=completed, description=phase.describe() if is_shown else phase.name, refresh=True
        )

    def _start(self) -> None:
        if not self._bar.live.is_started:
            self._bar.start()

    def show(self, row: Row) -> None:
        self._start()
        self._has_generation = True
        generation, seconds = as_float(row["generation"]), as_float(row["seconds"])
        if evaluation := format_evaluation(row):
            self._evaluations.append((seconds, as_float(row["eval_mean"])))
            target = f", target {self._stop.target:g}" if self._stop.target is not None else ""
            self._bar.console.print(f"generation {row['generation']}: evaluation {evaluation}{target}", highlight=False)
        left = describe_time_left(row, self._evaluations, self._stop)
        self._bar.update(
            self._task,
            completed=generation,
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


def make_progress() -> Progress:
    """JsonProgress where JSON is wanted, else a ProgressBar on a terminal and TextProgress elsewhere."""
    if is_json_wanted():
        return JsonProgress()
    terminal = find_terminal()
    with contextlib.suppress(OSError):  # it belongs to another user, or to another container
        if terminal is not None:
            return ProgressBar(terminal)
    return TextProgress()


def find_terminal() -> str | None:
    """The terminal that something live can be drawn on: a path, or '' for standard output; None where there is none."""
    is_plain = os.environ.get("TERM", "").lower() in ("dumb", "unknown")  # rich would draw nothing before the end
    if is_json_wanted() or is_plain or not sys.stdout.isatty():
        return None
    if not is_launched():
        return ""
    # mpirun connects its ranks to pseudo-terminals of its own, and holds back what they print until a line is complete.
    # Under it, mpirun's standard output decides, and the bar is written there.
    terminal = _parents_stream(1)
    return terminal if terminal.startswith(("/dev/pts/", "/dev/tty")) else None


def open_terminal(terminal: str) -> "tuple[Console | None, IO[str] | None]":
    """A console on a terminal of `find_terminal`, and the file to close in the end; None for standard output.

    Raises OSError if it cannot be opened.
    """
    if not terminal:
        return None, None
    from rich.console import Console

    file = os.fdopen(os.open(terminal, os.O_WRONLY | os.O_NOCTTY), "w")
    size = os.get_terminal_size(file.fileno())
    return Console(file=file, width=size.columns or None, height=size.lines or None), file


def shows_errors(terminal: str) -> bool:
    """Whether standard error leads to this terminal; only then may what is printed on it appear above a live bar."""
    return sys.stderr.isatty() or (bool(terminal) and _parents_stream(2) == terminal)


def describe_time_left(row: Row, evaluations: Sequence[tuple[float, float]], stop: StopSection) -> str:
    """The time left after a generation, such as `0:12:30 to the target`.

    The mean returns of the last five evaluations are extrapolated to the target.  Where they do not rise, or there
    is no target, the time to the first of the limits of generations, steps and seconds is given.

    row: of the generation.  evaluations: (seconds, mean return) of each so far.
    """
    if stop.target is not None and len(evaluations) >= 2:
        (start, first), (end, newest) = evaluations[-min(5, len(evaluations))], evaluations[-1]
        slope = (newest - first) / max(end - start, 1e-9)
        if 0 < slope < math.inf:
            return f"{format_duration((stop.target - newest) / slope)} to the target"
    generation, steps, seconds = (as_float(row[name]) for name in ("generation", "steps", "seconds"))
    limits = [(seconds / generation * (stop.generations - generation), "last generation")]
    if stop.steps is not None:
        limits.append((seconds / max(steps, 1.0) * (stop.steps - steps), "limit of steps"))
    if stop.seconds is not None:
        limits.append((stop.seconds - seconds, "limit of seconds"))
    left, name = min(limits)
    return f"{format_duration(left)} to the {name}"


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


def _is_finite(number: float | None) -> bool:
    return number is not None and math.isfinite(number)
