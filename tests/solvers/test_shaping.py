import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mpies.solvers.shaping import SHAPINGS, best_first, bounded, centred_ranks, shape, z_scores

settings.register_profile("busy machine", deadline=None)
settings.load_profile("busy machine")
NAN, INF = np.nan, np.inf
fitnesses = st.lists(st.floats(width=32, allow_nan=True), min_size=2, max_size=40).map(np.array)


@pytest.mark.parametrize(
    ("fitness", "expected"),
    [
        ([3, 1, 2], [0.5, -0.5, 0]),
        ([10, -7], [0.5, -0.5]),
        ([1, 1, 1, 1], [0, 0, 0, 0]),
        ([0, 5, 5, 9], [-0.5, 0, 0, 0.5]),  # ranks 0, 1.5, 1.5, 3 of 3
        ([7, 2, 2, 2], [0.5, -1 / 6, -1 / 6, -1 / 6]),
        ([NAN, -INF, 4], [-0.5, 0, 0.5]),  # a failure is worse than the worst honest value
        ([-INF, NAN, 4], [0, -0.5, 0.5]),
        ([NAN, 1, NAN], [-0.25, 0.5, -0.25]),
        ([INF, 1, -INF], [0.5, 0, -0.5]),
    ],
)
def test_centred_ranks_of_hand_worked_examples(fitness, expected):
    ranks = centred_ranks(fitness)
    assert ranks.dtype == np.float32
    np.testing.assert_allclose(ranks, expected, rtol=1e-7)


@pytest.mark.parametrize("fitness", [[], [1.0], [[1.0, 2.0]]])
def test_centred_ranks_refuse_what_has_no_ranks(fitness):
    with pytest.raises(ValueError, match="two or more values"):
        centred_ranks(fitness)


@given(fitnesses)
def test_centred_ranks_rise_with_fitness_and_sum_to_zero(fitness):
    ranks = centred_ranks(fitness)
    assert abs(np.sum(ranks, dtype=np.float64)) < 1e-6 * len(ranks) and np.all(np.abs(ranks) <= 0.5)
    for one, other in zip(fitness, ranks, strict=True):
        better = (fitness > one) | (np.isnan(one) & ~np.isnan(fitness))
        same = (fitness == one) | (np.isnan(one) & np.isnan(fitness))
        assert np.all(ranks[better] > other)
        assert np.all(ranks[same] == other)


def test_z_scores_have_mean_zero_and_deviation_one():
    np.testing.assert_allclose(z_scores([1, 2, 3]), [-np.sqrt(1.5), 0, np.sqrt(1.5)], rtol=1e-6)
    np.testing.assert_array_equal(z_scores([4, 4]), [0, 0])
    np.testing.assert_allclose(z_scores([0, 2, NAN]), np.array([-1, 2, -1]) / np.sqrt(2), rtol=1e-6)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("raw", [5, -2, -2, 8]),
        ("sign", [1, 3, 1, 2]),
        ("centred_rank", [1 / 6, -1 / 6, -0.5, 0.5]),
        ("centred_sign_rank", [-1 / 6, 0.5, -0.5, 1 / 6]),
        ("z_score", np.array([2.75, -4.25, -4.25, 5.75]) / np.std([5, -2, -2, 8])),
    ],
)
def test_each_shaping_uses_its_returns_and_ranks_the_failed_member_worst(kind, expected):
    returns, sign_returns = np.array([5, -2, NAN, 8]), np.array([1.0, 3, 9, 2])
    np.testing.assert_allclose(shape(kind, returns, sign_returns), expected, rtol=1e-6)


@pytest.mark.parametrize("kind", SHAPINGS)
def test_a_generation_that_failed_whole_pulls_nowhere(kind):
    failed = np.full(4, NAN)
    np.testing.assert_array_equal(shape(kind, failed, failed), np.zeros(4))


@given(st.lists(st.one_of(st.floats(), st.just(math.nan)), max_size=30))
def test_the_best_come_first_equals_in_member_order_and_the_failed_last(fitness):
    fitness = np.array(fitness, np.float64)
    order = best_first(fitness)
    assert sorted(order) == list(range(len(fitness)))
    ranked = fitness[order]
    alive = ranked[~np.isnan(ranked)]
    assert np.isnan(ranked[len(alive) :]).all()
    assert (alive[:-1] >= alive[1:]).all()
    for one, other in itertools.pairwise(range(len(fitness))):
        if ranked[one] == ranked[other] or (np.isnan(ranked[one]) and np.isnan(ranked[other])):
            assert order[one] < order[other]


@given(st.lists(st.one_of(st.floats(-1e6, 1e6), st.sampled_from([math.nan, math.inf, -math.inf])), max_size=20))
def test_bounded_fitness_is_finite_and_keeps_what_is(fitness):
    fitness = np.array(fitness, np.float64)
    kept, finite = bounded(fitness), np.isfinite(fitness)
    assert np.isfinite(kept).all()
    np.testing.assert_array_equal(kept[finite], fitness[finite])
    if finite.any():
        assert (kept[np.isnan(fitness)] == fitness[finite].min()).all()
        assert (kept[np.isposinf(fitness)] == fitness[finite].max()).all()
