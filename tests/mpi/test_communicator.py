"""The verbs between ranks, each test on a real mpiexec; the serial twin must do the same on one."""

import numpy as np
import pytest

from mpies.communicator import Serial, Tickets, connect

ROW = np.dtype([("number", "i8"), ("value", "f8")])


@pytest.fixture
def comm():
    return connect()


def rows_of(count, rank):
    return np.array([(100 * rank + number, rank + 0.5) for number in range(count)], ROW)


COUNTS = [(2, 0, 3), (0, 0, 0), (0, 0, 1), (1000, 1, 0)]


@pytest.mark.mpi(3)
def test_ranks_are_numbered_and_all_are_on_this_node(comm):
    assert comm.size == 3 and comm.node_size == 3 and comm.nodes == 1 and comm.node == 0
    assert comm.allgather(np.array([(comm.rank, comm.node_rank)], ROW))[0]["number"].tolist() == [0, 1, 2]


@pytest.mark.mpi(3)
def test_broadcast_gives_every_rank_the_vectors_of_rank_0(comm):
    for dtype in (np.float32, np.float64, np.int64):
        vectors = [np.arange(5, dtype=dtype), np.zeros(0, dtype), np.full(1000, 7, dtype), np.zeros(0, dtype)]
        found = comm.broadcast(vectors if comm.rank == 0 else None)
        assert [part.tobytes() for part in found] == [vector.tobytes() for vector in vectors]
        assert all(part.dtype == dtype for part in found)


@pytest.mark.mpi(3)
def test_allgather_gives_every_rank_all_rows_in_rank_order(comm):
    for counts in COUNTS:
        found, numbers = comm.allgather(rows_of(counts[comm.rank], comm.rank))
        expected = np.concatenate([rows_of(count, rank) for rank, count in enumerate(counts)])
        assert found.dtype == ROW and found.tobytes() == expected.tobytes()
        assert numbers.shape == (3, 0)


@pytest.mark.mpi(3)
def test_the_numbers_of_each_rank_are_seen_by_all(comm):
    said = comm.allgather(rows_of(1, comm.rank), (comm.rank, 10**12 - comm.rank))[1]
    assert said.tolist() == [[rank, 10**12 - rank] for rank in range(3)]


@pytest.mark.mpi(3)
def test_gather_gives_rank_0_all_rows_and_the_others_none(comm):
    for counts in COUNTS:
        found = comm.gather(rows_of(counts[comm.rank], comm.rank))
        expected = np.concatenate([rows_of(count, rank) for rank, count in enumerate(counts)])
        assert found is None if comm.rank else found.tobytes() == expected.tobytes()


@pytest.mark.mpi(3)
def test_blocks_of_coordinates_are_put_together_on_rank_0(comm):
    for orders in (1, 3):
        for bounds in [(0, 4, 5, 11), (0, 0, 7, 7), (0, 0, 0, 1), (0, 333, 666, 1000)]:
            whole = np.arange(orders * bounds[-1], dtype=np.float32).reshape(orders, -1)
            found = comm.gather_blocks(whole[:, bounds[comm.rank] : bounds[comm.rank + 1]], np.array(bounds))
            assert found is None if comm.rank else np.array_equal(found, whole)


@pytest.mark.mpi(3)
def test_each_ticket_is_drawn_exactly_once_in_every_session(comm):
    for session, total in enumerate([10, 1000, 0, 1, 2, 57, 58, 59]):
        tickets, mine = comm.tickets(total), []
        assert tickets.left == total
        while taken := tickets.take(1 + (session + comm.rank) % 4):
            assert tickets.left <= total - len(mine) - len(taken)
            mine += taken
        assert tickets.left == 0 and not tickets.take(1)
        everyones, _ = comm.allgather(np.array([(number, 0) for number in mine], ROW))
        assert sorted(everyones["number"].tolist()) == list(range(total)), f"session {session}"


@pytest.mark.mpi(2)
def test_no_ticket_waits_for_a_rank_that_is_busy(comm):
    tickets = comm.tickets(20)
    if comm.rank == 1:  # while rank 0 is in the barrier below, and makes no progress in MPI for others
        assert [number for _ in range(20) for number in tickets.take(1)] == list(range(20))
    comm.node_barrier()
    assert not tickets.take(1)


@pytest.mark.mpi(3)
def test_all_ranks_of_a_node_see_one_shared_vector(comm):
    for dtype in (np.float32, np.int64):
        vector = comm.shared(300, dtype)
        assert vector.dtype == dtype and vector.shape == (300,)
        vector[comm.rank * 100 : (comm.rank + 1) * 100] = comm.rank + 1
        comm.node_barrier()
        assert vector.tolist() == [1] * 100 + [2] * 100 + [3] * 100
        comm.node_barrier()


@pytest.mark.mpi(3)
def test_the_first_error_of_any_rank_is_heard_by_all(comm):
    assert comm.first_error("") == ""
    assert comm.first_error(f"from {comm.rank}" if comm.rank else "") == "from 1"


@pytest.mark.mpi(2)
def test_too_little_shared_memory_is_said_and_does_not_hang(comm):
    from mpies.communicator import NotEnoughSharedMemory

    with pytest.raises(NotEnoughSharedMemory, match=r"lower noise.size"):
        comm.shared(2**44, np.float32)


def test_the_serial_twin_keeps_the_same_contract():
    comm = Serial()
    rows = rows_of(3, 0)
    assert comm.allgather(rows, (1, 7))[1].tolist() == [[1, 7]] and comm.gather(rows) is rows
    assert comm.first_error("x") == "x" and comm.shared(5, np.float32).shape == (5,)
    for total in (0, 1, 17):
        tickets, mine = comm.tickets(total), []
        while taken := tickets.take(3):
            mine += taken
        assert mine == list(range(total)) and tickets.left == 0


@pytest.mark.mpi(2)
def test_who_has_taken_some_sees_what_others_take(comm):
    tickets = comm.tickets(20)
    assert tickets.left == 20
    tickets.take(2)
    comm.node_barrier()
    assert tickets.left == 16  # before that, all: a late rank begins with as many as the first
    comm.node_barrier()
    tickets.take(8)
    comm.node_barrier()
    assert tickets.left == 0 and not tickets.take(1)


def test_tickets_stay_within_their_range_when_all_is_drawn():
    drawn = iter([0, 2, 4, 6])
    tickets = Tickets(5, 8, lambda count: next(drawn))
    assert [list(tickets.take(2)) for _ in range(4)] == [[5, 6], [7], [], []]
