"""How the ranks of a job are divided among trials."""

import pytest

from mpies.sweeps.rank_groups import choose_ranks_per_run, equal_groups, group_sizes


def test_groups_that_share_no_node_have_these_sizes():
    assert group_sizes(64, 8) == [1, 2, 4, 8, 16, 32, 64]
    assert group_sizes(100, 36) == [1, 2, 3, 4, 6, 9, 12, 18, 36, 72]
    assert group_sizes(3, 8) == [1, 2]


@pytest.mark.parametrize(
    ("trials", "ranks", "node_ranks", "expected"),
    [
        (40, 8, 8, 1),  # a rank for each of eight trials
        (8, 8, 8, 1),
        (4, 8, 8, 2),
        (3, 8, 8, 4),  # groups that share no node
        (1, 8, 8, 8),
        (2, 40, 4, 32),  # five whole nodes are no power of two
    ],
)
def test_ranks_of_a_run_leave_none_idle(trials, ranks, node_ranks, expected):
    assert choose_ranks_per_run(trials, ranks, node_ranks) == expected


def test_groups_share_no_node_where_they_fit_into_one():
    assert equal_groups([6, 6], 4) == [4, 2, 4, 2]
    assert equal_groups([4, 4], 2) == [2, 2, 2, 2]
    assert equal_groups([4, 4], 8) == [8]
    assert equal_groups([4, 4, 4], 8) == [8, 4]
