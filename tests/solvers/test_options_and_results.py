"""What all solvers share: options, results and proposals."""

from typing import ClassVar

import numpy as np
import pytest
from pydantic import ValidationError

from mpies.solvers.ars import ARS
from mpies.solvers.base import Proposal, Results
from mpies.solvers.deep_ga import DeepGA
from mpies.solvers.options import Pairs, Population, WholeCandidates, WholeNumber, tagged
from mpies.solvers.pgpe import PGPE
from mpies.solvers.snes import SNES
from tests.solvers.single_generation import begin


class PairsAndMean(Pairs):
    plays_mean: ClassVar[bool] = True


@pytest.mark.parametrize(
    ("options", "members", "rows", "groups"),
    [
        (Population(), 12, 12, None),  # 4 + 3 ln 20 is 12.99
        (Population(population=4), 4, 4, [0, 1, 2, 3]),
        (Pairs(), 12, 6, None),
        (Pairs(population=4), 4, 2, [0, 0, 1, 1]),  # the members of a pair share their seeds
        (PairsAndMean(population=4), 5, 2, [0, 1, 1, 2, 2]),
        (WholeCandidates(), 12, 0, None),
    ],
)
def test_members_noise_rows_and_groups_for_twenty_parameters(options, members, rows, groups):
    assert (options.members(20), options.noise_rows(20)) == (members, rows)
    assert groups in (None, options.groups(20).tolist())
    assert (Population().members(3), Pairs().members(3)) == (7, 8)  # 4 + 3 ln 3 is 7.3; pairs are even


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


@pytest.mark.parametrize(
    ("options", "values", "message"),
    [
        (Pairs, {"population": 101}, "population must be even .* but is 101; use 100 or 102"),
        (Pairs, {"population": 1}, "but is 1; use 2 or 2"),
        (ARS.Options, {"population": 4, "top": 3}, "top must be at most 2, the directions of population 4, but is 3"),
        (DeepGA.Options, {"population": 4, "parents": 5}, "parents must be at most the population, 4, but is 5"),
        (PGPE.Options, {"population": 10, "population_max": 8}, "must be at least 10, the population, but is 8; raise"),
    ],
)
def test_numbers_that_do_not_fit_each_other_are_refused(options, values, message):
    with pytest.raises(ValidationError, match=message):
        options(**values)


def test_tagged_options_accept_their_kind_only():
    class Mine(Population):
        """What mine does."""

        kind: str = "mine"

    options = tagged(Mine, "mine.py:Mine")
    assert issubclass(options, Mine) and options.__doc__ == "What mine does."
    assert options().kind == "mine.py:Mine"
    with pytest.raises(ValidationError, match=r"Input should be 'mine\.py:Mine'"):
        options(kind="mine")


def test_results_of_returns_alone():
    results = Results.of([2, np.nan, -3])
    np.testing.assert_array_equal(results.sign_returns, [1, np.nan, -1])
    np.testing.assert_array_equal(results.steps, [1, 1, 1])
    assert results.payload.shape == results.behaviours.shape == (3, 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[1.0, 2.0]],), "returns must be a vector"),
        (([1.0, 2.0], [[1.0]]), r"payload has shape \(1, 1\), but there are 2 returns"),
        (([1.0, 2.0], [1.0, 2.0]), r"payload has shape \(2,\), but there are 2 returns"),
        (([1.0, 2.0], None, [[1.0]] * 3), r"behaviours has shape \(3, 1\), but there are 2 returns"),
    ],
)
def test_results_of_other_shapes_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Results.of(*arguments)


def test_a_proposal_without_a_scale_needs_a_write_of_its_own():
    class Mine(SNES):
        def propose(self):
            return Proposal(self.mean)

    solver = begin(Mine, 2)
    solver.table = np.zeros(2, np.float32)
    with pytest.raises(TypeError, match="Mine must define write: Proposal is not a Gaussian"):
        solver.write(solver.ask(), np.zeros(12, np.int64), 0, np.empty(2))
