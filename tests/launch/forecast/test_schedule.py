"""Episodes played in virtual time, against schedules worked out by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mpies.launch.forecast.constants import Workload
from mpies.launch.forecast.schedule import completion_times


def taking(**bounds):
    return Workload(parameters=1, rows=1, episodes=1, seconds=1, **bounds)


ONE = taking()


@pytest.mark.parametrize(
    ("left", "ranks", "schedule", "expected"),
    [
        (100, 4, taking(largest=1000), 25),
        (101, 4, taking(largest=1000), 26),
        (100, 4, taking(largest=1000, divisor=2), 13),
        (100, 4, taking(largest=8), 8),
        (3, 4, taking(smallest=2, largest=8), 2),
        (0, 4, taking(), 1),
    ],
)
def test_a_rank_takes_a_part_of_its_fair_share_within_bounds(left, ranks, schedule, expected):
    assert schedule.count_to_take(left, ranks) == expected


LATE = [[3.0, 1], [1.0, 1], [1.0, 1]]
PAIRS = taking(largest=2, low_water=1)


@pytest.mark.parametrize(
    ("episodes", "nodes", "update", "overlap", "schedule", "expected"),
    [
        ([[1.0] * 8] * 3, [4], 0, 0, ONE, [2, 4, 6]),  # two each
        ([[1.0] * 9] * 3, [4], 0.5, 0, ONE, [3.5, 7, 10.5]),  # one plays a third, and the others wait
        ([[1.0] * 9], [2, 2], 0, 0, ONE, [3]),  # 4 episodes to one node, 5 to the other
        ([[3.0, 3, 1, 1]], [2], 0, 0, ONE, [4]),
        ([[3.0, 3, 1, 1]], [1, 1], 0, 0, ONE, [6]),  # nodes share no counter
        ([[3.0, 1, 1, 1]], [2], 0, 0, ONE, [3]),  # a rank that is free takes the next one
        ([[3.0, 1], [1.0, 1]], [3], 0, 0, ONE, [3, 4]),  # more ranks than episodes
        # Rank 1 is free at 1: it plays both of generation 1 until 3, when rank 0 ends generation 0.  Generation 2
        # starts from the results of 0, and ends at 4.
        (LATE, [2], 0, 1, ONE, [3, 3, 4]),
        (LATE, [2], 0, 0, ONE, [3, 4, 5]),
        # Generation 2 may not begin before the update of generation 0, half a second after its end.
        (LATE, [2], 0.5, 1, ONE, [3.5, 4, 5]),
        ([[1.0, 3]], [1], 0, 0, PAIRS, [4]),  # side by side, they end at 2 and at 4
        ([[1.0, 1, 3, 3]], [2], 0, 0, PAIRS, [6]),  # nothing is left for the one that is free at 2
        ([[1.0, 1, 3, 3]], [2], 0, 0, ONE, [4]),
        # Both ranks take four at once, as if all were left; the second has 1 + 1 + 5 + 1 seconds to play.
        ([[1.0, 1, 1, 1, 1, 1, 5, 1]], [2], 0, 0, taking(largest=8), [8]),
        # Later it is a part of what is left: at 4, rank 0 takes two of four, and each rank one more when it is free.
        ([[1.0] * 4 + [2.0] * 4 + [3.0] * 4], [2], 0, 0, taking(largest=4), [13]),
    ],
)
def test_schedules_worked_out_by_hand(episodes, nodes, update, overlap, schedule, expected):
    assert completion_times(episodes, nodes, schedule, update, overlap) == pytest.approx(expected)


def test_nodes_of_different_speed_end_together_from_the_second_generation_on():
    ends = completion_times([[1.0] * 250] * 3, [10, 10, 10], ONE, 0, node_speeds=[1, 1, 0.5])
    assert np.diff([0, *ends]) == pytest.approx([18, 11, 11], abs=1)  # 250 / 3 each, later 100, 100 and 50
    assert np.diff(ends).max() < 250 / 25 / 0.9
    alike = completion_times([[1.0] * 250] * 3, [10, 10, 10], ONE, 0, node_speeds=[0.5])
    assert alike == pytest.approx([18, 36, 54])


def test_a_rank_spends_its_share_of_the_update():
    ends = completion_times([[1.0] * 2] * 20, [2], ONE, 0.1, overlap=1, share=0.1)
    assert np.diff(ends)[5:15] == pytest.approx(1.1, rel=0.01)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.floats(0.1, 5), min_size=1, max_size=30), min_size=1, max_size=4),
    st.lists(st.integers(1, 4), min_size=1, max_size=3),
    st.integers(0, 2),
    st.sampled_from([ONE, taking(largest=4, low_water=3), taking(smallest=2, largest=8, low_water=1)]),
)
def test_no_schedule_beats_the_sum_of_all_episodes_or_the_longest_one(episodes, nodes, overlap, schedule):
    ends = completion_times(episodes, nodes, schedule, 0.25, overlap)
    assert len(ends) == len(episodes) and np.all(np.diff(ends) > 0) and np.isfinite(ends).all()
    assert ends[-1] >= sum(map(sum, episodes)) / sum(nodes)
    assert ends[0] >= max(episodes[0]) + 0.25 - 1e-6
    assert ends[-1] <= sum(map(sum, episodes)) + 0.25 * len(episodes) + 1e-6
