"""The spec of a generation as vectors, and that of early members, which stays as it was fixed."""

import numpy as np

from mpies.solvers.base import Gaussian
from mpies.training.evaluation.generation import GenerationSpec
from mpies.training.evaluation.overlap import EarlySpecs

MEAN, SCALE = np.arange(3, dtype=np.float32), np.full(1, 0.5, np.float32)


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
