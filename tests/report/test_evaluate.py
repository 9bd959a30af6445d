"""`mpies evaluate`: held-out episodes of a saved policy, and policies that cannot be played."""

import json

import numpy as np
import pytest

import mpies
from mpies.report import evaluate as tools
from mpies.runs.formats import hdf5
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
    return json.loads(invoke("evaluate", path, "--episodes", 20, "--json", *arguments, code=0).stdout)


def test_held_out_episodes_are_played_and_reported_in_json(run):
    result = evaluate(run)
    returns = result["returns"]
    assert result["episodes"] == len(returns) == 20
    assert result["mean"] == pytest.approx(np.mean(returns)) and result["std"] == pytest.approx(np.std(returns, ddof=1))
    assert result["interval"] == pytest.approx(1.96 * np.std(returns, ddof=1) / np.sqrt(20))
    assert (result["min"], result["max"]) == (min(returns), max(returns))
    assert result["length"] == pytest.approx(result["mean"])  # a reward of 1 a step
    assert result["failures"] == 0 and result["environment"] == "CartPole-v1"
    assert evaluate(run / "best.h5")["returns"] == returns != evaluate(run, "--seed", 99)["returns"]
    single = json.loads(invoke("evaluate", run, "--episodes", 1, "--json").stdout)
    assert single["interval"] is None and single["mean"] == single["returns"][0]
    told = invoke("evaluate", run, "--episodes", 1).stdout
    assert f": return {single['mean']:.2f} in a held-out episode of {single['length']:.0f} steps\n" in told


def test_stochastic_draws_actions_as_in_training_and_always_the_same_ones(run, trained):
    noisy = trained(NOISY)
    drawn = evaluate(noisy, "--stochastic")["returns"]
    assert drawn == mpies.load(noisy).best.evaluate(20, deterministic=False).returns.tolist()
    assert drawn != evaluate(noisy)["returns"]
    assert drawn != evaluate(noisy, "--stochastic", "--seed", 99)["returns"]
    why = "its actions are not drawn at random"
    assert_refused(invoke("evaluate", run, "--stochastic"), why)
    assert_refused(invoke("play", run, "--stochastic", "--video", run / "video.gif"), why)
    with pytest.raises(mpies.ConfigError, match=why):
        mpies.load(run).best.evaluate(20, deterministic=False)


def test_the_policy_of_a_recipe_is_evaluated_exported_and_loaded_by_its_name(here):
    result = evaluate("cartpole")
    assert result["policy"].endswith("/results/cartpole/policy.h5") and result["mean"] > 400
    assert mpies.Policy.load("cartpole").evaluate(20).returns.tolist() == result["returns"]
    invoke("export", "cartpole", "--to", "policy.npz", code=0)
    for command in (["evaluate"], ["play", "--video", "video.gif"], ["export", "--to", "x.npz"]):
        assert_refused(invoke(*command, "cartpol"), "cartpol: cannot be read", "name of a recipe, such as cartpole")


def test_the_mean_of_a_generation_is_evaluated_and_played(run, here):
    last = mpies.load(run).generation
    for generation in (0, last):
        result = evaluate(run, "--generation", generation)
        assert (result["generation"], result["policy"]) == (generation, str(run))
        assert result["returns"] == mpies.load(run).policy(generation).evaluate(20).returns.tolist()
    assert evaluate(run / "policy.h5")["returns"] == result["returns"] != evaluate(run, "--generation", 0)["returns"]
    video = "--video", here / "video.gif"
    played = invoke("play", run, "--generation", 0, *video, code=0)
    assert "video.gif: generation 0, return" in played.stdout
    both = "--generation", 1, "--member", "1,0"
    assert_refused(invoke("play", run, *both), "--generation has no effect with --member")
    for path, generation, words in (
        (run / "policy.h5", 0, "policy.h5: is a single policy; --generation needs a run directory"),
        ("cartpole", 0, "cartpole: is a single policy; --generation needs a run directory"),
        (here / "absent", 0, "absent: cannot be read"),
        (run, last + 1, f"generation {last + 1} is not in its ledger, which ends at {last}"),
        (run, -1, "-1 is not in the range x>=0"),
    ):
        for command in (["evaluate"], ["play", *video]):
            assert_refused(invoke(*command, path, "--generation", generation), words)


@pytest.mark.parametrize(("count", "more"), [(1, ""), (2, ", and 1 other reason"), (3, ", and 2 other reasons")])
def test_the_first_reason_of_failed_episodes_is_told(count, more):
    result = {"environment": "X-v0", "policy": "run", "generation": 3, "failures": 4, "episodes": 4}
    line = tools.describe_evaluation(result | {"reasons": ["a", "b", "c"][:count]})
    assert line == f"X-v0, run, generation 3: 4 of 4 held-out episodes failed (a{more})"


def test_a_policy_of_envpool_whose_world_is_another_one_in_gymnasium_or_not_there_is_not_shown(here):
    pytest.importorskip("envpool")
    few = ["solver.population=4", "stop.generations=1", "evaluation.episodes=2", "noise.size=20000", "policy.hidden=[]"]
    invoke("train", "Blackjack-v1", *few, "--out", "run", code=0)
    for which in ([], ["--member", "1,0"]):
        words = "Blackjack-v1 has another shape in gymnasium", "it needs 92 parameters", "the policy has 8 and "
        assert_refused(invoke("play", "run", *which, "--video", "video.gif"), *words)
    invoke("evaluate", "run", "--episodes", "2", code=0)
    invoke("train", "CheetahRun-v1", *few, "environment.max_steps=5", "--out", "cheetah", code=0)
    assert_refused(invoke("play", "cheetah", "--video", "video.gif"), "EnvPool has it, draws no pictures")


def test_a_policy_with_statistics_of_other_observations_is_refused_by_what_differs(run, tmp_path):
    arrays, attributes = hdf5.read(run / "best.h5")
    arrays["normalization"] = np.ones((2, 3))
    (tmp_path / "other.h5").write_bytes(hdf5.pack(arrays, attributes))
    refused = invoke("evaluate", tmp_path / "other.h5")
    assert_refused(refused, "CartPole-v1 has another shape", "statistics of 4 observations", "has 58 and 3")
