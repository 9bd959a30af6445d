"""The progress of a run on standard output: a live bar, one aligned line a generation, or JSON lines."""

import json
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from mpies.comm import LAUNCHED
from mpies.config.schema import Config, StopSection
from mpies.runs.metrics import Cell, Row
from mpies.runs.snapshot import Evaluation


class Progress(ABC):
    """Shows the generations of a run as they are made."""

    @abstractmethod
    def show(self, row: Row, evaluation: Evaluation | None) -> None:
        """Show a generation.  row: of metrics.csv.  evaluation: of this generation, None where none was due."""

    def close(self) -> None:  # noqa: B027 (most have nothing to restore)
        """Leave the terminal as it was."""


class TextProgress(Progress):
    """One line a generation, for log files."""

    def __init__(self) -> None:
        self._has_header = False

    def show(self, row: Row, evaluation: Evaluation | None) -> None:
        if not self._has_header:
            print(
                f"{'generation':>10} {'mean':>10} {'max':>10} {'length':>8} {'evaluation':>18} {'steps':>12} "
                f"{'steps/s':>9} {'seconds':>8}",
                flush=True,
            )
            self._has_header = True
        print(
            f"{row['generation']:>10} {_format_number(row['return_mean']):>10} {_format_number(row['return_max']):>10} "
            f"{_format_number(row['length_mean']):>8} {_format_evaluation(evaluation):>18} {row['steps']:>12,} "
            f"{row['steps_per_second']:>9,.0f} {row['seconds']:>8.1f}",
            flush=True,
        )


class JsonProgress(Progress):
    """One JSON object a line, for log viewers: the numbers of a generation under their names in metrics.csv."""

    def show(self, row: Row, evaluation: Evaluation | None) -> None:
        numbers = {name: value for name, value in row.items() if value is not None and value == value}  # no NaN
        print(format_entry("INFO", describe_generation(row, evaluation), numbers), flush=True)


class ProgressBar(Progress):
    """A live line on a terminal: generation, return, speed and the time left.

    stop: when the run ends.
    """

    def __init__(self, stop: StopSection) -> None:
        from rich import progress

        text = progress.TextColumn
        self._stop = stop
        self._bar = progress.Progress(text("{task.description}"), progress.BarColumn(), text("{task.fields[state]}"))
        self._task = self._bar.add_task("starting", total=stop.generations, state="")
        self._evaluations: list[tuple[float, float]] = []  # seconds of training, mean return

    def show(self, row: Row, evaluation: Evaluation | None) -> None:
        if not self._bar.live.is_started:
            self._bar.start()
        generation, seconds = _as_float(row["generation"]), _as_float(row["seconds"])
        if evaluation:
            self._evaluations.append((seconds, evaluation.mean))
            target = f", target {self._stop.target:g}" if self._stop.target is not None else ""
            self._bar.console.print(
                f"generation {row['generation']}: evaluation {_format_evaluation(evaluation)}{target}", highlight=False
            )
        left = describe_time_left(generation, seconds, self._evaluations, self._stop)
        self._bar.update(
            self._task,
            completed=generation,
            description=f"generation {row['generation']}",
            state=f"return {_format_number(row['return_mean'])}  {row['steps_per_second']:,.0f} steps/s  {left}",
        )

    def close(self) -> None:
        self._bar.stop()


def make_progress(config: Config) -> Progress:
    """JsonProgress where JSON is wanted, else a ProgressBar on a terminal and TextProgress elsewhere."""
    if is_json_wanted():
        return JsonProgress()
    return ProgressBar(config.stop) if _is_shown_on_terminal() else TextProgress()


def is_json_wanted() -> bool:
    """Whether MPIES_LOG asks for JSON.  It is no config key: the log's format depends on where a run is executed."""
    return os.environ.get("MPIES_LOG") == "json"


def format_entry(severity: str, message: str, values: Mapping[str, Any]) -> str:
    """A line of JSON.  Google Cloud Logging reads its keys `severity` and `message`."""
    return json.dumps({"severity": severity, "message": message, **values}, default=float)


def describe_generation(row: Row, evaluation: Evaluation | None) -> str:
    """The results of a generation in one line."""
    text = f"generation {row['generation']}: return {_format_number(row['return_mean'])}"
    if evaluation:
        text += f", evaluation {_format_evaluation(evaluation)}"
    return text


def describe_time_left(
    generation: float, seconds: float, evaluations: Sequence[tuple[float, float]], stop: StopSection
) -> str:
    """The time left after `generation` and `seconds` of training, such as `0:12:30 to the target`.

    The mean returns of the last five evaluations are extrapolated to the target.  Where they do not rise, or there
    is no target, the time to the last generation is given.

    evaluations: (seconds, mean return) of each so far.
    """
    if stop.target is not None and len(evaluations) >= 2:
        (start, first), (end, newest) = evaluations[-min(5, len(evaluations))], evaluations[-1]
        slope = (newest - first) / max(end - start, 1e-9)
        if slope > 0:
            return f"{_format_duration((stop.target - newest) / slope)} to the target"
    per_generation = seconds / generation
    return f"{_format_duration(per_generation * (stop.generations - generation))} to the last generation"


def _is_shown_on_terminal() -> bool:
    """Whether standard output ends at a terminal.

    mpirun connects its ranks to pseudo-terminals of its own.  Under it, mpirun's standard output decides.
    """
    if not sys.stdout.isatty():
        return False
    if not any(name in os.environ for name in LAUNCHED):
        return True
    try:
        target = os.readlink(f"/proc/{os.getppid()}/fd/1")
    except OSError:
        return False
    return target.startswith(("/dev/pts/", "/dev/tty"))


def _as_float(cell: Cell) -> float:
    return float(cell or 0)


def _format_duration(seconds: float) -> str:
    seconds = max(0, round(seconds))
    return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"


def _format_number(value: Cell) -> str:
    if value is None:
        return "-"
    number = float(value)
    return f"{number:.2f}" if abs(number) < 1e5 else f"{number:.3e}"


def _format_evaluation(evaluation: Evaluation | None) -> str:
    return f"{_format_number(evaluation.mean)} +- {_format_number(evaluation.interval)}" if evaluation else ""
