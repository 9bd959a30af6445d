"""Which rollouts the players of episodes and of functions play, and when.

test_episodes.py has the bits of real environments.
"""

import warnings
from dataclasses import replace

import numpy as np
import pytest

from mpies import kernels
from mpies.comm.stopwatch import stopwatch
from mpies.comm.work_counter import WorkCounter, count_alone
from mpies.envs.functions import FunctionEnv
from mpies.rollouts.function_player import FunctionPlayer
from mpies.rollouts.player import EpisodePlayer
from mpies.rollouts.queue import ALONE, PlayingRanks, RolloutQueue
from tests.rollouts.fakes import POLICY, CountingBatch, CountingEnv, make_batch, total_of, true_after

LENGTHS = [3, 9, 1, 4, 2, 30, 5, 1, 1, 8, 6, 2]


def make_player(env=None, **values):
    return EpisodePlayer(env or CountingEnv(), POLICY, 5.0, **values)


def play(batch, env=None, ranks=ALONE, **values):
    """The RolloutQueue of a batch of episodes after it was played."""
    queue = RolloutQueue(batch)
    make_player(env, **values).play([queue], ranks=ranks)
    return queue


@pytest.mark.parametrize("shape", [{}, {"slots": 1, "largest": 1, "low_water": 0}, {"slots": 20, "largest": 20}])
def test_every_rollout_is_played_once_to_its_end(shape):
    env = CountingEnv(**shape)
    queue, player = RolloutQueue(make_batch(LENGTHS, payload_size=1)), make_player(env)
    player.play([queue])
    assert queue.is_exhausted and queue.is_finished.all() and not queue.failures
    assert queue.results["total"].tolist() == [total_of(length) for length in LENGTHS]
    assert queue.results["steps"].tolist() == LENGTHS
    assert queue.results["payload"][:, 0].tolist() == [10.0 * rollout for rollout in range(len(LENGTHS))]
    assert env.steps_played == player.played == sum(LENGTHS)
    assert all(batch.is_closed for batch in env.batches)


def test_episodes_in_the_last_slots_that_end_together_leave_the_others_in_place():
    for lengths in ([1, 5, 1], [2, 2, 2, 7, 2, 9, 2], [3, 4, 3, 3]):
        queue = play(make_batch(lengths), CountingEnv(slots=9, largest=9))
        assert queue.is_finished.all() and queue.results["steps"].tolist() == lengths


