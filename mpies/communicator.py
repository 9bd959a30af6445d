"""The verbs that the ranks speak to each other in; the only module that knows MPI.

`connect()` gives a Parallel communicator under mpirun or srun and its Serial twin otherwise.
"""

import os
import sys

import numpy as np

# Variables that a process manager sets for its ranks: Open MPI, PMIx, PMI (MPICH, srun).
LAUNCHED = ("OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_SIZE")
ROOT = 0


class NotEnoughSharedMemory(ValueError):
    """The node's shared memory cannot hold what was asked for; the message says how to mend it."""


class Tickets:
    """Work shared out by whoever asks first, each piece once.

    left: pieces that were free when this rank last asked.  draw: adds to the shared count and returns
    what it was before.
    """

    def __init__(self, start, stop, draw):
        self._start, self._stop, self._draw = start, stop, draw
        self.left = stop - start

    def take(self, count):
        """The next free range of at most `count`; empty when all is taken."""
        low = min(self._start + self._draw(count), self._stop)
        high = min(low + count, self._stop)
        self.left = self._stop - high
        return range(low, high)


def connect():
    """The communicator of this process: Parallel when a process manager started it, else Serial."""
    if any(name in os.environ for name in LAUNCHED):
        return Parallel()
    return Serial()


class Serial:
    """One rank, no MPI library: every verb is the identity."""

    rank, size, node, nodes, node_rank, node_size = 0, 1, 0, 1, 0, 1

    def broadcast(self, arrays):
        """Rank 0's vectors (a list of at most 15) on every rank; other ranks' argument is ignored."""
        return arrays

    def share_rows(self, rows, window):
        """Rank 0's (r, d) rows into the first r of the (>= r, d) `window` of every node, once; None leaves it as it is.

        All ranks must have met since they last read the window.
        """
        if rows is not None:
            window[: len(rows)] = rows

    def allgather(self, rows, flag=False):
        """All ranks' `rows` (structured, any number each) in rank order, and whether any rank raised `flag`."""
        return rows, flag

    def gather(self, rows):
        """All ranks' `rows` on rank 0; None elsewhere."""
        return rows

    def gather_blocks(self, block, bounds):
        """The (orders, d) array on rank 0 from each rank's (orders, bounds[rank+1] - bounds[rank]); None elsewhere."""
        return block

    def shared(self, count, dtype):
        """A vector of `count` numbers that all ranks of a node see; its content is undefined."""
        return np.empty(count, dtype)

    def node_barrier(self):
        """Wait for the ranks of this node."""

    def tickets(self, total):
        """Tickets for 0 .. total-1.  All ranks must meet between two uses."""
        taken = 0

        def draw(count):
            nonlocal taken
            taken += count
            return taken - count

        return Tickets(0, total, draw)

    def first_error(self, message):
        """The first rank's message that is not empty, on every rank; '' when none has one."""
        return message

    def abort(self, code):
        """End all ranks at once."""
        sys.exit(code)

    def close(self):
        """Leave; all ranks must come."""


class Parallel(Serial):
    """Ranks started by mpirun or srun."""

    def __init__(self):
        os.environ.setdefault("OMPI_MCA_osc", "^ucx")  # it complains on machines without the hardware
        from mpi4py import MPI

        self._mpi = MPI
        self._world = MPI.COMM_WORLD.Dup()
        self.rank, self.size = self._world.rank, self._world.size
        self._node = self._world.Split_type(MPI.COMM_TYPE_SHARED, key=self.rank)
        self.node_rank, self.node_size = self._node.rank, self._node.size
        self._leaders = self._world.Split(0 if self.node_rank == 0 else MPI.UNDEFINED, key=self.rank)
        # Nodes are numbered by their lowest rank; (first rank of the node, ranks on it) for each rank.
        first = self._node.bcast(self.rank)
        layout = self._world.allgather((first, self.node_size))
        firsts = sorted(dict(layout))
        self.nodes, self.node = len(firsts), firsts.index(first)
        ranks_on = [dict(layout)[node] for node in firsts]
        self._ranks_before = np.concatenate([[0], np.cumsum(ranks_on)])
        self._windows = []
        self._counter_window, self._counter = self._allocate(2, np.int64)
        self._counter[:] = 0
        self._sessions = 0
        self._counter_window.Lock_all()
        self.node_barrier()

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

    def share_rows(self, rows, window):
        if self.node_rank == 0:
            if self._leaders.bcast(rows is not None, ROOT):
                count = self._leaders.bcast(0 if rows is None else len(rows), ROOT)
                if self.rank == ROOT:
                    window[:count] = rows
                self._leaders.Bcast(_bytes(window[:count]), ROOT)
        self._node.Barrier()

    def allgather(self, rows, flag=False):
        heads = np.empty((self.size, 2), np.int64)
        self._world.Allgather(np.array([len(rows), flag], np.int64), heads)
        counts = heads[:, 0]
        everything = np.empty(counts.sum(), rows.dtype)
        sizes = counts * rows.dtype.itemsize
        self._world.Allgatherv(_bytes(rows), [_bytes(everything), sizes])
        return everything, bool(heads[:, 1].any())

    def gather(self, rows):
        counts = self._world.gather(len(rows), ROOT)
        if self.rank != ROOT:
            self._world.Gatherv(_bytes(rows), None, ROOT)
            return None
        everything = np.empty(sum(counts), rows.dtype)
        sizes = np.array(counts) * rows.dtype.itemsize
        self._world.Gatherv(_bytes(rows), [_bytes(everything), sizes], ROOT)
        return everything

    def gather_blocks(self, block, bounds):
        widths = np.diff(bounds)
        whole = np.empty((len(block), bounds[-1]), block.dtype) if self.rank == ROOT else None
        for order, part in enumerate(block):
            receive = None if whole is None else [_bytes(whole[order]), widths * block.dtype.itemsize]
            self._world.Gatherv(_bytes(part), receive, ROOT)
        return whole

    def shared(self, count, dtype):
        window, vector = self._allocate(count, dtype)
        if window is not None:
            self._windows.append(window)
        return vector

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

    def node_barrier(self):
        self._node.Barrier()

    def tickets(self, total):
        # Each node deals out its own share, in proportion to its ranks, from a counter in its shared
        # memory: an atomic there needs no progress of another process, one across nodes would.
        start, stop = (total * self._ranks_before[self.node + i] // self.size for i in (0, 1))
        slot = self._sessions % 2
        self._sessions += 1
        if self.node_rank == 0:  # everyone has left the slot of the session before: they have met since
            self._counter[1 - slot] = 0
            self._counter_window.Sync()
        add, before = np.empty(1, np.int64), np.empty(1, np.int64)

        def draw(count):
            add[0] = count
            self._counter_window.Fetch_and_op(add, before, 0, slot * 8, self._mpi.SUM)
            self._counter_window.Flush(0)
            return int(before[0])

        return Tickets(start, stop, draw)

    def first_error(self, message):
        return next((text for text in self._world.allgather(message) if text), "")

    def abort(self, code):
        sys.stdout.flush()
        sys.stderr.flush()
        self._world.Abort(code)

    def close(self):
        self._world.Barrier()
        self._counter_window.Unlock_all()
        for window in [self._counter_window, *self._windows]:
            window.Free()
        self._mpi.Finalize()


def _bytes(array):
    """The memory of a contiguous array as bytes, which is how everything travels."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
