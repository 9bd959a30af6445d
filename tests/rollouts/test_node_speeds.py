"""Shares of nodes follow their speeds, and nothing else."""

import numpy as np
import pytest

from mpies.rollouts.node_speeds import ALIKE, MOST, RECENT, WAIT, NodeSpeeds

NODE_OF = [0, 0, 1, 2, 1, 2]  # as where a launcher deals out ranks in turn
EQUAL = [2, 2, 2]


def measured(*generations, sizes=EQUAL):
    """Speeds after generations, each of which has the steps per second of a rank of each node."""
    known, seconds = NodeSpeeds(), np.arange(3, 9)
    for speeds in generations:
        steps = 1000 * np.array(speeds)[NODE_OF] * seconds
        known.measure(NODE_OF, sizes, seconds * 10**9, steps.astype(np.int64))
    return known


def test_before_anything_is_measured_shares_go_by_ranks():
    assert NodeSpeeds().shares(100) is None
    assert measured([0, 0, 0]).shares(100) is None and measured([1, 1, 1]).shares(0) is None


def test_noise_on_equal_nodes_changes_nothing():
    known = NodeSpeeds()
    for row in np.random.default_rng(3).uniform(1 - ALIKE / 2, 1 + ALIKE / 2, (20, 3)):
        known._speeds.extend(measured(row)._speeds)
        known._sizes = EQUAL
        assert known.shares(99) == pytest.approx([33] * 3)
    assert measured([2, 2, 2], sizes=[1, 2, 1]).shares(100) == pytest.approx([25, 50, 25])  # of ranks that play


@pytest.mark.parametrize("slow", [0.5, 0.25])
def test_all_nodes_end_together(slow):
    shares = measured([1, slow, 1]).shares(90)
    assert sum(shares) == pytest.approx(90)
    ends = [(share / 2 + WAIT) / speed for share, speed in zip(shares, [1, slow, 1], strict=True)]
    assert ends == pytest.approx([ends[0]] * 3)
    assert shares[1] < slow * shares[0]


def test_a_node_that_would_hold_up_the_others_gets_nothing_until_it_is_forgotten():
    known = measured([1, 0.1, 1])
    assert known.shares(6)[1] == 0 and known.shares(600)[1] > 0
    for _ in range(RECENT):
        assert known.shares(6)[1] == 0
        known._speeds.extend(measured([1, 0, 1])._speeds)  # it plays nothing
    assert known.shares(6) == pytest.approx([2, 2, 2])


def test_one_disturbed_generation_changes_nothing_and_a_lasting_one_does():
    assert measured(*[[1, 1, 1]] * 3, [1, 0.1, 1]).shares(90) == pytest.approx([30] * 3)
    lasting = measured(*[[1, 1, 1]] * 9, *[[1, 0.5, 1]] * 3)
    assert lasting.shares(90) == pytest.approx(measured([1, 0.5, 1]).shares(90))


def test_longer_episodes_change_nothing_and_differences_are_bounded():
    """What counts is how fast a node is beside the others, in steps."""
    assert measured([1, 0.5, 1], [3, 1.5, 3]).shares(90) == pytest.approx(measured([1, 0.5, 1]).shares(90))
    assert measured([1, 0.01, 1]).shares(90) == measured([1, 1 / MOST, 1]).shares(90)
