"""One contract for all communicators: each test runs on Serial and on three ranks of a real mpiexec."""

import time

import numpy as np
import pytest

from mpies.comm import connect
from mpies.comm.mpi import MPICommunicator
from mpies.comm.serial import Serial
from mpies.comm.together import CollectiveError, do_together
from mpies.core.errors import ConfigError, NotEnoughSharedMemory
from tests.support import on_one_and_three_ranks

ROW = np.dtype([("number", "i8"), ("value", "f8")])
pytestmark = on_one_and_three_ranks
COUNTS = [(2, 0, 3), (0, 0, 0), (0, 0, 1), (1000, 1, 0)]  # rows of each rank


@pytest.fixture
def comm(ranks):
    comm = connect()
    if comm.size == ranks:
        assert type(comm) is (Serial if ranks == 1 else MPICommunicator)
    return comm


def rows_of(count, rank):
    return np.array([(100 * rank + number, rank + 0.5) for number in range(count)], ROW)


def test_ranks_are_numbered_and_all_are_on_this_node(comm, ranks):
    assert comm.size == comm.node_size == ranks and comm.nodes == 1 and comm.node == 0
    assert comm.is_root == (comm.rank == 0)
    own = np.array([(comm.rank, comm.node_rank)], ROW)
    assert comm.allgather(own)[0].tolist() == [(rank, rank) for rank in range(ranks)]


def test_broadcast_gives_every_rank_the_vectors_or_the_number_of_rank_0(comm, ranks):
    for vectors in (
        *([np.arange(5, dtype=dtype), np.zeros(0, dtype), np.full(1000, 7, dtype)] for dtype in "fdq"),
        [np.full(place, place, "fqB"[place % 3]) for place in range(15)],  # as many as there may be, of several types
    ):
        other = [np.ones(3)]  # what other ranks give is ignored
        received = comm.broadcast(vectors if comm.is_root else other if comm.rank == 1 else None)
        assert [(part.dtype, part.tolist()) for part in received] == [(v.dtype, v.tolist()) for v in vectors]
    assert comm.broadcast_int(2**40 if comm.is_root else 5) == 2**40
    assert comm.broadcast_int(None if comm.is_root else 5) == 0
    assert comm.broadcast_int(True if comm.is_root else None) == 1


def test_broadcast_rows_fills_the_first_rows_of_the_shared_window(comm, ranks):
    window = comm.allocate_shared(5 * 4, np.float32).reshape(5, 4)
    window[:] = -1
    comm.node_barrier()
    rows = np.arange(12, dtype=np.float32).reshape(3, 4)
    comm.broadcast_rows(rows if comm.is_root else None, window)
    assert np.array_equal(window[:3], rows) and (window[3:] == -1).all()
    comm.node_barrier()
    comm.broadcast_rows(None, window)
    assert np.array_equal(window[:3], rows)


def test_rows_are_gathered_in_rank_order_on_all_ranks_or_on_rank_0(comm, ranks):
    for counts in COUNTS:
        own = rows_of(counts[comm.rank], comm.rank)
        expected = np.concatenate([rows_of(counts[rank], rank) for rank in range(ranks)])
        received, numbers = comm.allgather(own)
        assert received.dtype == ROW and received.tobytes() == expected.tobytes() and numbers.shape == (ranks, 0)
        received = comm.gather(own)
        assert (received is None) == (not comm.is_root)
        assert received is None or (received.dtype == ROW and received.tobytes() == expected.tobytes())
    _, numbers = comm.allgather(own, (comm.rank, 10**12 - comm.rank))
    assert numbers.dtype == np.int64 and numbers.tolist() == [[rank, 10**12 - rank] for rank in range(ranks)]


def test_gather_blocks_puts_the_coordinates_together_on_rank_0(comm, ranks):
    for orders in (1, 3):
        for bounds in [(0, 4, 5, 11), (0, 0, 7, 7), (0, 0, 0, 1), (0, 333, 666, 1000)]:
            bounds = np.array([0, bounds[-1]] if ranks == 1 else bounds)
            complete = np.arange(orders * bounds[-1], dtype=np.float32).reshape(orders, -1)
            received = comm.gather_blocks(complete[:, bounds[comm.rank] : bounds[comm.rank + 1]], bounds)
            assert (received is None) == (not comm.is_root)
            assert received is None or (received.dtype == np.float32 and np.array_equal(received, complete))


