"""`mpies evaluate`: held-out episodes of a saved policy."""

import json

import numpy as np
import pytest

import mpies
from mpies.runs.checkpoint import list_checkpoints
from tests.support import CARTPOLE, assert_refused, invoke

NOISY = """
environment: {id: Pendulum-v1, max_steps: 20}
policy: {hidden: [], action_noise: 0.5}
solver: {population: 8}
noise: {size: 100000}
stop: {generations: 1}
"""


@pytest.fixture
def run(trained):
    return trained(CARTPOLE)


def evaluate(path, *arguments):
    outcome = invoke("evaluate", path, "--episodes", 20, "--json", *arguments)
    assert outcome.code == 0, outcome.stderr
    return json.loads(outcome.stdout)


def test_held_out_episodes_are_played_and_reported_in_json(run):
    result = evaluate(run)
    assert result["episodes"] == len(result["returns"]) == 20
    assert result["mean"] == pytest.approx(np.mean(result["returns"]))
    assert result["std"] == pytest.approx(np.std(result["returns"], ddof=1))
    assert result["interval"] == pytest.approx(1.96 * np.std(result["returns"], ddof=1) / np.sqrt(20))
    assert (result["min"], result["max"]) == (min(result["returns"]), max(result["returns"]))
    assert result["length"] == pytest.approx(result["mean"])  # a reward of 1 a step
    assert result["failures"] == 0 and result["environment"] == "CartPole-v1"
    assert evaluate(run / "best.h5")["returns"] == result["returns"]
    assert evaluate(run, "--seed", 99)["returns"] != result["returns"]


def test_stochastic_draws_actions_as_in_training_and_always_the_same_ones(run, trained):
    noisy = trained(NOISY)
    drawn = evaluate(noisy, "--stochastic")["returns"]
    assert drawn == evaluate(noisy, "--stochastic")["returns"]
    assert drawn != evaluate(noisy)["returns"]
    assert drawn != evaluate(noisy, "--stochastic", "--seed", 99)["returns"]
    assert drawn == mpies.load(noisy).best.evaluate(20, deterministic=False).returns.tolist()
    why = "its actions are not drawn at random"
    assert_refused(invoke("evaluate", run, "--stochastic"), why)
    assert_refused(invoke("play", run, "--stochastic", "--video", run / "video.gif"), why)
    with pytest.raises(mpies.ConfigError, match=why):
        mpies.load(run).best.evaluate(20, deterministic=False)


def test_a_single_episode_has_no_confidence_interval(run):
    result = json.loads(invoke("evaluate", run, "--episodes", 1, "--json").stdout)
    assert result["interval"] is None and result["mean"] == result["returns"][0]
    ended = invoke("evaluate", run, "--episodes", 1)
    assert "confidence" not in ended.stdout
    assert f": return {result['mean']:.2f} in a held-out episode of {result['length']:.0f} steps\n" in ended.stdout


def test_a_file_that_is_no_policy_is_refused(run, tmp_path):
    (tmp_path / "garbage.h5").write_bytes(b"x" * 1000)
    (tmp_path / "empty").mkdir()
    assert_refused(invoke("evaluate", tmp_path / "garbage.h5"), "garbage.h5", "not a file of mpies")
    assert_refused(invoke("evaluate", tmp_path / "empty"), "is a folder, but not a run")
    assert_refused(invoke("evaluate", list_checkpoints(run)[0]), "is not a policy")
    assert_refused(invoke("evaluate", tmp_path / "absent"), "absent: cannot be read")
