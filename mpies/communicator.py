"""The verbs that the ranks speak to each other in; the only module that knows MPI.

`connect()` gives a Parallel communicator under mpirun or srun and its Serial twin otherwise.
"""

import fcntl
import functools
import mmap
import os
import signal
import socket
import sys
import tempfile
import time

import numpy as np

from mpies.lock import process_start

# Variables that a process manager sets for its ranks: Open MPI, PMIx, PMI (MPICH, srun).
LAUNCHED = ("OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_SIZE")
ROOT = 0
SLOTS = 8  # works whose tickets may be out at a time, and as many again: one rank may be ahead of another


class NotEnoughSharedMemory(ValueError):
    """The node's shared memory cannot hold what was asked for; the message says how to mend it."""


class RankLost(Exception):
    """Another rank has died, or a rank that knows of one has called the others together; see `repair`."""


def _survivable(verb):
    """A verb that raises RankLost where MPI fails.

    A dead process shows as MPI_ERR_PROC_FAILED or MPI_ERR_REVOKED, but in the middle of a broadcast Open MPI
    5.0 may say MPI_ERR_OTHER; `repair` finds out whether anyone was lost.
    """

    @functools.wraps(verb)
    def call(self, *args, **kwargs):
        try:
            return verb(self, *args, **kwargs)
        except self._mpi.Exception as error:
            raise RankLost(str(error)) from error

    return call


class Meeting:
    """Where each rank comes when it is through, and may do something else until all are.

    mpi: the MPI module, world: communicator; None where there is one rank.
    """

    def __init__(self, mpi=None, world=None):
        self._mpi, self._world, self._request = mpi, world, None

    @_survivable
    def is_over(self):
        """Whether all are through; the first call says that this rank is."""
        if self._world is None:
            return True
        if self._request is None:
            self._request = self._world.Ibarrier()
        return self._request.Test()

    @_survivable
    def wait(self):
        """Return when all are through."""
        if not self.is_over():
            self._request.Wait()


class Tickets:
    """Work shared out by whoever asks first, each piece once.

    draw: adds to the shared count and returns what it was before.
    """

    def __init__(self, start, stop, draw):
        self._start, self._stop, self._draw = start, stop, draw
        self._free, self._has_taken = stop - start, False

    @property
    def left(self):
        """Pieces that are free now; before this rank's first, all, so that who comes late begins with as many."""
        if self._free and self._has_taken:
            self.take(0)
        return self._free

    def take(self, count):
        """The next free range of at most `count`; empty when all is taken."""
        low = min(self._start + self._draw(count), self._stop)
        high = min(low + count, self._stop)
        self._free, self._has_taken = self._stop - high, True
        return range(low, high)


def connect():
    """The communicator of this process: Parallel when a process manager started it, else Serial."""
    if any(name in os.environ for name in LAUNCHED):
        return Parallel()
    return Serial()


class Serial:
    """One rank, no MPI library: every verb is the identity."""

    rank, size, node, nodes, node_rank, node_size = 0, 1, 0, 1, 0, 1
    given_up = False

    def broadcast(self, arrays):
        """Rank 0's vectors (a list of at most 15) on every rank; other ranks' argument is ignored."""
        return arrays

    def share_rows(self, rows, window):
        """Rank 0's (r, d) rows into the first r of the (>= r, d) `window` of every node, once; None leaves it as it is.

        All ranks must have met since they last read the window.
        """
        if rows is not None:
            window[: len(rows)] = rows

    def allgather(self, rows, numbers=()):
        """All ranks' `rows` (structured, any number each) in rank order, and their `numbers`, (ranks, k) int64."""
        return rows, np.array([numbers], np.int64)

    def gather(self, rows):
        """All ranks' `rows` on rank 0; None elsewhere."""
        return rows

    def gather_blocks(self, block, bounds):
        """The (orders, d) array on rank 0 from each rank's (orders, bounds[rank+1] - bounds[rank]); None elsewhere."""
        return block

    def shared(self, count, dtype):
        """A vector of `count` numbers that all ranks of a node see; its content is undefined.

        Raises NotEnoughSharedMemory.
        """
        try:
            return np.empty(count, dtype)
        except MemoryError:
            raise NotEnoughSharedMemory(f"{count:,} numbers do not fit into memory: lower noise.size") from None

    def node_barrier(self):
        """Wait for the ranks of this node."""

    def tickets(self, total):
        """Tickets for 0 .. total-1.  All ranks must have met since they left those of three uses ago."""
        taken = 0

        def draw(count):
            nonlocal taken
            taken += count
            return taken - count

        return Tickets(0, total, draw)

    def meeting(self):
        """A Meeting, which all ranks must come to."""
        return Meeting()

    def first_error(self, message):
        """The first rank's message that is not empty, on every rank; '' when none has one."""
        return message

    def give_up(self):
        """Make `given_up` true on all ranks of this node."""
        self.given_up = True

    def repair(self):
        """After RankLost: go on with the ranks that are left, under new numbers.  Returns who was lost, in words."""
        raise AssertionError("one rank has no other to lose")

    def abort(self, code):
        """End all ranks at once."""
        sys.exit(code)

    def free(self):
        """Give back all that is shared; all ranks must come."""

    def leave(self, code):
        """The end of a rank, with its exit code; all ranks must come."""
        return code


