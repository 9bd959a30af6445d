"""Which episodes an EpisodePlayer plays and when; test_episodes.py has the bits of real environments."""

import numpy as np
import pytest

from mpies import kernels
from mpies.comm.stopwatch import stopwatch
from mpies.comm.work_counter import WorkCounter, count_alone
from mpies.rollouts.player import EpisodePlayer
from mpies.rollouts.queue import PlayingRanks, RolloutQueue
from tests.rollouts.fakes import POLICY, Calls, CountingBatch, CountingEnv, make_batch, total_of

LENGTHS = [3, 9, 1, 4, 2, 30, 5, 1, 1, 8, 6, 2]


def make_player(env=None, **values):
    return EpisodePlayer(env or CountingEnv(), POLICY, 5.0, **values)


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
        queue = RolloutQueue(make_batch(lengths))
        make_player(CountingEnv(slots=9, largest=9)).play([queue])
        assert queue.is_finished.all() and queue.results["steps"].tolist() == lengths


def test_signs_of_rewards_are_summed_where_they_are_counted():
    signs = [-(-length // 2) - length // 2 for length in LENGTHS]  # rewards change their sign with each step
    for counts, expected in ((True, signs), (False, [0] * len(LENGTHS))):
        queue = RolloutQueue(make_batch(LENGTHS))
        make_player(counts_signs=counts).play([queue])
        assert queue.results["signs"].tolist() == expected


@pytest.mark.parametrize("is_compiled", [True, False])
def test_an_episode_ends_at_the_limit(is_compiled, monkeypatch):
    if not is_compiled:
        monkeypatch.setattr(kernels, "compiled", None)
    env, queue = CountingEnv(), RolloutQueue(make_batch(LENGTHS, limit=4, is_training=True))
    make_player(env).play([queue])
    played = [min(length, 4) for length in LENGTHS]
    assert queue.results["steps"].tolist() == played and env.steps_played == sum(played)
    assert queue.results["total"].tolist() == [total_of(steps) for steps in played]
    assert set(env.is_training) == {True}


def test_sampled_rollouts_sum_what_was_seen_before_each_step():
    queue = RolloutQueue(make_batch(LENGTHS, sampled=np.arange(len(LENGTHS)) % 3 == 1))
    make_player().play([queue])
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
    queue = RolloutQueue(make_batch([3, 4, 2], sampled=np.ones(3, bool)))
    make_player().play([queue])
    assert queue.is_finished.all() and not queue.failures
    assert sorted(queue.observations(1)["rollout"].tolist()) == [0, 2]


def test_batches_are_a_part_of_the_fair_share_between_the_bounds():
    env = CountingEnv(slots=100, smallest=2, largest=10, low_water=0, divisor=2)
    queue = RolloutQueue(make_batch([1] * 40))
    make_player(env).play([queue], ranks=PlayingRanks(3))
    # 40 left: ceil(40 / 6) = 7; then 33: 6, 27: 5, 22: 4, 18: 3, 15: 3, 12: 2 and no fewer than `smallest`.
    assert [len(batch.seeds) for batch in env.batches] == [7, 6, 5, 4, 3, 3, 2, 2, 2, 2, 2, 2]


def test_no_more_is_taken_while_enough_is_in_flight():
    env = CountingEnv(slots=8, largest=2, low_water=3)
    queue = RolloutQueue(make_batch([5] * 20))
    make_player(env).play([queue], ranks=PlayingRanks(must_abandon=Calls(1)))
    assert [len(batch.seeds) for batch in env.batches] == [2, 2]  # four are in flight, more than low_water


def test_two_ranks_share_the_rollouts_of_one_counter():
    add, queues = count_alone(), []
    for _ in range(2):  # the second finds what the first has left
        queue = RolloutQueue(make_batch(LENGTHS), counter=WorkCounter(0, len(LENGTHS), add))
        queues.append(queue)
    make_player(CountingEnv(slots=2, largest=1, low_water=0)).play(
        [queues[0]], ranks=PlayingRanks(must_abandon=Calls(6))
    )
    taken = len(LENGTHS) - queues[0].counter.left
    assert 0 < taken < len(LENGTHS)
    make_player().play([queues[1]])
    assert np.flatnonzero(queues[1].is_finished).tolist() == list(range(taken, len(LENGTHS)))


def test_a_rank_that_runs_dry_goes_on_with_the_next_queue_until_the_others_are_done():
    env = CountingEnv(slots=2, largest=1, low_water=1)
    player = make_player(env)
    first, second = RolloutQueue(make_batch([2, 2])), RolloutQueue(make_batch([50, 7, 3, 4]))
    others_are_done = Calls(9)
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
    player.play([queue], ranks=PlayingRanks(must_abandon=Calls(5)))
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
    player.play([first], second, PlayingRanks(2, Calls(8)))
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
    queue = RolloutQueue(make_batch(lengths))
    make_player(CountingEnv(slots, largest=1), timeout=10.0).play([queue], ranks=pass_time(seconds))
    assert queue.failures == dict.fromkeys(failed, "it took more than 10 s")
    assert np.flatnonzero(np.isnan(queue.results["total"])).tolist() == failed
    for steps, length in zip(queue.results["steps"], lengths, strict=True):
        assert 90 < steps < 110 if length == 500 else steps == length
