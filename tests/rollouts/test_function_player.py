"""Functions of the parameters as rollouts of one step."""

import warnings
from dataclasses import replace

import numpy as np

from mpies.envs.functions import FunctionEnv
from mpies.rollouts.function_player import FunctionPlayer
from mpies.rollouts.queue import PlayingRanks, RolloutQueue
from tests.rollouts.fakes import Calls, make_batch


def make_player(function):
    return FunctionPlayer(FunctionEnv("own", 3, np.zeros(3), function))


def test_every_value_is_that_of_its_members_parameters():
    queue = RolloutQueue(make_batch([0] * 20, payload_size=1, behaviour_size=3))
    player = make_player(lambda x: 1 - x.sum())
    player.play([queue], ranks=PlayingRanks(2))
    assert queue.is_exhausted and not queue.failures and player.played == 20
    numbers = np.arange(20.0)
    assert queue.results["total"].tolist() == (1 - 3 * numbers).tolist()
    assert queue.results["signs"].tolist() == [1.0] + [-1.0] * 19 and set(queue.results["steps"]) == {1}
    assert queue.results["payload"][:, 0].tolist() == (10 * numbers).tolist()
    assert queue.results["behaviour"].tolist() == [[number] * 3 for number in numbers]


def test_a_function_that_raises_or_is_not_finite_fails_its_member_alone():
    def function(x):
        if x[0] == 2:
            raise ValueError("not\n  today")
        return {5: np.nan, 7: -np.inf, 8: np.inf}.get(int(x[0]), 1.0)

    queue = RolloutQueue(make_batch([0] * 9))
    make_player(function).play([queue])
    assert queue.failures == {2: "ValueError: not today", 5: "value nan", 7: "value -inf", 8: "value inf"}
    np.testing.assert_array_equal(queue.results["total"], [np.nan if n in (2, 5, 7, 8) else 1 for n in range(9)])


class Overflowing:
    """Parameters too large for float32."""

    def write(self, rollout, out):
        np.multiply(np.float32(3e38), np.float32([1, 2, 3]), out=out)
        return ()


def test_parameters_that_overflow_cause_no_warning_and_those_of_the_function_are_seen():
    queue = RolloutQueue(replace(make_batch([0, 0]), write=Overflowing().write))
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        make_player(lambda x: float(np.float32(x[0]) * np.float32(100))).play([queue])
    assert set(queue.failures.values()) == {"value inf"}
    assert {str(warning.message) for warning in seen} == {"overflow encountered in scalar multiply"}


def test_an_abandoned_queue_stops_before_the_next_evaluation_and_takes_nothing_more():
    calls, queue, other = [], RolloutQueue(make_batch([0] * 100)), RolloutQueue(make_batch([0] * 100))
    ranks = PlayingRanks(5, must_abandon=lambda: len(calls) == 12)
    make_player(lambda x: calls.append(x) or 0.0).play([queue, other], ranks=ranks)
    assert len(calls) == queue.is_finished.sum() == 12 and not other.is_finished.any()
    assert queue.in_flight == 0 and 60 < queue.counter.left < 88


def test_a_rank_that_runs_dry_goes_on_with_the_next_queue_until_the_others_are_done():
    first, second = RolloutQueue(make_batch([0] * 4)), RolloutQueue(make_batch([0] * 100))
    make_player(lambda x: 0.0).play([first], second, PlayingRanks(2, Calls(3)))
    assert first.is_exhausted and second.is_finished.sum() == 3