class Parallel(Serial):
    """Ranks started by mpirun or srun.

    Under `mpirun --with-ft ulfm` the death of a rank raises RankLost in the others, and `repair` makes a
    communicator of them (User-Level Failure Mitigation, MPI Forum; Bland et al. 2013).
    """

    def __init__(self):
        os.environ.setdefault("OMPI_MCA_osc", "^ucx")  # it complains on machines without the hardware
        from mpi4py import MPI

        self._mpi = MPI
        self._false_alarms = 0  # repairs in a row that found everyone alive
        self._repaired = False
        self._windows: list = []
        self._counter = None
        MPI.COMM_WORLD.Set_errhandler(MPI.ERRORS_RETURN)
        self._settle(MPI.COMM_WORLD.Dup())

    @_survivable
    def _settle(self, world):
        """Find out who is where in `world`, and give each node a counter for its tickets."""
        self._world = world
        world.Set_errhandler(self._mpi.ERRORS_RETURN)
        self.rank, self.size = world.rank, world.size
        self._node = world.Split_type(self._mpi.COMM_TYPE_SHARED, key=self.rank)
        self.node_rank, self.node_size = self._node.rank, self._node.size
        self._leaders = world.Split(0 if self.node_rank == 0 else self._mpi.UNDEFINED, key=self.rank)
        for comm in (self._node, *([self._leaders] if self.node_rank == 0 else [])):
            comm.Set_errhandler(self._mpi.ERRORS_RETURN)
        # Nodes are numbered by their lowest rank; (first rank of the node, ranks on it) for each rank.
        first = self._node.bcast(self.rank)
        layout = world.allgather((first, self.node_size))
        firsts = sorted(dict(layout))
        self.nodes, self.node = len(firsts), firsts.index(first)
        self._ranks_before = np.concatenate([[0], np.cumsum([dict(layout)[node] for node in firsts])])
        pid = os.getpid()
        self._processes = world.allgather((socket.gethostname(), pid, process_start(pid)))
        if self._counter:
            self._counter.close()
        self._counter = _Counter(self._node)
        self._sessions = 0

    def repair(self):
        before = self._processes
        while True:
            for comm in (self._world, self._node, *([self._leaders] if self.node_rank == 0 else [])):
                comm.Revoke()  # whoever waits in it comes here
            self._repaired = True
            try:
                self._settle(self._world.Shrink())
                break
            except (RankLost, self._mpi.Exception):  # another one, meanwhile
                continue
        gone = [process for process in before if process not in self._processes]
        self._false_alarms = 0 if gone else self._false_alarms + 1
        if self._false_alarms == 3:
            raise RuntimeError("MPI fails again and again, and no rank is lost")
        for host, pid, start in gone:
            # A frozen process counts as lost; were it to wake up, it must find nothing to do.
            if self.node_rank == 0 and host == socket.gethostname() and start and process_start(pid) == start:
                os.kill(pid, signal.SIGKILL)
                until = time.monotonic() + 5
                while process_start(pid) == start and time.monotonic() < until:
                    time.sleep(0.001)
        return ", ".join(f"process {pid} on {host}" for host, pid, _ in gone)

    @_survivable
    def broadcast(self, arrays):
        head = np.zeros((15, 2), np.int64)  # type, then length
        if self.rank == ROOT:
            head[: len(arrays)] = [(ord(array.dtype.char), len(array)) for array in arrays]
        self._world.Bcast(head, ROOT)
        types, lengths = head[head[:, 0] > 0].T
        types = [np.dtype(chr(letter)) for letter in types]
        ends = np.cumsum([length * kind.itemsize for length, kind in zip(lengths, types, strict=True)])
        everything = np.empty(ends[-1], np.uint8)
        parts = np.split(everything, ends[:-1])
        if self.rank == ROOT:
            for part, array in zip(parts, arrays, strict=True):
                part[:] = _bytes(array)
        self._world.Bcast(everything, ROOT)
        return [part.copy().view(kind) for part, kind in zip(parts, types, strict=True)]

    @_survivable
    def share_rows(self, rows, window):
        if self.node_rank == 0 and (count := self._leaders.bcast(0 if rows is None else len(rows), ROOT)):
            if self.rank == ROOT:
                window[:count] = rows
            self._leaders.Bcast(_bytes(window[:count]), ROOT)
        self._node.Barrier()

    @_survivable
    def allgather(self, rows, numbers=()):
        heads = np.empty((self.size, 1 + len(numbers)), np.int64)
        self._world.Allgather(np.array([len(rows), *numbers], np.int64), heads)
        counts = heads[:, 0]
        everything = np.empty(counts.sum(), rows.dtype)
        sizes = counts * rows.dtype.itemsize
        self._world.Allgatherv(_bytes(rows), [_bytes(everything), sizes])
        return everything, heads[:, 1:]

    @_survivable
    def gather(self, rows):
        counts = self._world.gather(len(rows), ROOT)
        if self.rank != ROOT:
            self._world.Gatherv(_bytes(rows), None, ROOT)
            return None
        everything = np.empty(sum(counts), rows.dtype)
        sizes = np.array(counts) * rows.dtype.itemsize
        self._world.Gatherv(_bytes(rows), [_bytes(everything), sizes], ROOT)
        return everything

    @_survivable
    def gather_blocks(self, block, bounds):
        widths = np.diff(bounds)
        whole = np.empty((len(block), bounds[-1]), block.dtype) if self.rank == ROOT else None
        for order, part in enumerate(block):
            receive = None if whole is None else [_bytes(whole[order]), widths * block.dtype.itemsize]
            self._world.Gatherv(_bytes(part), receive, ROOT)
        return whole

    def shared(self, count, dtype):
        window, vector = self._allocate(count, dtype)
        self._windows.append(window)  # kept: the memory lives as long as the window
        return vector

    @_survivable
    def _allocate(self, count, dtype):
        size = int(count) * np.dtype(dtype).itemsize
        if not size:
            return None, np.zeros(0, dtype)
        short = self._world.allreduce(self._shortage(size) if self.node_rank == 0 else 0, self._mpi.MAX)
        if short:
            raise NotEnoughSharedMemory(
                f"a node lacks {short / 2**20:.0f} MB of shared memory in /dev/shm for {size / 2**20:.0f} MB: "
                "lower noise.size, or give the container a larger /dev/shm (a memory volume, --shm-size)"
            )
        window = self._mpi.Win.Allocate_shared(size if self.node_rank == 0 else 0, 1, comm=self._node)
        memory, _ = window.Shared_query(0)
        return window, np.frombuffer(memory, dtype, count)

    @staticmethod
    def _shortage(size):
        """Bytes that /dev/shm lacks for a window of `size`: found out before MPI would hang on it."""
        try:
            state = os.statvfs("/dev/shm")
        except OSError:
            return 0
        return max(0, size + 2**20 - state.f_bavail * state.f_frsize)

    @_survivable
    def node_barrier(self):
        self._node.Barrier()

    def tickets(self, total):
        # Each node deals out its own share, in proportion to its ranks, from a counter in its shared
        # memory: that needs no progress of another process, a counter across nodes would.
        start, stop = (int(total * self._ranks_before[self.node + i] // self.size) for i in (0, 1))
        slot = self._sessions % SLOTS
        self._sessions += 1
        if self.node_rank == 0:  # everyone left that slot long ago
            self._counter.reset((slot + SLOTS // 2) % SLOTS)
        return Tickets(start, stop, functools.partial(self._counter.add, slot))

    def meeting(self):
        return Meeting(self._mpi, self._world)

    @property
    def given_up(self):
        return self._counter.given_up

    def give_up(self):
        self._counter.give_up()

    @_survivable
    def first_error(self, message):
        return next((text for text in self._world.allgather(message) if text), "")

    def abort(self, code):
        sys.stdout.flush()
        sys.stderr.flush()
        self._world.Abort(code)

    def leave(self, code):
        try:
            _survivable(type(self)._meet)(self)
        except RankLost:  # after the last word of the run: nothing is left to be done together
            self._repaired = True
        if self._repaired:  # MPI_Finalize may wait for the dead
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
        self.free()
        self._mpi.Finalize()
        return code

    def free(self):
        for window in self._windows:
            if window is not None:
                window.Free()
        self._windows = []

    def _meet(self):
        self._world.Barrier()


class _Counter:
    """Some numbers in a node's memory, each added to by one process at a time, and a flag.

    A lock of the kernel guards the numbers, which it takes back from a process that dies holding it.
    """

    def __init__(self, node):
        path = None
        if node.rank == 0:
            shm = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
            descriptor, path = tempfile.mkstemp(prefix="mpies-tickets-", dir=shm)
            os.write(descriptor, bytes(8 * (SLOTS + 1)))
            os.close(descriptor)
        path = node.bcast(path)
        try:
            self._file = os.open(path, os.O_RDWR)
            self._memory = mmap.mmap(self._file, 8 * (SLOTS + 1))
            node.Barrier()
        finally:
            if node.rank == 0:
                os.unlink(path)
        self._numbers = np.frombuffer(self._memory, np.int64)

    def add(self, slot, count):
        """Add to number `slot`; returns what it was before."""
        fcntl.lockf(self._file, fcntl.LOCK_EX, 8, 8 * slot)
        before = int(self._numbers[slot])
        self._numbers[slot] = before + count
        fcntl.lockf(self._file, fcntl.LOCK_UN, 8, 8 * slot)
        return before

    def reset(self, slot):
        self._numbers[slot] = 0

    @property
    def given_up(self):
        return self._memory[8 * SLOTS] != 0

    def give_up(self):
        self._memory[8 * SLOTS] = 1

    def close(self):
        os.close(self._file)


def _bytes(array):
    """The memory of a contiguous array as bytes, which is how everything travels."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
