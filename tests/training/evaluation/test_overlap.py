"""What early members are sampled from stays as it was fixed, and is used once."""

import numpy as np
import pytest

from mpies.training.evaluation.overlap import EarlySpecs
from tests.training.test_learner import make_population, started


@pytest.mark.parametrize("kind", ["openai_es", "snes", "ars", "pgpe"])
def test_no_later_step_changes_an_early_spec(kind):
    """Some solvers change their mean in place, and most expect it to be where it is."""
    learner = started(overlap=1, kind=kind, episodes=1)
    for generation in range(2):
        fixed, spec = learner.ask_early(), learner.ask()
        before = [vector.copy() for vector in fixed.vectors()]
        weights = learner.solver.compute_weights(make_population().results, spec.proposal)
        shape = len(weights.linear) + len(weights.square), learner.solver.dimension
        moments = np.random.default_rng(generation).standard_normal(shape).astype(np.float32)
        learner.tell(spec, make_population(), moments, 1.0)
        assert learner.early.ready is fixed
        for vector, old in zip(fixed.vectors(), before, strict=True):
            np.testing.assert_array_equal(vector, old, err_msg=f"generation {generation}")
        assert not np.array_equal(fixed.proposal.mean, learner.solver.mean)


def test_an_early_spec_is_ready_for_one_generation():
    learner, early = started(), EarlySpecs()
    fixed = early.fix(learner.ask(), np.zeros(learner.solver.dimension, np.float32))
    assert early.ready is None and early.advance() is None
    assert early.ready is fixed and early.advance() is fixed
    assert early.ready is None and not early.state()
