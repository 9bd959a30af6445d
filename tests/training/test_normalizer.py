import numpy as np

from mpies.training.learner import Normalizer


def test_statistics_are_those_of_all_observations():
    observations = np.random.default_rng(0).normal(3, 2, (500, 4))
    normalizer = Normalizer(4)
    for part in np.split(observations, [100, 101, 350]):
        normalizer.add([len(part)], [part.sum(axis=0)], [np.square(part).sum(axis=0)])
    mean, deviation = normalizer.mean_and_deviation()
    assert mean.dtype == np.float32
    np.testing.assert_allclose(mean, observations.mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(deviation, observations.std(axis=0), rtol=1e-6)


def test_nothing_is_changed_before_two_observations():
    normalizer = Normalizer(2)
    np.testing.assert_array_equal(normalizer.mean_and_deviation(), [[0, 0], [1, 1]])
    normalizer.add([1], [[5, 5]], [[25, 25]])
    np.testing.assert_array_equal(normalizer.mean_and_deviation(), [[0, 0], [1, 1]])


def test_an_input_that_never_moves_is_not_blown_up():
    normalizer = Normalizer(1)
    normalizer.add([1000], [[1000 * 1e8]], [[1000 * 1e16]])
    np.testing.assert_allclose(normalizer.mean_and_deviation()[1], 0.01, rtol=1e-6)


def test_a_restored_normalizer_goes_on_with_the_same_bits():
    random = np.random.default_rng(1)
    one, other = Normalizer(3), Normalizer(3)
    one.add([5], random.random((1, 3)), random.random((1, 3)))
    other.restore({name: value.copy() for name, value in one.state().items()})
    for normalizer in (one, other):
        normalizer.add([5, 2], np.full((2, 3), 0.1), np.full((2, 3), 0.7))
    assert one.mean_and_deviation().tobytes() == other.mean_and_deviation().tobytes()


def test_merging_no_episode_changes_nothing():
    normalizer = Normalizer(2)
    normalizer.add(np.zeros(0), np.zeros((0, 2)), np.zeros((0, 2)))
    assert normalizer.count == 0
