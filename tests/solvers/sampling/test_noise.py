import numpy as np
import pytest

from mpies.solvers.sampling.noise import BLOCK, blocks, build_table, fill, sample_indices

SIZE = 2 * BLOCK + 1000


def filled(order, seed=1):
    table = np.full(SIZE, np.nan, np.float32)
    for block in order:
        fill(table, seed, block)
    return table


def test_a_table_is_the_same_in_whatever_order_its_blocks_are_filled_and_begins_every_longer_one():
    table, longer = filled([2, 0, 1]), build_table(3 * BLOCK, seed=1)
    assert blocks(SIZE) == 3 and build_table(SIZE, seed=1).tobytes() == table.tobytes()
    assert longer[: 2 * BLOCK].tobytes() == table[: 2 * BLOCK].tobytes()
    doubles = build_table(100, seed=1, dtype=np.float64)
    assert doubles.dtype == np.float64
    np.testing.assert_array_equal(doubles, table[:100])
    never_changed = np.array([-2.1342425, -0.052672863, -0.71933216], np.float32)
    np.testing.assert_array_equal(table[:3], never_changed)


def test_blocks_and_seeds_have_numbers_of_their_own():
    one, other = filled(range(3)), filled(range(3), seed=2)
    assert not np.array_equal(one[:1000], one[BLOCK : BLOCK + 1000])
    assert not np.array_equal(one, other)


def test_the_table_holds_standard_normals():
    table = filled(range(3)).astype(np.float64)
    error = 1 / np.sqrt(len(table))  # of the mean; bounds of five of them
    assert abs(table.mean()) < 5 * error
    assert abs(table.var() - 1) < 5 * np.sqrt(2) * error
    assert abs((table**3).mean()) < 5 * np.sqrt(15) * error
    assert abs((table**4).mean() - 3) < 5 * np.sqrt(96) * error
    assert abs((table[1:] * table[:-1]).mean()) < 5 * error
    assert 4 < np.abs(table).max() < 7


def test_indices_cover_every_place_where_a_member_fits_of_which_there_must_be_one():
    assert set(sample_indices(1, 0, 0, 2000, 100, 10)) == {0, 16, 32, 48, 64, 80}  # on cache lines
    assert set(sample_indices(1, 0, 0, 5, 10, 10)) == {0}
    with pytest.raises(ValueError, match="smaller than one member of 10 parameters"):
        sample_indices(1, 0, 0, 5, 9, 10)


def test_indices_belong_to_seed_generation_and_batch_and_never_change_between_versions():
    draws = [tuple(sample_indices(*key, 5, 10**6, 10)) for key in [(1, 0, 0), (1, 0, 1), (1, 1, 0), (2, 0, 0)]]
    assert len(set(draws)) == 4 and draws[0] == (764224, 74256, 94000, 463584, 31632)
