"""A mistake on one rank is raised on all of them, with the same message."""

import pytest

from mpies.comm import connect
from mpies.comm.together import CollectiveError, do_together
from mpies.core.errors import ConfigError
from tests.support import on_one_and_three_ranks


@on_one_and_three_ranks
def test_a_users_mistake_on_one_rank_is_raised_on_all_and_another_error_at_once(ranks):
    comm = connect()

    def step(error=None):
        if error and comm.rank == ranks - 1:
            raise error
        return 10 * comm.rank

    assert do_together(comm, step) == 10 * comm.rank
    with pytest.raises(CollectiveError, match=f"from {ranks - 1}"):
        do_together(comm, lambda: step(ConfigError(f"from {comm.rank}")))
    assert do_together(comm, step) == 10 * comm.rank  # nobody waits for a rank that raised
    with pytest.raises(ZeroDivisionError):
        do_together(comm, lambda: 1 // 0)
