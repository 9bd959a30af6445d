"""Noise tables that all groups of ranks of a node share: one for each seed and size that is in use.

A table is a function of its seed and size, so it does not matter which process fills which block, nor whether two fill
the same one.  The tables lie in a file without a name, of which all processes of the node have the descriptor; the
memory is free again when the last of them ends, however it ends.  The kernel's locks on ranges of the file tell who
uses a table, and are released when a process dies.  They belong to the open file, not to the process: a lock of the
other kind would be lost whenever Python closes a piece of memory that was mapped from the file.
"""

import errno
import fcntl
import hashlib
import mmap
import os
import struct

import numpy as np

from mpies.core.errors import NotEnoughSharedMemory
from mpies.solvers.sampling import noise

ENTRIES = 256  # tables that there can be at the same time
FIELDS = ("key", "length", "place")  # of an entry: hash of seed and size, 0 if it is free; bytes of the file; where
_PAGE = mmap.ALLOCATIONGRANULARITY
_HEAD = -(-ENTRIES * len(FIELDS) * 8 // _PAGE) * _PAGE  # bytes before the first table
_LOCKS = 1 << 60  # where the locks begin, far behind all memory: first that of the entries, then one for each entry

_FLOCK = "@hhqqi4x"  # the kernel's struct flock: type, whence, start, length, process


class NoiseTables:
    """The noise tables of a node, seen from one process.

    file: the descriptor that Communicator.open_node_file returns.  All processes of the node have opened this file, and
    no others; it is empty at first.  Raises NotEnoughSharedMemory.
    """

    def __init__(self, file: int) -> None:
        self._file = file
        self._allocate(0, _HEAD, "the list of noise tables")  # keeps what another process has written there
        self._head = mmap.mmap(file, _HEAD)
        self._entries = np.frombuffer(self._head, np.int64, ENTRIES * len(FIELDS)).reshape(ENTRIES, -1)
        self._used: int | None = None  # the entry that this process uses

    def get(self, seed: int, size: int, first: int = 0) -> noise.Filling:
        """The table (size,) of a seed, until `release`.  The ranks that want it fill it together.

        first: as for Filling.  Raises NotEnoughSharedMemory.
        """
        self.release()
        if not size:
            return noise.Filling(np.zeros(0, np.float32), np.zeros(0, np.uint8), seed)
        blocks = noise.blocks(size)
        # A seed may be of any size.
        key = int.from_bytes(hashlib.sha256(f"{seed} {size}".encode()).digest()[:7], "little")
        length = -(-(4 * size + blocks) // _PAGE) * _PAGE  # the table, and a byte for each block that is filled
        self._lock(_LOCKS, fcntl.F_WRLCK)  # no other process reads or changes the entries
        try:
            known = np.flatnonzero(self._entries[:, 0] == key).tolist()
            self._used = known[0] if known else self._make(key, length)
            self._lock(_LOCKS + 1 + self._used, fcntl.F_RDLCK)
            memory = mmap.mmap(self._file, length, offset=int(self._entries[self._used, 2]))
        finally:
            self._lock(_LOCKS, fcntl.F_UNLCK)
        is_filled = np.frombuffer(memory, np.uint8, blocks, offset=4 * size)
        return noise.Filling(np.frombuffer(memory, np.float32, size), is_filled, seed, first)

    def release(self) -> None:
        """This process needs its table no more."""
        if self._used is not None:
            self._lock(_LOCKS + 1 + self._used, fcntl.F_UNLCK)
            self._used = None

    def close(self) -> None:
        """Leave the file; other processes may go on."""
        self.release()
        os.close(self._file)

    def _make(self, key: int, length: int) -> int:
        """Make an entry for a table, and give the memory of those back that nobody uses."""
        for number in np.flatnonzero(self._entries[:, 0]).tolist():
            if self._lock(_LOCKS + 1 + number, fcntl.F_WRLCK, waits=False):
                self._lock(_LOCKS + 1 + number, fcntl.F_UNLCK)
                _, unused, place = self._entries[number].tolist()  # this place in the file is not used again
                with mmap.mmap(self._file, unused, offset=place) as memory:
                    memory.madvise(mmap.MADV_REMOVE)
                self._entries[number] = 0
        free = np.flatnonzero(self._entries[:, 0] == 0)
        if not len(free):
            raise NotEnoughSharedMemory(f"more than {ENTRIES} noise tables are in use on this node")
        number, place = int(free[0]), max(_HEAD, os.fstat(self._file).st_size)
        self._allocate(place, length, f"a noise table of {length / 2**20:.0f} MB")
        self._entries[number] = key, length, place
        return number

    def _allocate(self, place: int, length: int, what: str) -> None:
        """Have memory for a part of the file.  what: it is, for the message.  Raises NotEnoughSharedMemory."""
        try:
            os.posix_fallocate(self._file, place, length)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EFBIG, errno.ENOMEM):
                raise
            raise NotEnoughSharedMemory(
                f"/dev/shm of a node is too small for {what}: lower noise.size, train fewer runs at a time by a larger "
                "--ranks-per-run, or give the container a larger /dev/shm (a memory volume, --shm-size)"
            ) from None

    def _lock(self, place: int, kind: int, waits: bool = True) -> bool:
        """Lock a byte of the file, or unlock it.  Returns whether this process has it; waits for others if `waits`."""
        command = fcntl.F_OFD_SETLKW if waits else fcntl.F_OFD_SETLK
        try:
            fcntl.fcntl(self._file, command, struct.pack(_FLOCK, kind, os.SEEK_SET, place, 1, 0))
        except (BlockingIOError, PermissionError):  # another process has it
            return False
        return True
