"""Every number is handed out exactly once, on one rank and on several."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpies.comm import RankLost, connect
from mpies.comm.work_counter import SLOTS, WorkCounter, divide, open_node_file
from tests.support import on_one_and_three_ranks


@pytest.fixture
def comm():
    return connect()


@on_one_and_three_ranks
def test_each_number_is_taken_exactly_once_from_every_counter(comm, ranks):
    totals = [10, 1000, 0, 1, 2, 57, 58, 59, 60, 61, 62] + SLOTS * [3]  # so that counters are recycled
    for number, total in enumerate(totals):
        counter, own = comm.work_counter(total), []
        assert counter.left == total
        while taken := counter.take(1 + (number + comm.rank) % 4):
            assert counter.left <= total - len(own) - len(taken)
            own += taken
        assert counter.left == 0 and not counter.take(1)
        everyones, _ = comm.allgather(np.array(own, np.int64))
        assert sorted(everyones.tolist()) == list(range(total)), f"counter {number}"


@pytest.mark.mpi(2)
def test_taking_does_not_wait_for_a_rank_that_is_busy(comm):
    counter = comm.work_counter(20)
    if comm.rank == 1:  # while rank 0 is in the barrier below, and makes no progress in MPI for others
        assert [number for _ in range(20) for number in counter.take(1)] == list(range(20))
    comm.node_barrier()
    assert not counter.take(1)


@pytest.mark.mpi(2)
def test_a_rank_that_has_taken_sees_what_others_take(comm):
    counter = comm.work_counter(20)
    assert counter.left == 20
    counter.take(2)
    comm.node_barrier()
    assert counter.left == 16  # before its first take a rank sees all: a late one begins with as many as the first
    comm.node_barrier()
    counter.take(8)
    comm.node_barrier()
    assert counter.left == 0 and not counter.take(1)


@pytest.mark.mpi(2)
def test_a_rank_that_is_two_counters_ahead_disturbs_nobody(comm):
    """As where generations overlap: rank 1 begins later counters while rank 0 still takes from the first."""
    first = comm.work_counter(10)
    assert len(first.take(3)) == 3
    comm.node_barrier()
    if comm.rank == 1:
        assert [len(comm.work_counter(6).take(4)) for _ in range(3)] == [4, 4, 4]
    comm.node_barrier()
    if comm.rank == 0:
        assert list(first.take(9)) == [6, 7, 8, 9]
        later = [comm.work_counter(6) for _ in range(3)]
        assert [list(counter.take(4)) for counter in later] == [[4, 5]] * 3


def test_numbers_stay_within_the_range_when_all_are_taken():
    before = iter([0, 2, 4, 6])
    counter = WorkCounter(5, 8, lambda count: next(before))
    assert [list(counter.take(2)) for _ in range(4)] == [[5, 6], [7], [], []]


def test_a_file_of_the_node_is_removed_where_a_rank_is_lost_meanwhile():
    class Node:
        rank = 0

        def bcast(self, path):
            self.path = Path(path)
            assert self.path.exists()
            raise RankLost

    node = Node()
    with pytest.raises(RankLost):
        open_node_file(node, 8)
    assert not node.path.exists()


FULL = """
mount -t tmpfs -o size=8k none /dev/shm && head -c 8192 /dev/zero > /dev/shm/full || exit 77
exec "$@"
"""
COUNT = """
from mpies.comm.work_counter import NodeCounters
class Node:
    rank = 0
    def bcast(self, path): return path
    def Barrier(self): pass
counters = NodeCounters(Node())
assert [counters.add(1023, 2), counters.add(1023, 2), counters.add(0, 1)] == [0, 2, 0]
"""


def test_counters_are_elsewhere_where_dev_shm_is_full():
    if os.geteuid() or shutil.which("unshare") is None:
        pytest.skip("only root can mount a disk")
    done = subprocess.run(["unshare", "--mount", "sh", "-c", FULL, "sh", sys.executable, "-c", COUNT])
    if done.returncode == 77:
        pytest.skip("no disk can be mounted here")
    assert done.returncode == 0


@given(st.integers(0, 10_000), st.lists(st.floats(0, 1e6), min_size=1, max_size=9).filter(any))
def test_nodes_divide_all_numbers_by_their_shares(total, shares):
    bounds = divide(total, shares)
    parts = np.diff(bounds)
    assert bounds[0] == 0 and bounds[-1] == total and (parts >= 0).all()
    assert np.abs(parts - total * np.array(shares) / sum(shares)).max() <= 1 + 1e-6


def test_equal_shares_are_those_of_ranks():
    assert divide(10, [2, 2, 1]) == [0, 4, 8, 10] and divide(5, [3, 1]) == [0, 3, 5]
