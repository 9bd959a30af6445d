"""Tickets in virtual time, against schedules worked out by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mpies.scaling.schedule import Schedule, told_times

ONE = Schedule()


@pytest.mark.parametrize(
    ("episodes", "nodes", "update", "expected"),
    [
        ([[1.0] * 8] * 3, [4], 0, [2, 4, 6]),  # two each
        ([[1.0] * 9] * 3, [4], 0.5, [3.5, 7, 10.5]),  # one has a third, and the others wait
        ([[1.0] * 9], [2, 2], 0, [3]),  # 4 tickets to one node, 5 to the other
        ([[3.0, 1, 1, 1]], [2], 0, [3]),  # whoever is free takes the next
        ([[3.0, 1], [1.0, 1]], [3], 0, [3, 4]),  # more ranks than tickets
    ],
)
def test_schedules_worked_out_by_hand(episodes, nodes, update, expected):
    assert told_times(episodes, nodes, ONE, update) == pytest.approx(expected)


def test_a_static_split_waits_for_whoever_has_the_long_ones():
    episodes = [[3.0, 3, 1, 1]]
    assert told_times(episodes, [2], Schedule(static=True), 0) == pytest.approx([6])
    assert told_times(episodes, [2], ONE, 0) == pytest.approx([4])


def test_overlapping_ranks_begin_the_next_generation_and_wait_for_the_one_after():
    # Rank 1 is free at 1: it plays both of generation 1 until 3, when rank 0 ends generation 0.  Generation 2 is begun
    # from what 0 brought, and ends at 4 where alone it would end at 5.
    episodes = [[3.0, 1], [1.0, 1], [1.0, 1]]
    assert told_times(episodes, [2], ONE, 0, overlap=1) == pytest.approx([3, 3, 4])
    assert told_times(episodes, [2], ONE, 0, overlap=0) == pytest.approx([3, 4, 5])
    # Generation 2 may not begin before the update of generation 0, half a second after its end.
    assert told_times(episodes, [2], ONE, 0.5, overlap=1) == pytest.approx([3.5, 4, 5.0])


def test_lanes_share_a_rank():
    # Side by side, 1 and 3 end at 2 and at 4.
    assert told_times([[1.0, 3]], [1], Schedule(slots=2, largest=2, low_water=1), 0) == pytest.approx([4])
    # Two ranks that begin two each at once: nothing is left for the one that is through at 2.
    eager = Schedule(slots=2, largest=2, low_water=1)
    assert told_times([[1.0, 1, 3, 3]], [2], eager, 0) == pytest.approx([6])
    assert told_times([[1.0, 1, 3, 3]], [2], ONE, 0) == pytest.approx([4])


def test_a_rank_spends_its_share_of_the_update():
    told = told_times([[1.0] * 2] * 20, [2], ONE, 0.1, overlap=1, share=0.1)
    assert np.diff(told)[5:15] == pytest.approx(1.1, rel=0.01)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.floats(0.1, 5), min_size=1, max_size=30), min_size=1, max_size=4),
    st.lists(st.integers(1, 4), min_size=1, max_size=3),
    st.integers(0, 2),
    st.sampled_from([ONE, Schedule(static=True), Schedule(4, 1, 4, 3), Schedule(3, 2, 8, 1)]),
)
def test_no_schedule_beats_the_work_or_the_longest_episode(episodes, nodes, overlap, schedule):
    told = told_times(episodes, nodes, schedule, 0.25, overlap)
    assert len(told) == len(episodes) and np.all(np.diff(told) > 0) and np.isfinite(told).all()
    assert told[-1] >= sum(map(sum, episodes)) / sum(nodes)
    assert told[0] >= max(episodes[0]) + 0.25 - 1e-6
    assert told[-1] <= sum(map(sum, episodes)) + 0.25 * len(episodes) + 1e-6
