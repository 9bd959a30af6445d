"""What a run tells while it trains: the phase that it is in, and its generations in words."""

import contextlib
import math
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import numpy as np

from mpies.comm import Communicator
from mpies.comm.processes import process_start
from mpies.config.schema import StopSection
from mpies.rollouts.queue import Queues
from mpies.runs.formats.metrics import Cell, Row, format_return
from mpies.runs.snapshot import half_interval
from mpies.training.evaluation.generation import QueueKey

INTERVAL = 0.25  # seconds between two looks at the newest phase
START_UP, GENERATIONS, EVALUATIONS, PLOTS = "start-up", "generations", "evaluations", "plots"  # kinds of phases


@dataclass(eq=False)
class Phase:
    """What a run is doing.

    name: such as "building the noise table".  kind: START_UP, GENERATIONS, EVALUATIONS or PLOTS.
    generation: how many were made before it; None but for a generation that is being played.
    played: returns the share of its episodes that is finished; None for a phase without episodes.
    began: time.monotonic() of its beginning.
    """

    name: str
    kind: str = START_UP
    generation: int | None = None
    played: Callable[[], float] | None = None
    began: float = field(default_factory=lambda: time.monotonic())

    def describe(self) -> str:
        """Its name, the share of its episodes that is finished, and its seconds so far."""
        share = f" {self.played():.0%}," if self.played else ""
        return f"{self.name}:{share} {time.monotonic() - self.began:.0f} s"


class Progress:
    """Shows the generations of a run as they are made, and what it is doing in between; by itself it shows nothing."""

    def show(self, row: Row) -> None:
        """Show a generation.  row: of metrics.csv."""

    def show_outcome(self, message: str, values: Mapping[str, Any]) -> None:
        """Show how a run ended, in a few lines.  values: what they say, as names and values of a JSON object."""

    def show_phase(self, phase: Phase) -> None:
        """Show what the run is doing.  A thread calls this a few times a second."""

    def set_stop(self, stop: StopSection) -> None:
        """Set when the run ends, once the config has been read."""

    def close(self) -> None:
        """Leave the terminal as it was.  A phase that begins later is shown by lines."""


class Phases:
    """Times the phases of a run and shows the newest one on a Progress, on rank 0 alone.

    A thread looks at the newest phase four times a second and reads how many episodes this rank has finished.  So
    training does nothing for it but to name what begins, and no rank sends anything.

    progress: what shows them.  began: time.monotonic() from which the seconds count as start-up.
    """

    def __init__(self, progress: Progress, comm: Communicator, began: float) -> None:
        self.progress, self._comm = progress, comm
        self._phase = Phase("starting", began=began)
        self._seconds = dict.fromkeys((START_UP, GENERATIONS, EVALUATIONS, PLOTS), 0.0)  # of phases that are over
        self._lock = threading.Lock()  # of the phase and the progress
        self._thread: threading.Thread | None = None
        self._is_over = threading.Event()

    def begin(self, phase: Phase) -> None:
        """End the newest phase and begin this one."""
        with self._lock:
            self._seconds[self._phase.kind] += phase.began - self._phase.began
            self._phase = phase
        if self._comm.is_root and not self._thread:  # another rank may become the root when one is lost
            self._thread = threading.Thread(target=self._watch, daemon=True)
            self._thread.start()

    def begin_play(self, key: QueueKey, queues: Queues) -> None:
        """Begin a phase in which all ranks play these queues."""
        if key.kind == "evaluation":
            phase = Phase(f"evaluating generation {key.generation}", EVALUATIONS)
        else:
            batch = f", batch {key.batch + 1}" if key.batch else ""
            phase = Phase(f"generation {key.generation + 1}{batch}", GENERATIONS, key.generation)
        # episodes that this rank may expect to play
        share = max(sum(len(queue.pending) for queue in queues) / self._comm.size, 1)
        phase.played = lambda: min(sum(np.count_nonzero(queue.is_finished) for queue in queues) / share, 1.0)
        self.begin(phase)

    def show(self, row: Row) -> None:
        """Show a generation.  row: of metrics.csv."""
        with self._lock:
            self.progress.show(row)
        self.begin(Phase(f"generation {row['generation']}", GENERATIONS))  # its end; the next one begins with its play

    def describe(self) -> str:
        """How long the job has taken up to now, and for what."""
        seconds = dict(self._seconds)
        seconds[self._phase.kind] += time.monotonic() - self._phase.began
        parts = ", ".join(f"{seconds[kind]:.1f} s {kind}" for kind in (START_UP, GENERATIONS, EVALUATIONS))
        return f"this job took {sum(seconds.values()):.1f} s: {parts}"

    def close(self) -> None:
        """Leave the terminal as it was."""
        with self._lock:
            self.progress.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._is_over.set()
        if self._thread:
            self._thread.join()
        self.close()

    def _watch(self) -> None:
        while not self._is_over.wait(INTERVAL):
            with self._lock, contextlib.suppress(OSError):  # nobody may read standard output any more
                self.progress.show_phase(self._phase)


def process_age() -> float:
    """Seconds since this process began; 0 where the kernel does not tell."""
    ticks = process_start(os.getpid())
    if ticks is None:
        return 0.0
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"))


def describe_generation(row: Row, with_spread: bool = False) -> str:
    """The results of a generation in one line.  with_spread: also of its members' returns."""
    text = f"generation {row['generation']}: return {format_number(row['return_mean'])}"
    if with_spread:
        low, high, deviation = (format_number(row[f"return_{name}"]) for name in ("min", "max", "std"))
        text += f" ({low} to {high}, deviation {deviation})"
    if evaluation := format_evaluation(row):
        text += f", evaluation {evaluation}"
    return text


def as_float(cell: Cell) -> float:
    return float(cell or 0)


def format_number(value: Cell) -> str:
    if value is None:
        return "-"
    number = float(value)
    return format_return(number) if abs(number) < 1e5 else f"{number:.3e}"


def format_evaluation(row: Row) -> str:
    """The evaluation of a generation, '' where there was none."""
    mean, deviation, episodes = (row.get(name) for name in ("eval_mean", "eval_std", "eval_episodes"))
    if mean is None:
        return ""
    return format_mean(as_float(mean), half_interval(as_float(deviation), as_float(episodes)))


def format_mean(mean: float, interval: float) -> str:
    """A mean with half the width of its confidence interval; the mean alone where that is NaN."""
    return format_number(mean) + ("" if math.isnan(interval) else f" +- {format_number(interval)}")
