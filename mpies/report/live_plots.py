"""Plots of a run while it is training, drawn after evaluations by a process that uses a bounded share of the time.

Drawing in a thread would hold Python's lock, and forking under MPI is not safe, so rank 0 starts a new Python.  That
process sleeps until rank 0 writes a request to its standard input, and ends when rank 0 closes it.  Ranks take members
as they become free, so time taken from one rank delays all of them: the share is one of all ranks' time on the node.
"""

import contextlib
import os
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the drawing process does without, and so starts faster
    from mpies.runs.writer import RunWriter

DRAW, DRAW_LAST = b"d", b"l"  # requests
NICENESS = 5  # while training; drawing then slows the rank on its processor by a quarter, not by half
MAX_SHARE = 0.01  # of the ranks' time that drawing may take
START_UP = 1.5  # seconds of processor time that the process takes until its first plots are written
_LAUNCHERS = ("OMPI_", "PMIX_", "PMI_", "PRTE_", "SLURM_", "MPICH_", "HYDRA_", "I_MPI_")


class LivePlots:
    """Rank 0's side: starts the drawing process and sends it requests.  Errors in drawing do not stop the run.

    run: whose lock must be held.  ranks: on this node.  is_enabled: whether plots are wanted.
    """

    def __init__(self, run: "RunWriter", ranks: int, is_enabled: bool = True) -> None:
        self._run = run
        self._process: subprocess.Popen[bytes] | None = None
        self._start_time = time.monotonic()
        self._share = MAX_SHARE * min(ranks, os.cpu_count() or 1)  # of one processor's time
        self._is_enabled = is_enabled and os.environ.get("MPIES_PICTURES", "1") != "0"

    def refresh(self) -> None:
        """Request new plots, which are drawn as soon as the share allows.  Returns at once.

        In the first minutes of a run starting the process alone would exceed the share, so nothing is requested.
        """
        if self._process or (time.monotonic() - self._start_time) * self._share > START_UP:
            self._request(DRAW)

    def _request(self, request: bytes) -> None:
        if not (self._is_enabled and self._run.lock.is_held):
            return
        try:
            if self._process is None:
                self._process = self._start(NICENESS if request == DRAW else 0)
            assert self._process.stdin
            os.write(self._process.stdin.fileno(), request)
        except BlockingIOError:  # the pipe is full of requests
            pass
        except (OSError, ValueError):
            self._is_enabled = False

    def _start(self, niceness: int) -> "subprocess.Popen[bytes]":
        environment = {name: value for name, value in os.environ.items() if not name.startswith(_LAUNCHERS)}
        environment |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        numbers = map(str, (niceness, self._share, self._start_time))
        command = [sys.executable, "-m", __name__, str(self._run.path), self._run.lock.token, *numbers]
        quiet = subprocess.DEVNULL
        process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=quiet, stderr=quiet)
        assert process.stdin
        os.set_blocking(process.stdin.fileno(), False)
        return process

    def close(self, timeout: float = 120.0) -> None:
        """Have the last plots drawn and wait for them, at most `timeout` seconds.

        They may take more than the share, since training is over.
        """
        if self._process and self._process.poll() is not None:  # it was killed, for instance when memory ran out
            self._process, self._is_enabled = None, True
        self._request(DRAW_LAST)
        if self._process:
            assert self._process.stdin
            with contextlib.suppress(OSError):
                self._process.stdin.close()
            try:
                self._process.wait(timeout)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def drop(self) -> None:
        """End the drawing process without last plots."""
        if self._process:
            self._process.kill()
            self._process.wait()


def lower_priority(niceness: int) -> None:
    """Run at a lower priority and on any processor: this process inherits the binding of rank 0 to its own."""
    with contextlib.suppress(OSError):
        os.nice(niceness)
    with contextlib.suppress(OSError, AttributeError):
        os.sched_setaffinity(0, range(os.cpu_count() or 1))


def draw_on_request(path: Path, token: str, share: float, start_time: float) -> None:
    """Draw the run at `path` for each request on standard input, until that ends or another job holds the lock.

    A request waits while drawing would take more than `share` of one processor's time since `start_time`.  Requests
    that arrive in the meantime are answered together with it.

    token: of the lock that rank 0 holds.  start_time: in monotonic seconds.
    """
    from mpies.core.errors import RunError
    from mpies.report.curves import read_curves
    from mpies.report.figures import write_plots
    from mpies.runs.reader import RunView

    view = RunView(path)
    requests = b""
    cost = 0.0  # seconds of processor time that the newest plots took

    def is_lock_held() -> bool:
        return bool(view.writer().get("token") == token)

    while True:
        due = start_time + (time.process_time() + cost) / share
        wait = max(0.0, due - time.monotonic()) if requests else None
        if select.select([0], [], [], wait)[0]:
            more = os.read(0, 4096)
            if not more:
                return
            requests += more
        if DRAW_LAST in requests or time.monotonic() >= due:
            before = time.process_time()
            if not is_lock_held():
                return
            with contextlib.suppress(RunError):  # the disk may be full; the next request tries again
                write_plots(path, read_curves(view), may_write=is_lock_held)
            if DRAW_LAST in requests:
                return
            requests, cost = b"", time.process_time() - before


if __name__ == "__main__":
    lower_priority(int(sys.argv[3]))
    draw_on_request(Path(sys.argv[1]), sys.argv[2], *map(float, sys.argv[4:]))
