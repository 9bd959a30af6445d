"""What a run is doing now, and for how long: start-up, the episodes of a generation, evaluations."""

import contextlib
import os
import threading
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import numpy as np

from mpies.comm import Communicator
from mpies.comm.processes import process_start
from mpies.config.schema import StopSection
from mpies.report.progress import EVALUATIONS, GENERATIONS, PLOTS, START_UP, Phase, Progress
from mpies.rollouts.queue import RolloutQueue
from mpies.runs.metrics import Row
from mpies.training.evaluator import QueueKey

INTERVAL = 0.25  # seconds between two looks at the newest phase


class Phases(Progress):
    """Times the phases of a run and shows the newest one on a Progress, on rank 0 alone.

    A thread looks at the newest phase four times a second and reads how many episodes this rank has finished.  So
    training does nothing for it but to name what begins, and no rank sends anything.

    began: time.monotonic() from which the seconds count as start-up.
    """

    def __init__(self, progress: Progress, comm: Communicator, began: float) -> None:
        self._progress, self._comm = progress, comm
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

    def begin_start_up(self, name: str) -> None:
        """Begin a phase before the first generation, such as "building the noise table"."""
        self.begin(Phase(name))

    def begin_play(self, key: QueueKey, queues: Sequence[RolloutQueue]) -> None:
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

    def set_stop(self, stop: StopSection) -> None:
        self._progress.set_stop(stop)

    def show(self, row: Row) -> None:
        with self._lock:
            self._progress.show(row)
        self.begin(Phase(f"generation {row['generation']}", GENERATIONS))  # its end; the next one begins with its play

    def show_outcome(self, message: str, values: Mapping[str, Any]) -> None:
        self._progress.show_outcome(message, values)

    def describe(self) -> str:
        """How long the job has taken up to now, and for what."""
        seconds = dict(self._seconds)
        seconds[self._phase.kind] += time.monotonic() - self._phase.began
        parts = ", ".join(f"{seconds[kind]:.1f} s {kind}" for kind in (START_UP, GENERATIONS, EVALUATIONS))
        return f"this job took {sum(seconds.values()):.1f} s: {parts}"

    def close(self) -> None:
        """Leave the terminal as it was.  A phase that begins later is shown by lines."""
        with self._lock:
            self._progress.close()

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
                self._progress.show_phase(self._phase)


def process_age() -> float:
    """Seconds since this process began; 0 where the kernel does not tell."""
    ticks = process_start(os.getpid())
    if ticks is None:
        return 0.0
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"))
