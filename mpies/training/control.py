"""Why and when a run stops: its stop rules, signals, and failed members."""

import logging
import os
import signal
import threading
import time
from types import FrameType
from typing import Any

from mpies.comm import Communicator
from mpies.comm.stopwatch import stopwatch
from mpies.config.schema import StopSection
from mpies.core.arrays import Int64s
from mpies.core.interrupt import reset_after_first
from mpies.training.learner import Clock, Learner

log = logging.getLogger(__name__)

# Why a run stops; '' while it goes on.  Rank 0 decides and broadcasts the position.
STOP_REASONS = ("", "solved", "generations", "steps", "seconds", "signal", "failures", "callback")

# What a rank requests of all others after its share of a generation.
CONTINUE, STOP, ABANDON = range(3)


class TrainingStopped(Exception):
    """Training cannot go on.  reason: one of STOP_REASONS.  The message on rank 0 is one line that says why."""

    def __init__(self, reason: str, message: str = "") -> None:
        super().__init__(message)
        self.reason = reason


class Signals:
    """SIGTERM, SIGINT and SIGUSR1 ask for a stop after this generation.

    A second SIGTERM or SIGINT ends the process at once; SIGUSR1 may be repeated.  SIGCONT ends a pause.

    owns_process: whether the process is there for this run alone.  Where it is not, a second signal goes to the handler
    that was there before.
    raised: time.monotonic() of the first signal, None before it.
    """

    def __init__(self, owns_process: bool = True) -> None:
        self.raised: float | None = None
        self._owns_process = owns_process
        self._before: dict[int, Any] = {}  # number to handler
        self._received: list[int] = []
        stopwatch.start()
        if threading.current_thread() is threading.main_thread():  # Python handles signals nowhere else
            if owns_process:  # else it may be an event loop's to set
                self._arrived = os.memfd_create("signals")  # Python writes the number of each signal into it
                os.set_blocking(self._arrived, False)
                signal.set_wakeup_fd(self._arrived)
                os.register_at_fork(after_in_child=lambda: signal.set_wakeup_fd(-1))  # a child's are its own
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
                handler = signal.getsignal(number)
                if handler is not None:  # not Python's own; it could not be put back
                    self._before[number] = handler
            self.claim()

    def claim(self) -> None:
        """Handle the signals again if a user's environment has set handlers of its own, and what those have taken."""
        if self.raised is None and threading.current_thread() is threading.main_thread():
            for number in self._before:
                if signal.getsignal(number) != self._on_signal:
                    signal.signal(number, self._on_signal)
                    if self._owns_process and number != signal.SIGUSR1:
                        reset_after_first(number)
            if self._owns_process and self._before:
                for number in self._before.keys() & os.pread(self._arrived, 2**16, 0):
                    self._on_signal(number, None)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self.raised is None:
            self.raised = time.monotonic()
        self._received.append(number)
        if self._owns_process:
            signal.signal(number, signal.SIG_IGN if number == signal.SIGUSR1 else signal.SIG_DFL)
        elif number != signal.SIGUSR1:
            signal.signal(number, self._before[number])

    def close(self) -> None:
        """Ignore SIGUSR1 from now on: while Python shuts down its default would end the process."""
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)

    def restore(self) -> None:
        """Put the handlers back that were there before.

        A SIGTERM or SIGUSR1 that has arrived is sent to them, since it was meant for the whole process; Ctrl-C was
        meant for the run.
        """
        stopwatch.stop()
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}
        for number in {*self._received} - {signal.SIGINT}:
            signal.raise_signal(number)

    def is_expired(self, grace: float) -> bool:
        """Whether the first signal came more than `grace` seconds ago."""
        return self.raised is not None and time.monotonic() - self.raised > grace


class Control:
    """One rank's view of when to stop.

    stop: the stop rules.  signals: None where no signal is waited for.
    failed_share: share of the newest generation's members that failed; the evaluator sets it.
    has_callback_stopped: on rank 0, whether a callback has asked for a stop.
    """

    def __init__(self, stop: StopSection, comm: Communicator, signals: Signals | None = None) -> None:
        self.stop, self.comm, self.signals = stop, comm, signals
        self.failed_share = 0.0
        self.has_callback_stopped = False
        self._request = CONTINUE  # the highest that any rank has made

    def must_abandon(self) -> bool:
        """Whether this rank, or another on its node, has been told to stop longer ago than the grace."""
        if self.signals:
            self.signals.claim()
        if self.signals and self.signals.is_expired(self.stop.grace):
            self.comm.request_abandon()
        return self.comm.abandon_requested

    def request(self) -> int:
        """What this rank requests now: CONTINUE, STOP or ABANDON."""
        if self.must_abandon():
            return ABANDON
        return STOP if self.signals and self.signals.raised is not None else CONTINUE

    def agree(self, requests: Int64s) -> None:
        """Take note of the requests (ranks,) of all ranks.  Raises TrainingStopped where one is ABANDON."""
        highest = int(requests.max())
        self._request = max(self._request, highest)
        if highest == ABANDON:
            raise TrainingStopped("signal")  # the generation is played again after a resume

    def stop_reason(self, learner: Learner | None) -> str:
        """Why to stop now, '' to go on; the same on all ranks.  learner: on rank 0."""
        reason = ""
        if learner:
            reason = rule_that_holds(self.stop, learner.clock, learner.solved)
            has_failed = self.failed_share > self.stop.max_failures
            is_complete = bool(reason) and not has_failed
            if self._request != CONTINUE and not is_complete:
                reason = "signal"
            elif has_failed:
                reason = "failures"
            elif self.has_callback_stopped:
                reason = reason or "callback"
        return STOP_REASONS[self.comm.broadcast_int(STOP_REASONS.index(reason))]


def rule_that_holds(stop: StopSection, clock: Clock, solved: float) -> str:
    """The first stop rule that holds, one of STOP_REASONS; '' for none.

    solved: the mean of the newest evaluation if it was confirmed, else -inf.
    """
    if stop.target is not None and solved >= stop.target:
        return "solved"
    if clock.generation >= stop.generations:
        return "generations"
    if stop.steps is not None and clock.steps >= stop.steps:
        return "steps"
    if stop.seconds is not None and clock.seconds >= stop.seconds:
        return "seconds"
    return ""
