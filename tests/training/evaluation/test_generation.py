"""The spec of a generation as vectors."""

import numpy as np
import pytest

from mpies.solvers.base import Gaussian, Results
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


def test_early_members_keep_their_vectors_while_the_solver_changes_its_own():
    spec = GenerationSpec(Gaussian(MEAN.copy(), SCALE.copy()), np.ones((2, 4), np.float32), 5)
    fixed = EarlySpecs().fix(spec, MEAN.copy())
    before = [vector.tolist() for vector in fixed.vectors()]
    for vector in spec.vectors():
        vector += 1
    assert [vector.tolist() for vector in fixed.vectors()] == before and fixed.limit == 5


def test_results_have_the_names_that_are_in_the_ledger():
    arrays = vars(Results.of([1.0, 2.0]))
    assert list(arrays) == ["returns", "sign_returns", "steps", "payload", "behaviours"]
    assert arrays["returns"].tolist() == [1, 2]
