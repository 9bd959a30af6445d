"""Each rank stays on a core of its own, so that a simulator's threads do not wander and wake each other across cores.

The command that people type starts ranks with `slot:oversubscribe`, with which Open MPI binds none of them.  So each
rank chooses for itself, among the hardware threads that it may use (its mask): a physical core where the ranks of its
node fit, a hardware thread where as many fit, and otherwise none.  A launcher that has bound the ranks, each with
another mask, is left alone.

Jobs on one machine keep apart by a lock for each hardware thread: an abstract socket, which all users of the network
namespace see, and which ends with its process.  Where a core comes to be shared all the same, as by jobs in other
containers, a rank that waits for it while another core is idle lets it go, and the kernel places it from then on.
"""

import contextlib
import os
import socket
import threading
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from pathlib import Path

import numpy as np

from mpies.comm.communicator import Communicator

CHECK = 2.0  # seconds between two looks at whether the core is shared
WAITED = 0.25  # share of the time that this process waits for its core, beyond which it is taken to be shared
IDLE = 0.5  # share of the time that another hardware thread must be idle, to be worth moving to
LOCK = "\0mpies-cpu-"  # name of the abstract socket of a hardware thread, before its number

Place = frozenset[int]  # the hardware threads that a rank stays on

_inherited: dict[int, set[int]] = {}  # while this process holds a core: its pid, and the mask that it had before


def list_places(mask: Set[int], ranks: int, siblings: Mapping[int, Set[int]]) -> list[Place]:
    """The places in `mask` among which `ranks` ranks of a node choose; [] where they do not fit.

    siblings: the hardware threads of each one's core.
    """
    cores = sorted({frozenset(siblings.get(cpu, {cpu}) & mask) for cpu in mask}, key=min)
    if ranks <= len(cores):
        return cores
    return [frozenset({cpu}) for core in cores for cpu in sorted(core)] if ranks <= len(mask) else []


def read_siblings(mask: Iterable[int], folder: str | Path = "/sys/devices/system/cpu") -> dict[int, set[int]]:
    """The hardware threads of the core of each one in `mask`, as the kernel tells them."""
    found = {}
    for cpu in mask:
        with contextlib.suppress(OSError, ValueError):
            found[cpu] = _read_list(Path(folder, f"cpu{cpu}/topology/thread_siblings_list").read_text())
    return found


def _read_list(text: str) -> set[int]:
    """The numbers of a list such as 0-2,8."""
    ends = [part.partition("-") for part in text.strip().split(",") if part]
    return {number for first, _, last in ends for number in range(int(first), int(last or first) + 1)}


@contextlib.contextmanager
def hold_core(comm: Communicator, wanted: bool = True) -> Iterator[str]:
    """In the `with` block, keep this rank on a core.  Yields which, in words.  All ranks of a job enter it together.

    wanted: whether the config asks for it.  Threads that this process makes in the block stay on the core, too;
    processes do unless they are started within `released`.
    """
    mask = os.sched_getaffinity(0)
    places = _places_on_node(comm, mask) if wanted and os.getpid() not in _inherited else []
    if not places:
        yield ""
        return
    first = zlib.crc32(socket.gethostname().encode()) + comm.node_rank  # pods with the same mask begin elsewhere
    hold = _Hold([places[(first + step) % len(places)] for step in range(len(places))], mask)
    _inherited[os.getpid()] = mask
    try:
        hold.take()
        hold.start()
        yield f"core {min(hold.place)}" if hold.place else ""
    finally:
        hold.stop()
        _inherited.pop(os.getpid(), None)


class _Hold(threading.Thread):
    """Keeps this process on the first of its places that no other process has locked.

    mask: what it may use otherwise.  place: where it is; empty where it is nowhere in particular.
    """

    def __init__(self, places: Sequence[Place], mask: Set[int]) -> None:
        super().__init__(daemon=True, name="core")
        self.place: Place = frozenset()
        self._places, self._mask = places, mask
        self._locks: list[socket.socket] = []
        self._over = threading.Event()

    def take(self) -> None:
        """Move to a place that is free, if there is one."""
        for place in self._places:
            if locks := _lock(place):
                self.place, self._locks = place, locks
                if threading.current_thread() is self:
                    _move(place)  # simulators have made threads by now
                else:  # threads that this one makes follow it; others of a notebook stay where they are
                    with contextlib.suppress(OSError):
                        os.sched_setaffinity(0, place)
                return

    def let_go(self) -> None:
        """Give the place up."""
        if self.place:
            _move(self._mask)
        _free(self._locks)
        self.place = frozenset()

    def stop(self) -> None:
        """End the thread, and give the place up."""
        self._over.set()
        self.join()
        self.let_go()

    def run(self) -> None:
        """Let the place go when it is shared while another one is idle; until then, take one that becomes free."""
        waited, idle, since = _waited(), _idle(), time.monotonic()
        while not self._over.wait(CHECK):
            if not self.place:
                self.take()
            before, waited, idle_before, idle, began = waited, _waited(), idle, _idle(), since
            since = time.monotonic()
            seconds = since - began
            others = self._mask - self.place
            is_idle = any(idle.get(cpu, 0.0) - idle_before.get(cpu, 0.0) > IDLE * seconds for cpu in others)
            if self.place and waited - before > WAITED * seconds and is_idle:
                self.let_go()
                return


@contextlib.contextmanager
def released() -> Iterator[None]:
    """In the `with` block this thread has the mask that its process began with, and so has what it starts."""
    mask = _inherited.get(os.getpid())
    if mask is None:
        yield
        return
    held = os.sched_getaffinity(0)
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, mask)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, held)


def _places_on_node(comm: Communicator, mask: Set[int]) -> list[Place]:
    """The places of this rank's node; [] where ranks do not fit, or where a launcher has bound them."""
    own = [comm.node, zlib.crc32(repr(sorted(mask)).encode())]
    _, told = comm.allgather(np.zeros(0), own)
    here = told[told[:, 0] == comm.node]
    return list_places(mask, len(here), read_siblings(mask)) if (here == own).all() else []


def _lock(place: Place) -> list[socket.socket]:
    """The locks of all hardware threads of a place; [] where another process has one of them."""
    locks: list[socket.socket] = []
    for cpu in sorted(place):
        lock = socket.socket(socket.AF_UNIX)
        locks.append(lock)
        try:
            lock.bind(f"{LOCK}{cpu}")
        except OSError:
            _free(locks)
            return []
    return locks


def _free(locks: Sequence[socket.socket]) -> None:
    for lock in locks:
        lock.close()


def _move(place: Set[int]) -> None:
    """Put all threads of this process on these hardware threads.  A thread that cannot be moved stays where it is."""
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError):
            os.sched_setaffinity(int(thread), place)


def _waited() -> float:
    """Seconds that the threads of this process have waited for a processor."""
    total = 0
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            total += int(Path(f"/proc/self/task/{thread}/schedstat").read_text().split()[1])
    return total / 1e9


def _idle() -> dict[int, float]:
    """Seconds that each hardware thread of the machine has been idle."""
    ticks = os.sysconf("SC_CLK_TCK")
    found = {}
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/stat").read_text().splitlines():
            words = line.split()
            if words[0].startswith("cpu") and words[0] != "cpu":
                found[int(words[0][3:])] = (int(words[4]) + int(words[5])) / ticks
    return found