def test_signs_of_rewards_are_summed_where_they_are_counted():
    signs = [-(-length // 2) - length // 2 for length in LENGTHS]  # rewards change their sign with each step
    for counts, expected in ((True, signs), (False, [0] * len(LENGTHS))):
        assert play(make_batch(LENGTHS), counts_signs=counts).results["signs"].tolist() == expected


@pytest.mark.parametrize("is_compiled", [True, False])
def test_an_episode_ends_at_the_limit(is_compiled, monkeypatch):
    if not is_compiled:
        monkeypatch.setattr(kernels, "compiled", None)
    env = CountingEnv()
    queue = play(make_batch(LENGTHS, limit=4, is_training=True), env)
    played = [min(length, 4) for length in LENGTHS]
    assert queue.results["steps"].tolist() == played and env.steps_played == sum(played)
    assert queue.results["total"].tolist() == [total_of(steps) for steps in played]
    assert set(env.is_training) == {True}


def test_sampled_rollouts_sum_what_was_seen_before_each_step():
    queue = play(make_batch(LENGTHS, sampled=np.arange(len(LENGTHS)) % 3 == 1))
    sums = np.sort(queue.observations(1), order="rollout")
    assert sums["rollout"].tolist() == [1, 4, 7, 10]
    for record in sums:
        length = LENGTHS[record["rollout"]]
        seen = np.arange(length) + length  # the first observation is the seed, which is the length
        assert (record["count"], record["total"], record["squares"]) == (length, seen.sum(), (seen**2).sum())


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_an_episode_with_an_observation_that_is_not_finite_feeds_no_statistics(value, monkeypatch):
    receive = CountingBatch.receive

    def receive_spoilt(batch):
        observations, rewards, over = receive(batch)
        observations[np.array(batch.seeds)[batch.places] == 4] = value
        return observations, rewards, over

    monkeypatch.setattr(CountingBatch, "receive", receive_spoilt)
    queue = play(make_batch([3, 4, 2], sampled=np.ones(3, bool)))
    assert queue.is_finished.all() and not queue.failures
    assert sorted(queue.observations(1)["rollout"].tolist()) == [0, 2]


def test_batches_are_a_part_of_the_fair_share_between_the_bounds():
    env = CountingEnv(slots=100, smallest=2, largest=10, low_water=0, divisor=2)
    play(make_batch([1] * 40), env, PlayingRanks(3))
    # 40 left: ceil(40 / 6) = 7; then 33: 6, 27: 5, 22: 4, 18: 3, 15: 3, 12: 2 and no fewer than `smallest`.
    assert [len(batch.seeds) for batch in env.batches] == [7, 6, 5, 4, 3, 3, 2, 2, 2, 2, 2, 2]


def test_no_more_is_taken_while_enough_is_in_flight():
    env = CountingEnv(slots=8, largest=2, low_water=3)
    play(make_batch([5] * 20), env, PlayingRanks(must_abandon=true_after(1)))
    assert [len(batch.seeds) for batch in env.batches] == [2, 2]  # four are in flight, more than low_water


def test_two_ranks_share_the_rollouts_of_one_counter():
    count, add = len(LENGTHS), count_alone()
    first, second = (RolloutQueue(make_batch(LENGTHS), counter=WorkCounter(0, count, add)) for _ in range(2))
    one_by_one = make_player(CountingEnv(slots=2, largest=1, low_water=0))
    one_by_one.play([first], ranks=PlayingRanks(must_abandon=true_after(6)))
    taken = count - first.counter.left
    assert 0 < taken < count
    make_player().play([second])  # it finds what the first has left
    assert np.flatnonzero(second.is_finished).tolist() == list(range(taken, count))


def test_a_rank_that_runs_dry_goes_on_with_the_next_queue_until_the_others_are_done():
    env = CountingEnv(slots=2, largest=1, low_water=1)
    player = make_player(env)
    first, second = RolloutQueue(make_batch([2, 2])), RolloutQueue(make_batch([50, 7, 3, 4]))
    others_are_done = true_after(9)
    player.play([first], second, PlayingRanks(2, others_are_done))
    assert first.is_exhausted and others_are_done()
    assert not second.is_exhausted and second.in_flight == 2  # its unfinished episodes wait
    steps = env.steps_played
    assert steps < 4 + 64
    player.play([second])  # and go on from where they were
    assert second.results["steps"].tolist() == [50, 7, 3, 4]
    assert second.results["total"].tolist() == [total_of(length) for length in (50, 7, 3, 4)]
    assert env.steps_played == 4 + 64


def test_without_others_to_wait_for_the_next_queue_is_not_begun():
    env, first, second = CountingEnv(), RolloutQueue(make_batch([2])), RolloutQueue(make_batch([5]))
    make_player(env).play([first], prefetch=second)
    assert first.is_exhausted and not second.is_finished.any()


def test_an_abandoned_queue_has_nothing_in_flight_and_can_be_played_again():
    env = CountingEnv(slots=3, largest=3)
    player, queue = make_player(env), RolloutQueue(make_batch([40] * 6))
    player.play([queue], ranks=PlayingRanks(must_abandon=true_after(5)))
    assert queue.in_flight == 0 and not queue.is_finished.any() and player.active == 0
    assert all(batch.is_closed for batch in env.batches)
    other = RolloutQueue(make_batch(LENGTHS))
    player.play([other])
    assert other.results["total"].tolist() == [total_of(length) for length in LENGTHS]


@pytest.fixture
def pass_time(monkeypatch):
    """pass_time(seconds): ranks that let so many pass with each step; the clock begins at 100."""
    now = [100.0]
    monkeypatch.setattr(stopwatch, "now", lambda: now[0])
    return lambda seconds: PlayingRanks(must_abandon=lambda: now.__setitem__(0, now[0] + seconds))


def test_time_between_two_calls_does_not_count_towards_the_timeout(pass_time):
    player = make_player(timeout=10.0)
    first, second = RolloutQueue(make_batch([1])), RolloutQueue(make_batch([30, 500]))
    player.play([first], second, PlayingRanks(2, true_after(8)))
    assert second.in_flight == 2
    pass_time(60).must_abandon()  # the update
    player.play([second], ranks=pass_time(0.1))
    assert second.failures == {1: "it took more than 10 s"} and second.is_finished.all()
    assert 90 < second.results["steps"][1] < 120


@pytest.mark.parametrize(
    ("lengths", "seconds", "slots", "failed"),
    [
        ([5, 500, 7], 0.1, 4, [1]),
        ([1], 11, 4, [0]),  # it ends with the step that took too long
        ([20, 5, 97], 0.1, 2, []),  # the third begins after half a second, moves into the first slot, and takes 9.7 s
    ],
)
def test_an_episode_that_outlasts_its_timeout_fails_alone(lengths, seconds, slots, failed, pass_time):
    queue = play(make_batch(lengths), CountingEnv(slots, largest=1), pass_time(seconds), timeout=10.0)
    assert queue.failures == dict.fromkeys(failed, "it took more than 10 s")
    assert np.flatnonzero(np.isnan(queue.results["total"])).tolist() == failed
    for steps, length in zip(queue.results["steps"], lengths, strict=True):
        assert 90 < steps < 110 if length == 500 else steps == length


def function_player(function):
    return FunctionPlayer(FunctionEnv("own", 3, np.zeros(3), function))


def test_every_value_of_a_function_is_that_of_its_members_parameters():
    queue = RolloutQueue(make_batch([0] * 20, payload_size=1, behaviour_size=3))
    player = function_player(lambda x: 1 - x.sum())
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
    function_player(function).play([queue])
    assert queue.failures == {2: "ValueError: not today", 5: "value nan", 7: "value -inf", 8: "value inf"}
    np.testing.assert_array_equal(queue.results["total"], [np.nan if n in (2, 5, 7, 8) else 1 for n in range(9)])


def test_parameters_that_overflow_cause_no_warning_and_those_of_the_function_are_seen():
    def write(rollout, out):  # too large for float32
        np.multiply(np.float32(3e38), np.float32([1, 2, 3]), out=out)
        return ()

    queue = RolloutQueue(replace(make_batch([0, 0]), write=write))
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        function_player(lambda x: float(np.float32(x[0]) * np.float32(100))).play([queue])
    assert set(queue.failures.values()) == {"value inf"}
    assert {str(warning.message) for warning in seen} == {"overflow encountered in scalar multiply"}


def test_an_abandoned_queue_of_a_function_stops_before_the_next_evaluation_and_takes_nothing_more():
    calls, queue, other = [], RolloutQueue(make_batch([0] * 100)), RolloutQueue(make_batch([0] * 100))
    ranks = PlayingRanks(5, must_abandon=lambda: len(calls) == 12)
    function_player(lambda x: calls.append(x) or 0.0).play([queue, other], ranks=ranks)
    assert len(calls) == queue.is_finished.sum() == 12 and not other.is_finished.any()
    assert queue.in_flight == 0 and 60 < queue.counter.left < 88


def test_a_rank_that_runs_dry_of_a_function_goes_on_with_the_next_queue_until_the_others_are_done():
    first, second = RolloutQueue(make_batch([0] * 4)), RolloutQueue(make_batch([0] * 100))
    function_player(lambda x: 0.0).play([first], second, PlayingRanks(2, true_after(3)))
    assert first.is_exhausted and second.is_finished.sum() == 3
