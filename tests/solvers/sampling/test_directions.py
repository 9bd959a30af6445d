"""Directions of low rank, and the moments over them."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mpies.solvers import SOLVERS, moments
from mpies.solvers.moments import Weights, no_square
from mpies.solvers.openai_es import OpenAIESOptions
from mpies.solvers.sampling import directions
from mpies.solvers.sampling.directions import Directions
from mpies.solvers.sampling.noise import build_table
from tests.solvers.single_generation import FunctionLoop, sphere, sum_in_blocks

TABLE = build_table(1 << 16)
MATRICES = ((0, 70, 13), (910 + 13, 13, 5), (988 + 5, 5, 1))  # of layers 70 - 13 - 5 - 1, with biases
DIMENSION = 999
INDICES = np.random.default_rng(1).integers(0, len(TABLE) - DIMENSION, 40)


def layout(rank):
    return Directions(DIMENSION, MATRICES, rank)


def direction_of(layout, index, table=TABLE):
    """The member around 0 at scale 1."""
    member = np.full(layout.dimension, np.nan, np.float32)
    layout.sample(table, index, np.zeros(layout.dimension, np.float32), np.ones(1, np.float32), member)
    return member


def weights_of(orders):
    random = np.random.default_rng(orders)
    return Weights(random.standard_normal((orders, len(INDICES))).astype(np.float32), no_square(len(INDICES)))


def test_a_direction_by_hand():
    table = np.array([9, 1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13], np.float32)
    # a number, a matrix of 3 x 3 from (2, 3, 4) and (5, 6, 7), and a matrix of 3 x 1, which a product would not shorten
    layout = Directions(13, ((1, 3, 3), (10, 3, 1)))
    assert layout.length == 10
    expected = [1, 2 * 5, 2 * 6, 2 * 7, 3 * 5, 3 * 6, 3 * 7, 4 * 5, 4 * 6, 4 * 7, 8, 10, 11]
    np.testing.assert_array_equal(direction_of(layout, 1, table), expected)


def test_a_direction_of_rank_two_is_the_sum_of_two_products_by_the_root_of_two():
    table = np.arange(1, 40, dtype=np.float32)
    layout = Directions(36, ((0, 6, 6),), rank=2)
    assert layout.length == 24
    left, right = table[3:15].reshape(2, 6), table[15:27].reshape(2, 6)
    expected = (np.outer(left[0], right[0]) + np.outer(left[1], right[1])) / np.sqrt(2)
    np.testing.assert_allclose(direction_of(layout, 3, table).reshape(6, 6), expected, rtol=1e-6)


class Bounded(SOLVERS["openai_es"]):
    """Keeps all parameters of its members between -0.1 and 0.1, and says how many were beyond."""

    payload_size = 1

    def sample(self, proposal, noise, sign, out):
        super().sample(proposal, noise, sign, out)
        beyond = np.sum(np.abs(out) > 0.1)
        np.clip(out, -0.1, 0.1, out=out)
        return (beyond,)


@pytest.mark.parametrize("number", [6, 7])  # of a pair
@pytest.mark.parametrize("cut", [layout(1), layout(2), None])
def test_a_sample_of_ones_own_gets_the_direction(cut, number):
    members = []
    for kind in (SOLVERS["openai_es"], Bounded):
        solver = kind(OpenAIESOptions(population=80, sigma=0.1), DIMENSION, directions=cut)
        solver.start(np.zeros(DIMENSION))
        solver.table, member = TABLE, np.empty(DIMENSION, np.float32)
        payload = solver.write(solver.ask(), INDICES, number, member)
        members.append(member)
    assert payload[0] == np.sum(np.abs(members[0]) > 0.1) > 100
    np.testing.assert_allclose(members[1], np.clip(members[0], -0.1, 0.1), rtol=1e-5, atol=1e-7)


def test_the_noise_row_of_an_index_is_refused_where_it_is_no_direction():
    solver = SOLVERS["openai_es"](OpenAIESOptions(), DIMENSION, directions=layout(1))
    solver.table = TABLE
    with pytest.raises(ValueError, match=r"noise\(index\) is a direction with noise.kind full only; sample gets those"):
        solver.noise(16)


def test_a_layer_takes_as_many_normals_as_its_sides_have_units():
    assert layout(1).length == 70 + 13 + 13 + 13 + 5 + 5 + 5 + 1
    assert layout(3).length == 3 * 83 + 13 + 3 * 18 + 5 + 5 + 1
    assert layout(70).length == Directions(DIMENSION).length == DIMENSION


@pytest.mark.parametrize("rank", [1, 2, 4])
@pytest.mark.parametrize("members", [7, 1024])
def test_moments_agree_with_a_float64_reference(rank, members, monkeypatch):
    monkeypatch.setattr(directions, "MEMBERS", members)
    weights = weights_of(2)
    rows = np.array([direction_of(layout(rank), index) for index in INDICES], np.float64)
    sums = layout(rank).moments(TABLE, INDICES, weights, 0, DIMENSION)
    assert sums.dtype == np.float32
    np.testing.assert_allclose(sums, weights.linear @ rows, rtol=1e-5, atol=2e-5)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(0, DIMENSION), max_size=8), st.sampled_from([1, 2]), st.sampled_from([2, 5, 32]))
def test_any_split_of_the_coordinates_gives_the_same_bits(cuts, rank, tile):
    bounds = [0, *sorted(cuts), DIMENSION]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(directions, "TILE", tile)
        whole = layout(rank).moments(TABLE, INDICES, weights_of(1), 0, DIMENSION)
        parts = [layout(rank).moments(TABLE, INDICES, weights_of(1), *block) for block in itertools.pairwise(bounds)]
    assert np.concatenate(parts, axis=1).tobytes() == whole.tobytes()


def test_where_nothing_is_a_product_the_moments_are_the_kernels():
    weights = Weights(weights_of(1).linear, weights_of(1).linear)
    sums = Directions(DIMENSION).moments(TABLE, INDICES, weights, 100, 900)
    assert sums.tobytes() == moments.moments(TABLE, INDICES, weights, 100, 900).tobytes()
    with pytest.raises(ValueError, match="squares"):
        layout(1).moments(TABLE, INDICES, weights, 100, 900)


TAKERS = [kind for kind, solver in SOLVERS.items() if solver.Options.takes_low_rank]


def begin(kind):
    solver = SOLVERS[kind](SOLVERS[kind].Options(population=40, sigma=0.1), DIMENSION, 3, directions=layout(1))
    solver.start(np.ones(DIMENSION))
    return solver


def loop_of(solver, bounds=(0, DIMENSION)):
    sum_in_blocks(solver, bounds)
    return FunctionLoop(solver, sphere, TABLE, lambda x: x[:2])


@pytest.mark.parametrize("kind", TAKERS)
def test_solvers_improve_along_them_to_the_same_bits_on_any_split_and_after_a_restart(kind):
    assert "openai_es" in TAKERS
    one, other = begin(kind), begin(kind)
    loop, split = loop_of(one), loop_of(other, [0, 333, 666, DIMENSION])
    for generation in range(40):
        loop.run_generation(), split.run_generation()
        assert one.mean.tobytes() == other.mean.tobytes()
        if generation == 20:
            state, other = other.state(), type(one)(one.options, DIMENSION, 3)  # its directions are in the state
            other.restore({name: np.array(value) for name, value in state.items()})
            split = loop_of(other, [0, 1, 142, 500, 998, DIMENSION])
    assert np.linalg.norm(one.mean) < 0.99 * np.sqrt(DIMENSION)
