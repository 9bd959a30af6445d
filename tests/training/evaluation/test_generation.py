"""The spec of a generation as vectors, and that of early members, which stays as it was fixed."""

import numpy as np
import pytest

from mpies.solvers.base import Gaussian
from mpies.training.evaluation.generation import GenerationSpec
from mpies.training.evaluation.overlap import EarlySpecs

MEAN, SCALE = np.arange(3, dtype=np.float32), np.full(1, 0.5, np.float32)


@pytest.mark.parametrize("normalization", [None, np.arange(8, dtype=np.float32).reshape(2, 4)])
@pytest.mark.parametrize("limit", [None, 7])
def test_a_spec_is_rebuilt_from_its_vectors(normalization, limit):
    rows = np.zeros((2, 3), np.float32)
    spec = GenerationSpec(Gaussian(MEAN, SCALE), normalization, limit)
    vectors = spec.vectors()
    assert all(vector.ndim == 1 for vector in vectors)
    rebuilt = GenerationSpec.from_vectors(vectors, Gaussian, rows)
    assert rebuilt.proposal.mean.tolist() == [0, 1, 2] and rebuilt.proposal.scale.tolist() == [0.5]
    assert rebuilt.proposal.rows is rows and rebuilt.limit == limit
    assert (rebuilt.normalization is None) == (normalization is None)
    if normalization is not None:
        assert np.array_equal(rebuilt.normalization, normalization)


def test_an_early_spec_keeps_its_vectors_while_the_solver_changes_its_own_and_is_ready_for_one_generation():
    spec = GenerationSpec(Gaussian(MEAN.copy(), SCALE.copy()), np.ones((2, 4), np.float32), 5)
    early, expected_mean = EarlySpecs(), MEAN + 7
    fixed = early.fix(spec, expected_mean)
    before = [vector.tolist() for vector in fixed.vectors()]
    for vector in (expected_mean, *spec.vectors()):
        vector += 1
    assert [vector.tolist() for vector in fixed.vectors()] == before and fixed.limit == 5
    assert fixed.proposal.mean.tolist() == [7, 8, 9]
    assert early.ready is None and early.advance() is None
    assert early.ready is fixed and early.advance() is fixed
    assert early.ready is None and not early.state()
