"""Policies that cannot be played where their environment has another shape, or is not there."""

import numpy as np
import pytest

from mpies.runs.formats import hdf5
from tests.support import assert_refused, invoke

FEW = ["solver.population=4", "stop.generations=1", "evaluation.episodes=2", "noise.size=20000", "policy.hidden=[]"]


def test_a_policy_of_envpool_whose_world_has_another_shape_in_gymnasium_is_not_shown(here):
    pytest.importorskip("envpool")
    assert invoke("train", "Blackjack-v1", *FEW, "--out", "run").code == 0
    for which in ([], ["--member", "1,0"]):
        outcome = invoke("play", "run", *which, "--video", "video.gif")
        assert_refused(
            outcome, "Blackjack-v1 has another shape in gymnasium", "it needs 92 parameters", "the policy has 8 and "
        )
    assert invoke("evaluate", "run", "--episodes", "2").code == 0


def test_an_environment_that_envpool_alone_has_is_named_as_such(here):
    pytest.importorskip("envpool")
    assert invoke("train", "CheetahRun-v1", *FEW, "environment.max_steps=5", "--out", "run").code == 0
    assert_refused(invoke("play", "run", "--video", "video.gif"), "EnvPool has it, draws no pictures")


def test_a_policy_with_statistics_of_other_observations_is_refused_by_what_differs(here):
    assert invoke("train", "CartPole-v1", *FEW, "--out", "run").code == 0
    arrays, attributes = hdf5.read(here / "run" / "best.h5")
    arrays["normalization"] = np.ones((2, 3))
    (here / "other.h5").write_bytes(hdf5.pack(arrays, attributes))
    refused = invoke("evaluate", "other.h5")
    assert_refused(refused, "CartPole-v1 has another shape", "statistics of 4 observations", "has 10 and 3")
