"""Time that does not pass while this process is stopped, as by SIGSTOP, Ctrl-Z or `scontrol suspend`.

No clock of the system leaves such pauses out, and a process is not told when it is stopped, only when it goes on
(SIGCONT).  So a thread notes the time at short intervals: the pause is the gap in its notes.  Compiled code that holds
Python's lock makes gaps, too, but it uses the processor meanwhile.
"""

import signal
import threading
import time
from collections import deque
from itertools import pairwise
from typing import Any

INTERVAL = 0.25  # seconds between two notes, and so the largest error of a pause
NOTES = 2400  # that are kept: the handler of SIGCONT runs after a call of MPI, which may wait for minutes


class Stopwatch:
    """Seconds of this process.  Pauses are left out between `start` and `stop`.

    paused: seconds of all pauses so far.
    """

    def __init__(self) -> None:
        self.paused = 0.0
        self._notes: deque[tuple[float, float]] = deque(maxlen=NOTES)
        self._before: Any = None  # the handler of SIGCONT before `start`
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def now(self) -> float:
        """Seconds since an arbitrary moment."""
        return time.perf_counter() - self.paused

    def start(self) -> None:
        """Notice pauses from now on.  Without effect outside the main thread: Python handles signals nowhere else."""
        is_main = threading.current_thread() is threading.main_thread()
        before = signal.getsignal(signal.SIGCONT)
        if self._thread or not is_main or before is None:  # None: not Python's own; it could not be put back
            return
        self._before = before
        self._notes.clear()  # those of an earlier start
        self._notes.append(_note())
        signal.signal(signal.SIGCONT, self._on_continue)
        signal.siginterrupt(signal.SIGCONT, False)
        self._stopping.clear()
        self._thread = threading.Thread(target=self._take_notes, name="mpies-stopwatch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Notice pauses no more, and put the handler back that was there before."""
        if self._thread and threading.current_thread() is threading.main_thread():
            self._stopping.set()
            self._thread.join()
            self._thread = None
            signal.signal(signal.SIGCONT, self._before)

    def _take_notes(self) -> None:
        while not self._stopping.wait(INTERVAL):
            self._notes.append(_note())

    def _on_continue(self, number: int, frame: Any) -> None:
        # The thread may have gone on before this handler did, so the gap need not be the last.
        now = _note()
        notes = [*self._notes, now]
        self._notes.clear()
        self._notes.append(now)
        pauses = [
            later - earlier - max(INTERVAL, used_later - used_earlier)
            for (earlier, used_earlier), (later, used_later) in pairwise(notes)
        ]
        self.paused += max(0.0, *pauses)
        if callable(self._before):
            self._before(number, frame)


def _note() -> tuple[float, float]:
    """The time, and the processor time of this process, in seconds."""
    return time.perf_counter(), time.process_time()


stopwatch = Stopwatch()  # of this process
