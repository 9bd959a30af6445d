"""Rollouts that ranks share out, and their results."""

import numpy as np
import pytest

from mpies.comm import connect
from mpies.comm.work_counter import WorkCounter, count_alone
from mpies.rollouts.batch import evaluation_batch, rollout_record
from mpies.rollouts.player import EpisodePlayer
from mpies.rollouts.queue import FailureGroup, RolloutQueue, gather_failures, play_alone
from tests.rollouts.fakes import POLICY, CountingEnv, make_batch, total_of
from tests.support import on_one_and_three_ranks


def test_pending_rollouts_are_handed_out_in_their_order():
    queue = RolloutQueue(make_batch([1] * 9), np.array([7, 2, 5]))
    assert not queue.is_exhausted
    assert queue.take(2).tolist() == [7, 2] and queue.in_flight == 2
    assert queue.take(2).tolist() == [5] and queue.take(2).tolist() == []
    assert not queue.is_exhausted  # three are in flight
    for rollout in (5, 7, 2):
        queue.finish(rollout, 0.0, 0.0, 1)
    assert queue.is_exhausted and queue.in_flight == 0


def test_results_are_kept_by_rollout_and_returned_in_order():
    queue = RolloutQueue(make_batch([1] * 4, payload_size=2, behaviour_size=1))
    queue.take(4)
    queue.finish(3, 1.5, -2.0, 7)
    queue.results["payload"][3] = 8, 9
    queue.finish(1, np.nan, 0.0, 2)
    expected = np.array([(1, np.nan, 0, 2, (0, 0), (0,)), (3, 1.5, -2, 7, (8, 9), (0,))], rollout_record(2, 1))
    assert queue.finished().dtype == expected.dtype and queue.finished().tobytes() == expected.tobytes()
    assert queue.in_flight == 2 and not queue.is_exhausted


def test_a_queue_that_is_reopened_keeps_its_results_and_hands_out_others():
    queue = RolloutQueue(make_batch([1] * 4))
    queue.take(1)
    queue.finish(0, 5.0, 1.0, 1)
    queue.reopen(np.array([1, 3]), WorkCounter(0, 2, count_alone()))
    assert queue.take(9).tolist() == [1, 3] and queue.finished()["total"].tolist() == [5.0]


@pytest.mark.parametrize("rollouts", [None, [4, 1]])
def test_a_batch_is_played_alone_in_order(rollouts):
    lengths = [3, 9, 1, 4, 2]
    records, failures = play_alone(EpisodePlayer(CountingEnv(), POLICY, 5.0), make_batch(lengths), rollouts)
    assert failures == {}
    played = sorted(rollouts or range(5))
    assert records["rollout"].tolist() == played
    assert records["total"].tolist() == [total_of(lengths[rollout]) for rollout in played]


def test_an_evaluation_plays_the_mean_without_feeding_the_statistics():
    mean, out = np.arange(3, dtype=np.float32), np.zeros(3, np.float32)
    batch = evaluation_batch(mean, np.array([5, 6]))
    assert len(batch) == 2 and not batch.sampled.any() and not batch.is_training and batch.limit is None
    assert batch.write(1, out) == () and out.tolist() == [0, 1, 2]


@on_one_and_three_ranks
def test_equal_messages_of_all_ranks_are_one_group(ranks):
    comm = connect()
    own = {10 + comm.rank: "no licence\nleft", 20 + comm.rank: "no licence\nleft"}
    if comm.rank == comm.size - 1:
        own[3] = f"rank {comm.rank} ü"
    groups = gather_failures(comm, own)
    if not comm.is_root:
        assert groups == []
        return
    assert groups == [
        FailureGroup("no licence\nleft", 2 * ranks, 10, list(range(ranks))),
        FailureGroup(f"rank {ranks - 1} ü", 1, 3, [ranks - 1]),
    ]
