"""A mistake on one rank is raised on all of them, with the same message."""

import pytest

from mpies.comm import connect
from mpies.comm.together import CollectiveError, do_together
from mpies.core.errors import ConfigError
from tests.support import on_one_and_three_ranks


def raise_on(rank, failing, error):
    if rank in failing:
        raise error
    return rank


@on_one_and_three_ranks
def test_each_rank_gets_the_result_of_its_own_step(ranks):
    comm = connect()
    assert do_together(comm, lambda: 10 * comm.rank) == 10 * comm.rank


@on_one_and_three_ranks
def test_a_users_mistake_on_the_last_rank_is_raised_on_all(ranks):
    comm, last = connect(), [ranks - 1]
    with pytest.raises(CollectiveError, match=f"from {ranks - 1}"):
        do_together(comm, lambda: raise_on(comm.rank, last, ConfigError(f"from {comm.rank}")))
    assert do_together(comm, lambda: 1) == 1  # nobody waits for a rank that raised


@on_one_and_three_ranks
def test_another_error_is_not_a_users_mistake_and_is_raised_at_once(ranks):
    comm = connect()
    with pytest.raises(ZeroDivisionError):
        do_together(comm, lambda: 1 // 0)
