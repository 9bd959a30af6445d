"""Ranks split into groups, each with a communicator of its own."""

import numpy as np

from mpies.comm import connect
from tests.support import on_one_and_three_ranks


@on_one_and_three_ranks
def test_each_group_has_its_own_ranks_counters_and_memory(ranks):
    comm = connect()
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
    comm.close()
