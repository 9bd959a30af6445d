from typing import ClassVar

import numpy as np
import pytest
from pydantic import ValidationError

from mpies.solvers.options import Pairs, Population, WholeCandidates, WholeNumber, tagged


class PairsAndMean(Pairs):
    plays_mean: ClassVar[bool] = True


@pytest.mark.parametrize(
    ("options", "members", "rows"),
    [
        (Population(), 12, 12),  # 4 + 3 ln 20 is 12.99
        (Population(population=7), 7, 7),
        (Pairs(), 12, 6),
        (Pairs(population=8), 8, 4),
        (PairsAndMean(population=8), 9, 4),
        (WholeCandidates(), 12, 0),
    ],
)
def test_members_and_noise_rows_for_twenty_parameters(options, members, rows):
    assert options.members(20) == members
    assert options.noise_rows(20) == rows


def test_the_default_population_of_pairs_is_even():
    assert Population().members(3) == 7  # 4 + 3 ln 3 is 7.3
    assert Pairs().members(3) == 8


def test_the_members_of_a_pair_share_their_seeds_and_the_mean_has_its_own():
    np.testing.assert_array_equal(Population(population=4).groups(20), [0, 1, 2, 3])
    np.testing.assert_array_equal(Pairs(population=4).groups(20), [0, 0, 1, 1])
    np.testing.assert_array_equal(PairsAndMean(population=4).groups(20), [0, 1, 1, 2, 2])


class Batches(Population):
    """Draws whole populations until there are enough steps."""

    steps: WholeNumber = 0

    def is_complete(self, episodes: int, steps: int) -> bool:
        return steps >= self.steps


@pytest.mark.parametrize(
    ("steps", "length", "populations"),
    [(0, 10, 1), (80, 10, 1), (81, 10, 2), (1000, 10, 13), (9, 0, 2), (10**12, 10, 12_500_000_000)],
)
def test_the_episodes_of_a_generation_are_whole_populations_that_suffice(steps, length, populations):
    assert Batches(population=4, episodes=2, steps=steps).count_episodes(20, length) == 8 * populations


def test_a_generation_that_never_ends_has_many_episodes():
    assert Batches(population=4, steps=10**30).count_episodes(20, 10) > 10**12


def test_an_odd_population_of_pairs_is_refused_with_its_neighbours():
    with pytest.raises(ValidationError, match=r"population must be even .* but is 101; use 100 or 102"):
        Pairs(population=101)
    with pytest.raises(ValidationError, match="but is 1; use 2 or 2"):
        Pairs(population=1)


def test_tagged_options_accept_their_kind_only():
    class Mine(Population):
        """What mine does."""

        kind: str = "mine"

    options = tagged(Mine, "mine.py:Mine")
    assert issubclass(options, Mine) and options.__doc__ == "What mine does."
    assert options().kind == "mine.py:Mine"
    with pytest.raises(ValidationError, match=r"Input should be 'mine\.py:Mine'"):
        options(kind="mine")
