"""Moments, and their sums over a generation in one process; tests/training/test_update.py has those of ranks."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mpies.comm.serial import Serial
from mpies.solvers import moments as kernel
from mpies.solvers.base import Results, Solver
from mpies.solvers.moments import Weights, fold_pairs, moments, no_square, norm
from mpies.solvers.sampling.noise import sample_indices
from mpies.solvers.snes import SNES
from mpies.solvers.sum_moments import sum_moments
from tests.solvers.single_generation import FunctionLoop, begin

TABLE = np.random.default_rng(7).standard_normal(5000).astype(np.float32)


def weights_of(random, linear, square, rows):
    return Weights(*(random.standard_normal((orders, rows)).astype(np.float32) for orders in (linear, square)))


@pytest.mark.parametrize(("linear", "square"), [(1, 0), (2, 0), (0, 1), (1, 1), (2, 2)])
def test_moments_agree_with_a_float64_reference(linear, square):
    random = np.random.default_rng(linear * 10 + square)
    indices, weights = random.integers(0, 4000, 30), weights_of(random, linear, square, 30)
    rows = np.stack([TABLE[i : i + 900] for i in indices]).astype(np.float64)
    sums = moments(TABLE, indices, weights, 100, 900)
    expected = np.concatenate([weights.linear @ rows, weights.square @ rows**2])[:, 100:]
    assert sums.dtype == np.float32
    np.testing.assert_allclose(sums, expected, rtol=1e-5, atol=2e-5)


@settings(deadline=None, max_examples=60)
@given(
    cuts=st.lists(st.integers(0, 700), max_size=6),
    orders=st.sampled_from([(1, 0), (1, 1), (2, 1)]),
    tile=st.sampled_from([1, 7, 64, 32768]),
)
def test_any_split_of_the_coordinates_gives_the_same_bits(cuts, orders, tile):
    random = np.random.default_rng(3)
    indices, weights = random.integers(0, 4300, 17), weights_of(random, *orders, 17)
    whole = moments(TABLE, indices, weights, 0, 700)
    bounds = [0, *sorted(cuts), 700]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "TILE", tile)
        parts = [moments(TABLE, indices, weights, start, stop) for start, stop in itertools.pairwise(bounds)]
    assert np.concatenate(parts, axis=1).tobytes() == whole.tobytes()


def test_the_common_case_gives_the_same_bits_as_the_general_one():
    random = np.random.default_rng(5)
    indices, weights = random.integers(0, 4000, 20), weights_of(random, 1, 0, 20)
    both = Weights(weights.linear, np.ones((1, 20), np.float32))
    one, two = (moments(TABLE, indices, each, 0, 1000)[0] for each in (weights, both))
    assert one.tobytes() == two.tobytes()


@settings(deadline=None)
@given(st.integers(1, 20), st.integers(0, 2**32 - 1))
def test_folded_pairs_give_the_moments_of_all_members(pairs, seed):
    random = np.random.default_rng(seed)
    z = random.standard_normal((pairs, 5))
    members = np.repeat(z, 2, axis=0) * np.tile([1, -1], pairs)[:, None]
    linear, square = (random.standard_normal((2, 2 * pairs)).astype(np.float32) for _ in range(2))
    folded = fold_pairs(linear, square)
    np.testing.assert_allclose(folded.linear @ z, linear @ members, atol=1e-4)
    np.testing.assert_allclose(folded.square @ z**2, square @ members**2, atol=1e-4)
    assert fold_pairs(linear, no_square(2 * pairs)).square.shape == (0, pairs)


def test_the_norm_is_the_euclidean_one_and_rounded_once_per_block():
    vector = np.random.default_rng(1).standard_normal(100_001).astype(np.float32)
    assert norm(np.array([3, 4], np.float32)) == 5
    assert norm(vector) == pytest.approx(math.sqrt(math.fsum(float(x) ** 2 for x in vector)), rel=1e-12)


def test_a_solver_without_weights_reads_no_noise():
    class Blind(SNES):
        compute_weights = Solver.compute_weights

        def moments(self, indices, weights, start, stop):
            assert len(indices) == 0
            return super().moments(indices, weights, start, stop)

    solver = begin(Blind, 100, population=12)
    solver.table = TABLE
    moments = sum_moments(solver, solver.ask(), Results.of(np.arange(12.0)), solver.population_indices(0, 0), Serial())
    assert moments.shape == (0, 100)


def test_a_loop_draws_batches_until_the_generation_is_complete():
    class Patient(SNES):
        class Options(SNES.Options):
            def is_complete(self, episodes, steps):
                return episodes >= 30

    solver, members = begin(Patient, 100, seed=4, population=12), []
    results = FunctionLoop(solver, lambda x: members.append(x) or -float(x @ x), TABLE).run_generation()
    assert len(results.returns) == len(members) == 36
    indices = np.concatenate([sample_indices(4, 0, batch, 12, len(TABLE), 100) for batch in range(3)])
    rows = np.array([TABLE[index : index + 100] for index in indices])
    np.testing.assert_allclose(members, 1 + np.float32(0.1) * rows, rtol=1e-6)
    loop = FunctionLoop(solver, sum, TABLE)
    assert [len(loop.ask(most)) for most in (1, 2, 3, 4)] == [12, 24, 36, 36]
