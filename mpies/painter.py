"""Pictures of a run while it goes on, drawn at every evaluation by a process that keeps to its share of the time.

A process of its own, not a thread: drawing would hold Python's lock, and forking under MPI is not safe.  It is
started by exec, sleeps on a pipe until rank 0 writes a byte, and ends when rank 0 does.  Ranks take members as they
are ready, so what it takes from one of them is taken from all: its share is one of all ranks' time on this node.
"""

import contextlib
import os
import select
import subprocess
import sys
import time
from pathlib import Path

DRAW, LAST = b"d", b"l"  # what rank 0 asks for
NICE = 5  # while training goes on: drawing slows a rank down by a quarter, not by half
SHARE = 0.01  # of the ranks' time, at most, that drawing may take
STARTING = 1.5  # seconds of processor time that the drawing process takes until its first pictures are there
_LAUNCHERS = ("OMPI_", "PMIX_", "PMI_", "PRTE_", "SLURM_", "MPICH_", "HYDRA_", "I_MPI_")


class Painter:
    """Rank 0's end.  Trouble with pictures never troubles the run.

    run: a store.Run, whose lock must be held.  ranks: of this node.
    """

    def __init__(self, run, ranks):
        self.run, self._process, self._began = run, None, time.monotonic()
        self._share = SHARE * min(ranks, os.cpu_count() or 1)  # of one processor's time
        self.wanted = os.environ.get("MPIES_PICTURES", "1") != "0"

    def refresh(self):
        """Have the pictures drawn as soon as that is within the share; returns at once."""
        if self._process or (time.monotonic() - self._began) * self._share > STARTING:  # else it is left to `close`
            self._ask(DRAW)

    def _ask(self, what):
        if not (self.wanted and self.run.lock.held):
            return
        try:
            if self._process is None:
                self._process = self._start(NICE if what == DRAW else 0)
            os.write(self._process.stdin.fileno(), what)
        except BlockingIOError:  # it has more than enough requests
            pass
        except (OSError, ValueError):
            self.wanted = False

    def _start(self, niceness):
        clean = {name: value for name, value in os.environ.items() if not name.startswith(_LAUNCHERS)}
        clean |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        limits = map(str, (niceness, self._share, self._began))
        command = [sys.executable, "-m", "mpies.painter", str(self.run.path), self.run.lock.token, *limits]
        quiet = subprocess.DEVNULL
        process = subprocess.Popen(command, env=clean, stdin=subprocess.PIPE, stdout=quiet, stderr=quiet)
        os.set_blocking(process.stdin.fileno(), False)
        return process

    def close(self, patience=120.0):
        """The last pictures; training is over, so they may take their time, but no more than `patience` seconds."""
        self._ask(LAST)
        if self._process:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
            try:
                self._process.wait(patience)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()


def give_way(niceness):
    """Run at a lower priority, on any processor: rank 0's may be bound to its own."""
    with contextlib.suppress(OSError):
        os.nice(niceness)
    with contextlib.suppress(OSError, AttributeError):
        os.sched_setaffinity(0, range(os.cpu_count() or 1))


def draw_when_asked(path, token, share, began):
    """Draw the run at `path` for each request on standard input, until that ends or another job writes the run.

    Where this process would take more than `share` of one processor's time since `began`, in monotonic seconds, a
    request waits, and those that come meanwhile are answered with it.
    """
    from mpies.curves import read_curves
    from mpies.plots import write_pictures
    from mpies.run_view import RunView
    from mpies.store import StoreError

    view, asked, cost = RunView(path), b"", 0.0  # of the newest pictures, in seconds

    def held():
        return view.writer().get("token") == token

    while True:
        ready = began + (time.process_time() + cost) / share
        wait = max(0.0, ready - time.monotonic()) if asked else None
        if select.select([0], [], [], wait)[0]:
            more = os.read(0, 4096)
            if not more:
                return
            asked += more
        if LAST in asked or time.monotonic() >= ready:
            before = time.process_time()
            if not held():
                return
            with contextlib.suppress(StoreError):  # of a disk that is full: the next time
                write_pictures(path, read_curves(view), allowed=held)
            if LAST in asked:
                return
            asked, cost = b"", time.process_time() - before


if __name__ == "__main__":
    give_way(int(sys.argv[3]))
    draw_when_asked(Path(sys.argv[1]), sys.argv[2], *map(float, sys.argv[4:]))