def test_all_ranks_of_a_node_share_one_vector_or_are_all_told_that_it_is_too_large(comm, ranks):
    for dtype in (np.float32, np.int64):
        vector = comm.allocate_shared(100 * ranks, dtype)
        assert vector.dtype == dtype and vector.shape == (100 * ranks,)
        vector[comm.rank * 100 : (comm.rank + 1) * 100] = comm.rank + 1
        comm.node_barrier()
        assert vector.tolist() == [rank + 1 for rank in range(ranks) for _ in range(100)]
        comm.node_barrier()
    assert comm.allocate_shared(0, np.float32).shape == (0,)
    with pytest.raises(NotEnoughSharedMemory, match=r"lower noise.size"):
        comm.allocate_shared(2**50, np.float32)
    with pytest.raises(NotEnoughSharedMemory, match=r"lower solver\.population"):
        comm.allocate_shared(2**50, np.float32, "solver.population")


def test_a_flag_of_any_rank_and_the_error_of_the_lowest_reach_all(comm, ranks):
    assert not comm.is_any(False)
    assert comm.is_any(comm.rank == ranks - 1) and comm.is_any(True)
    assert comm.first_error("") == ""
    assert comm.first_error(f"from {comm.rank}") == "from 0"
    lowest = min(1, ranks - 1)
    assert comm.first_error(f"from {comm.rank}" if comm.rank >= lowest else "") == f"from {lowest}"


def test_a_nonblocking_barrier_is_over_when_all_ranks_have_entered_it(comm, ranks):
    is_over, entered = comm.nonblocking_barrier(), comm.allocate_shared(ranks, np.int64)
    entered[comm.rank] = 0
    comm.node_barrier()
    if comm.rank == ranks - 1:
        time.sleep(0.2)  # while the others ask again and again
    entered[comm.rank] = 1
    while not is_over():
        pass
    assert entered.all()
    assert is_over() and is_over()


def test_one_rank_asks_all_of_its_node_to_abandon(comm, ranks):
    assert not comm.abandon_requested
    comm.node_barrier()
    if comm.rank == ranks - 1:
        comm.request_abandon()
    comm.node_barrier()
    assert comm.abandon_requested


def test_a_users_mistake_on_one_rank_is_raised_on_all_and_another_error_at_once(comm, ranks):
    def step(error=None):
        if error and comm.rank == ranks - 1:
            raise error
        return 10 * comm.rank

    with pytest.raises(CollectiveError, match=f"from {ranks - 1}"):
        do_together(comm, lambda: step(ConfigError(f"from {comm.rank}")))
    assert do_together(comm, step) == 10 * comm.rank  # nobody waits for a rank that raised
    with pytest.raises(ZeroDivisionError):
        do_together(comm, lambda: 1 // 0)


def test_each_group_has_its_own_ranks_counters_and_memory(comm, ranks):
    group = comm.split(comm.rank // 2)  # ranks 0 and 1, and rank 2 alone
    expected = 1 if ranks == 1 or comm.rank == 2 else 2
    assert group.size == expected and group.rank == comm.rank % 2
    assert group.broadcast_int(comm.rank) == 2 * (comm.rank // 2)
    taken = group.work_counter(100).take(100)
    assert group.allgather(np.array([len(taken)]))[0].sum() == 100
    shared = group.allocate_shared(4, np.int64)
    if group.is_root:
        shared[:] = comm.rank
    group.node_barrier()
    assert shared.tolist() == [2 * (comm.rank // 2)] * 4
    group.close()
    assert comm.allgather(np.array([comm.rank]))[0].tolist() == list(range(ranks))


def test_finalize_returns_the_exit_code(comm, ranks):
    comm.allocate_shared(10, np.float32)
    assert comm.finalize(75) == 75
