"""Ranks started by mpirun or srun; the only module that calls MPI.

Under `mpirun --with-ft ulfm` the death of a rank raises RankLost in the others, and `repair` makes a communicator of
them (User-Level Failure Mitigation, MPI Forum; Bland et al. 2013).
"""

from __future__ import annotations

import functools
import mmap
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt

from mpies.comm.communicator import ROOT, Array, Communicator, RankLost
from mpies.comm.limits import lacking_shared_memory, refuse_lack
from mpies.comm.mpiexec import COMPONENTS
from mpies.comm.processes import process_start
from mpies.comm.work_counter import SLOTS, NodeCounters, WorkCounter, divide, open_node_file
from mpies.core.errors import FAILED, ConfigError
from mpies.core.text import flush_output, one_line

FALSE_ALARMS_WITHIN = 60  # seconds; three false alarms within them end the job

P = ParamSpec("P")
T = TypeVar("T")


def _survivable(
    method: Callable[Concatenate[MPICommunicator, P], T],
) -> Callable[Concatenate[MPICommunicator, P], T]:
    """A method that raises RankLost where MPI fails.

    A dead process shows as MPI_ERR_PROC_FAILED or MPI_ERR_REVOKED, but in the middle of a broadcast Open MPI
    5.0 may report MPI_ERR_OTHER; `repair` finds out whether a rank was lost.
    """

    @functools.wraps(method)
    def call(self: MPICommunicator, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(self, *args, **kwargs)
        except self._mpi.Exception as error:
            raise RankLost(str(error)) from error

    return call


class MPICommunicator(Communicator):
    """The ranks of an mpi4py communicator, by default MPI_COMM_WORLD, or those of them that are left.

    Raises ConfigError where mpi4py finds no MPI library.  All of MPI_COMM_WORLD end where one of them cannot connect.
    """

    def __init__(self, world: Any = None) -> None:
        self._added = [name for name in COMPONENTS if name not in os.environ]  # to the variables of this process
        os.environ |= {name: COMPONENTS[name] for name in self._added}
        try:
            from mpi4py import MPI
        except (ImportError, RuntimeError) as error:
            raise ConfigError(
                f"mpi4py finds no MPI library ({one_line(error)}); load the MPI of the mpirun in use, or: "
                'pip install "mpies[mpi]"'
            ) from None

        self._mpi: Any = MPI
        self._false_alarms: list[float] = []  # times of repairs that found every rank alive, one after the other
        self._repaired = False
        self._counters: NodeCounters | None = None
        if world is not None:
            self._use(world.Dup())
            return
        world = MPI.COMM_WORLD
        world.Set_errhandler(MPI.ERRORS_RETURN)
        try:
            self._use(world.Dup())
        except Exception:  # the others would wait for this rank, and MPI_Finalize for one that is lost
            where = f"rank {world.rank} on {socket.gethostname()}"
            print(f"mpies: {where} could not connect:\n{traceback.format_exc()}", file=sys.stderr, flush=True)
            world.Abort(FAILED)

    @_survivable
    def _use(self, world: Any) -> None:
        """Find out which rank of `world` is on which node, and give each node its counters."""
        self._world = world
        world.Set_errhandler(self._mpi.ERRORS_RETURN)
        self.rank, self.size = world.rank, world.size
        self._node = world.Split_type(self._mpi.COMM_TYPE_SHARED, key=self.rank)
        self.node_rank, self.node_size = self._node.rank, self._node.size
        self._leaders = world.Split(0 if self.node_rank == 0 else self._mpi.UNDEFINED, key=self.rank)
        for comm in (self._node, *([self._leaders] if self.node_rank == 0 else [])):
            comm.Set_errhandler(self._mpi.ERRORS_RETURN)
        lowest = world.allgather(self._node.bcast(self.rank))  # of each rank's node; nodes are numbered by it
        numbers = {rank: node for node, rank in enumerate(sorted(set(lowest)))}
        self.node_of = [numbers[rank] for rank in lowest]
        self.nodes, self.node = len(numbers), self.node_of[self.rank]
        pid = os.getpid()
        self._processes = world.allgather((socket.gethostname(), pid, process_start(pid)))
        if self._counters:
            self._counters.close()
        self._counters = NodeCounters(self._node)
        self._counters_made = 0

    def repair(self) -> str:
        before = self._processes
        while True:
            for comm in (self._world, self._node, *([self._leaders] if self.node_rank == 0 else [])):
                comm.Revoke()  # ranks that wait in it come here
            self._repaired = True
            try:
                self._use(self._world.Shrink())
                break
            except (RankLost, self._mpi.Exception):  # another rank died meanwhile
                continue
        lost = [process for process in before if process not in self._processes]
        now = time.monotonic()
        recent = [alarm for alarm in self._false_alarms if now - alarm < FALSE_ALARMS_WITHIN]
        self._false_alarms = [] if lost else [*recent, now]
        if len(self._false_alarms) == 3:
            raise RuntimeError(f"MPI failed three times within {FALSE_ALARMS_WITHIN} s, and no rank was lost")
        for host, pid, start in lost:
            # A frozen process counts as lost; if it woke up it would go on with a revoked communicator.
            if self.node_rank == 0 and host == socket.gethostname() and start and process_start(pid) == start:
                os.kill(pid, signal.SIGKILL)
                until = time.monotonic() + 5
                while process_start(pid) == start and time.monotonic() < until:
                    time.sleep(0.001)
        return ", ".join(f"process {pid} on {host}" for host, pid, _ in lost)

    @_survivable
    def split(self, group: int) -> MPICommunicator:
        part = self._world.Split(group, key=self.rank)
        try:
            return MPICommunicator(part)
        finally:
            part.Free()

    @_survivable
    def broadcast(self, arrays: Sequence[Array] | None) -> list[Array]:
        head = np.zeros((15, 2), np.int64)  # (type letter, length) of each vector
        if arrays is not None and self.is_root:
            head[: len(arrays)] = [(ord(array.dtype.char), len(array)) for array in arrays]
        self._world.Bcast(head, ROOT)
        letters, lengths = head[head[:, 0] > 0].T
        types = [np.dtype(chr(letter)) for letter in letters]
        ends = np.cumsum([length * kind.itemsize for length, kind in zip(lengths, types, strict=True)])
        everything = np.empty(ends[-1], np.uint8)
        parts = np.split(everything, ends[:-1])
        if arrays is not None and self.is_root:
            for part, array in zip(parts, arrays, strict=True):
                part[:] = _bytes(array)
        self._world.Bcast(everything, ROOT)
        return [part.copy().view(kind) for part, kind in zip(parts, types, strict=True)]

    @_survivable
    def broadcast_rows(self, rows: Array | None, window: Array) -> None:
        if self.node_rank == 0 and (count := self._leaders.bcast(0 if rows is None else len(rows), ROOT)):
            if self.is_root:
                window[:count] = rows
            self._leaders.Bcast(_bytes(window[:count]), ROOT)
        self._node.Barrier()

    @_survivable
    def allgather(self, rows: Array, numbers: Sequence[int] = ()) -> tuple[Array, npt.NDArray[np.int64]]:
        heads = np.empty((self.size, 1 + len(numbers)), np.int64)
        self._world.Allgather(np.array([len(rows), *numbers], np.int64), heads)
        counts = heads[:, 0]
        everything = np.empty(counts.sum(), rows.dtype)
        self._world.Allgatherv(_bytes(rows), [_bytes(everything), counts * rows.dtype.itemsize])
        return everything, heads[:, 1:]

    @_survivable
    def gather(self, rows: Array) -> Array | None:
        counts = self._world.gather(len(rows), ROOT) or [0]
        everything = np.empty(sum(counts), rows.dtype)
        receive = [_bytes(everything), np.array(counts) * rows.dtype.itemsize] if self.is_root else None
        self._world.Gatherv(_bytes(rows), receive, ROOT)
        return everything if self.is_root else None

    @_survivable
    def gather_blocks(self, block: Array, bounds: npt.NDArray[np.int64]) -> Array | None:
        widths = np.diff(bounds)
        whole = np.empty((len(block), bounds[-1]), block.dtype) if self.is_root else None
        for order, part in enumerate(block):
            receive = None if whole is None else [_bytes(whole[order]), widths * block.dtype.itemsize]
            self._world.Gatherv(_bytes(part), receive, ROOT)
        return whole

    @_survivable
    def allocate_shared(self, count: int, dtype: npt.DTypeLike, key: str = "noise.size") -> Array:
        size = int(count) * np.dtype(dtype).itemsize
        if not size:
            return np.zeros(0, dtype)
        short = lacking_shared_memory(size) if self.node_rank == 0 else 0
        refuse_lack(size, self._world.allreduce(short, self._mpi.MAX), key)
        file = open_node_file(self._node, 0)
        os.truncate(file, size)
        if self.node_rank == 0:  # what is written to later must not lack memory then
            os.posix_fallocate(file, 0, size)
        memory = mmap.mmap(file, size)
        os.close(file)
        return np.frombuffer(memory, dtype)

    @_survivable
    def open_node_file(self) -> int:
        return open_node_file(self._node, 0)

    @_survivable
    def node_barrier(self) -> None:
        self._node.Barrier()

    def work_counter(self, total: int, shares: Sequence[float] | None = None) -> WorkCounter:
        assert self._counters is not None
        start, stop = divide(total, shares or np.bincount(self.node_of).tolist())[self.node : self.node + 2]
        slot = self._counters_made % SLOTS
        self._counters_made += 1
        if self.node_rank == 0:  # no rank has used that slot for SLOTS / 2 calls
            self._counters.reset((slot + SLOTS // 2) % SLOTS)
        return WorkCounter(start, stop, functools.partial(self._counters.add, slot))

    def nonblocking_barrier(self) -> Callable[[], bool]:
        request: Any = None

        def is_over() -> bool:
            nonlocal request
            if request is None:
                request = self._call(self._world.Ibarrier)
            return bool(self._call(request.Test))

        return is_over

    @property
    def abandon_requested(self) -> bool:
        assert self._counters is not None
        return self._counters.flag

    def request_abandon(self) -> None:
        assert self._counters is not None
        self._counters.raise_flag()

    @_survivable
    def is_any(self, flag: bool) -> bool:
        found = np.array([flag], np.int32)
        self._world.Allreduce(self._mpi.IN_PLACE, found, self._mpi.MAX)
        return bool(found[0])

    @_survivable
    def first_error(self, message: str) -> str:
        return next((text for text in self._world.allgather(message) if text), "")

    def abort(self, code: int) -> None:
        flush_output()
        self._world.Abort(code)

    def finalize(self, code: int) -> int:
        try:
            self.is_any(False)  # waits for all
        except RankLost:  # the run is complete: nothing is left to be done together
            self._repaired = True
        if self._repaired:  # MPI_Finalize may wait for the dead
            flush_output()
            os._exit(code)
        self._mpi.Finalize()
        return code

    def close(self) -> None:
        if not self._repaired:  # the lost would be waited for
            for comm in (*([self._leaders] if self.node_rank == 0 else []), self._node, self._world):
                comm.Free()
        if self._counters:
            self._counters.close()
        for name in self._added:
            os.environ.pop(name, None)

    @_survivable
    def _call(self, function: Callable[[], T]) -> T:
        return function()


def _bytes(array: Array) -> npt.NDArray[np.uint8]:
    """The memory of a contiguous array as bytes, which is how all data travels."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def library_name() -> str:
    """The name and version of the MPI that mpi4py was built for."""
    from mpi4py import MPI

    return MPI.Get_library_version().splitlines()[0].split(", package")[0].rstrip(", \0")
