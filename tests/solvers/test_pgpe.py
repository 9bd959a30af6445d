import numpy as np
import pytest

from mpies.solvers.pgpe import PGPE
from tests.solvers.single_generation import tell_once


def test_sigma_changes_by_a_bounded_share():
    solver = PGPE(PGPE.Options(population=4, sigma=0.5, fitness="raw"), 1, dtype=np.float64)
    tell_once(solver, [[2.0], [1.0]], [500, 100, 0, 200])
    assert solver.sigma[0] == pytest.approx(0.6)  # by 20 %


def test_the_first_sigma_is_given_or_has_a_radius_of_fifteen_clipup_steps():
    clipup = PGPE.Options(optimizer={"kind": "clipup", "max_speed": 0.2})
    assert clipup.first_sigma(400) * np.sqrt(400) == pytest.approx(15 * 0.2)
    assert PGPE.Options(optimizer={"kind": "adam"}).first_sigma(400) == 0.1
    assert PGPE.Options(sigma=0.7).first_sigma(400) == 0.7
    assert "sigma" not in PGPE.Options(sigma=0.7).computed_defaults(400)
    assert clipup.computed_defaults(400)["sigma"] == clipup.first_sigma(400)


def test_members_are_drawn_until_the_interactions_are_spent():
    options = PGPE.Options(population=10, episodes=2, interactions=100, population_max=35)
    assert not options.is_complete(20, 99)
    assert options.is_complete(20, 100)
    assert not options.is_complete(50, 50)  # 25 members: ten more are 35
    assert options.is_complete(52, 50)
    without_end = PGPE.Options(population=10, interactions=100)
    assert not without_end.is_complete(10_000, 99) and without_end.is_complete(10_000, 100)


@pytest.mark.parametrize("returns", [[0.1, 0.7, 0.3, 0.9], [1e7, 3, 1e5, 0.1], [1 / 3, 2 / 3, 1 / 7, 5]])
def test_noise_of_length_one_keeps_sigma_to_the_bit(returns):
    """z^2 - 1 is 0, whatever the weights add up to by rounding."""
    solver = PGPE(PGPE.Options(population=4, sigma=0.5, fitness="raw"), 1)
    tell_once(solver, [[1.0], [-1.0]], returns)
    assert solver.sigma[0] == np.float32(0.5)
