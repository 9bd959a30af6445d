"""mpies.Policy: a saved policy acts, is evaluated, saved and turned into a PyTorch module."""

import copy
import logging
import pickle
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import yaml

import mpies
from mpies.config.loading import resolved
from mpies.training.task import Task
from tests.envs.rover import Images, Rover
from tests.policies.examples import save_policy
from tests.support import CARTPOLE, FAULTY, FAULTY_MODULE, train

SMALL = "environment: {{id: '{}', max_steps: 50}}\npolicy: {{{}}}\n"
OF_IMAGES = """
environment: {id: "tests.envs.rover:Images", kwargs: {actions: gears}, max_steps: 50}
policy: {kind: conv, convolutions: [[2, 3, 2]], hidden: [8], reference: 8, activation: tanh}
"""
POLICIES = {
    "mlp": ("gymnasium:CartPole-v1", "hidden: [8]"),
    "mlp without normalisation": ("gymnasium:CartPole-v1", "hidden: [8], normalize_observations: false"),
    "lstm": ("gymnasium:CartPole-v1", "kind: lstm, hidden: 4"),
    "gru, scaled": ("gymnasium:Pendulum-v1", "kind: gru, hidden: 4, output: scale"),
    "time": ("gymnasium:Pendulum-v1", "hidden: [], time_input: 50"),
    "bins": ("gymnasium:Pendulum-v1", "hidden: [4], bins: 'uniform:5'"),
    "drawn": ("gymnasium:CartPole-v1", "hidden: [4], sampling: softmax"),
    "gaussian": ("gymnasium:Pendulum-v1", "hidden: [4], sampling: gaussian"),
}
REMEMBERS = ("lstm", "gru, scaled", "time")
in_all_kinds = pytest.mark.parametrize("kind", POLICIES)


def make_policy(text, folder):
    """A policy for YAML text, with random parameters and observation statistics, as if it had been trained."""
    return mpies.Policy.load(save_policy(yaml.safe_load(text), folder / "policy.h5"))


@pytest.fixture
def policy_of(tmp_path):
    """A function from a key of POLICIES to such a policy."""
    return lambda kind: make_policy(SMALL.format(*POLICIES[kind]), tmp_path)


def assert_plays_as_evaluated(policy, env, episodes):
    """The policy has the same returns in its held-out episodes in a gymnasium environment, and not always one."""
    returns = []
    for seed in Task(policy.config).evaluation_seeds(0, 0, episodes):
        observation, _ = env.reset(seed=int(seed))
        policy.reset()
        total, over = 0.0, False
        while not over:
            observation, reward, terminated, truncated, _ = env.step(policy(observation))
            total, over = total + float(reward), terminated or truncated
        returns.append(total)
    np.testing.assert_array_equal(returns, policy.evaluate(episodes=episodes).returns)
    assert len(set(returns)) > 1


def make_env(kind):
    return gymnasium.make(POLICIES[kind][0], max_episode_steps=50)


def draw_observations(env, count):
    """Observations (count, o) at which most policies do not all do the same."""
    return np.random.default_rng(1).normal(size=(count, *env.observation_space.shape)).astype(np.float32)


@in_all_kinds
def test_an_episode_in_the_real_environment_has_the_return_that_evaluate_reports(kind, policy_of):
    assert_plays_as_evaluated(policy_of(kind), make_env(kind), 6)


@in_all_kinds
def test_a_batch_has_the_actions_of_its_observations(kind, policy_of):
    policy, env = policy_of(kind), make_env(kind)
    observations = draw_observations(env, 70)
    actions = policy(observations)
    assert len(actions) == 70
    for observation, action in zip(observations, actions, strict=True):
        policy.reset()
        alone = policy(observation)
        np.testing.assert_array_equal(alone, action)
        assert alone in env.action_space


def test_discrete_observations_and_actions_of_several_parts(tmp_path):
    policy, env = make_policy(SMALL.format("tests.envs.rover:Rover", "hidden: [4]"), tmp_path), Rover()
    assert_plays_as_evaluated(policy, env, 3)
    singles = [env.reset(seed=seed)[0] for seed in range(3)]
    batch = {key: np.array([one[key] for one in singles]) for key in ("lamps", "gears", "charge")}
    batch["sight"] = tuple(np.array(part) for part in zip(*(one["sight"] for one in singles), strict=True))
    for one, action in zip(singles, policy(batch), strict=True):
        np.testing.assert_equal(action, policy(one))
    with pytest.raises(mpies.UserError, match="sight"):
        policy({**singles[0], "sight": (np.zeros((2, 2)), 7)})
    wrong = {
        "observation has no 'charge'": {},
        "must hold equally many, but hold {": {"charge": np.zeros((2, 1))},
        "observation['charge'] has shape (1,), and a batch of n has (n, 1), but this": {"charge": np.zeros((3, 2))},
    }
    for words, observations in wrong.items():
        with pytest.raises(mpies.UserError, match=re.escape(words)):
            policy({key: batch[key] for key in batch if key != "charge"} | observations)


def test_images_and_actions_that_do_not_count_from_0(tmp_path):
    policy, env = make_policy(OF_IMAGES, tmp_path), Images("gears")
    assert_plays_as_evaluated(policy, env, 4)
    images = np.stack([env.reset(seed=seed)[0] for seed in range(40)])
    policy.reset()
    actions = policy(images)
    policy.reset()
    assert actions.tolist() == [policy.predict(image)[0] for image in images]


def test_a_replay_of_images_acts_before_the_run_has_saved_a_policy(tmp_path):
    run = train(tmp_path, OF_IMAGES + "solver: {population: 4}\nnoise: {size: 10000}\nstop: {generations: 2}")
    images = np.random.default_rng(1).integers(256, size=(40, 2, 14, 12), dtype=np.uint8)
    expected = mpies.load(run).policy(1)(images)
    for name in ("best.h5", "policy.h5"):
        (run / name).unlink()
    np.testing.assert_array_equal(mpies.load(run).policy(1)(images), expected)


@pytest.mark.parametrize("kind", REMEMBERS)
def test_what_a_policy_remembers_is_held_by_the_object_until_reset(kind, policy_of):
    policy, env = policy_of(kind), make_env(kind)
    observations = 0.1 * draw_observations(env, 8)
    action_of = lambda: [np.asarray(policy.predict(one, policy._state)[0]).tolist() for one in observations]  # noqa: E731
    first, state = action_of(), policy._state
    for one in observations:
        policy(one)
    assert state is None and policy._state is not None
    if kind != "lstm":  # whose two actions may agree
        assert action_of() != first
    policy.reset()
    assert action_of() == first
    policy(observations)
    with pytest.raises(mpies.UserError, match="the state of 8 episodes, but was given 1 observation"):
        policy(observations[0])


@pytest.mark.parametrize("kind", REMEMBERS)
def test_predict_leaves_the_object_as_it_is_and_begins_episodes(kind, policy_of):
    policy, env = policy_of(kind), make_env(kind)
    first, second = draw_observations(env, 3), draw_observations(env, 6)[3:]
    action, state = policy.predict(first)
    assert policy._state is None
    before = copy.deepcopy(state)
    went_on, _ = policy.predict(second, state)
    fresh, _ = policy.predict(second)
    mixed, _ = policy.predict(second, state, episode_start=[True, False, False])
    np.testing.assert_array_equal(mixed[0], fresh[0])
    np.testing.assert_array_equal(mixed[1:], went_on[1:])
    np.testing.assert_equal(state, before)
    np.testing.assert_array_equal(action, policy(first))


@pytest.mark.parametrize("kind", ["drawn", "gaussian"])
def test_actions_are_drawn_where_training_drew_them(kind, policy_of):
    policy, env = policy_of(kind), make_env(kind)
    batch = np.repeat(draw_observations(env, 1), 50, axis=0)
    policy.reset(seed=3)
    drawn, _ = policy.predict(batch, deterministic=False)
    assert len(np.unique(drawn)) > 1
    certain, _ = policy.predict(batch)
    assert len(np.unique(certain)) == 1
    policy.reset(seed=3)
    np.testing.assert_array_equal(policy.predict(batch, deterministic=False)[0], drawn)


@pytest.mark.filterwarnings("ignore")  # Stable-Baselines3 warns of what its own imports use
@pytest.mark.parametrize("kind", ["mlp", "lstm"])
def test_stable_baselines_evaluates_it(kind, policy_of):
    module = pytest.importorskip("stable_baselines3.common.evaluation", reason="Stable-Baselines3 is an extra")
    from stable_baselines3.common.vec_env import DummyVecEnv

    policy, evaluate = policy_of(kind), module.evaluate_policy
    seeds = Task(policy.config).evaluation_seeds(0, 0, 4).tolist()

    class Seeded(gymnasium.Wrapper):
        """Begins its episodes with these seeds, one after the other."""

        def reset(self, **_):
            return self.env.reset(seed=seeds.pop(0) if seeds else 0)

    ours = policy.evaluate(episodes=4).returns
    returns, lengths = evaluate(
        policy, Seeded(make_env(kind)), n_eval_episodes=4, return_episode_rewards=True, warn=False
    )
    np.testing.assert_allclose(returns, ours, rtol=1e-5)  # it keeps rewards as float32
    mean, deviation = evaluate(policy, DummyVecEnv([lambda: make_env(kind)] * 3), n_eval_episodes=6, warn=False)
    assert np.isfinite([mean, deviation]).all() and len(lengths) == 4


def test_numbers_that_are_wrong_are_refused_in_one_line(policy_of):
    policy = policy_of("mlp")
    calls = [(policy.evaluate, "episodes", 1), (policy.reset, "seed", 0), (partial(policy.evaluate, 1), "seed", 0)]
    for call, name, least in calls:
        for value in (-1, 2.5, "3", True):
            with pytest.raises(mpies.UserError) as caught:
                call(value)
            assert str(caught.value) == f"{name} must be a whole number from {least} on, but is {value!r}"
    evaluation = policy.evaluate(np.int64(1), np.int64(3))
    assert len(evaluation.returns) == 1 and np.isnan(evaluation.interval)


def test_failed_episodes_are_told(tmp_path, monkeypatch, caplog):
    (tmp_path / "faulty.py").write_text(FAULTY_MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    policy = make_policy(FAULTY.format(share=0.5), tmp_path)
    with caplog.at_level(logging.WARNING):
        evaluation = policy.evaluate(episodes=20)
    assert 0 < evaluation.failures < 20 and len(evaluation.returns) == 20 - evaluation.failures
    assert "out of balance" in caplog.text and f"{evaluation.failures} of 20" in caplog.text


def test_a_saved_policy_is_the_same(policy_of, tmp_path):
    policy = policy_of("lstm")
    policy.save(tmp_path / "copy.h5")
    copy = mpies.Policy.load(tmp_path / "copy.h5")
    np.testing.assert_array_equal(copy.parameters, policy.parameters)
    assert copy.generation == policy.generation and copy.config == policy.config
    assert copy.evaluate(3).returns.tolist() == policy.evaluate(3).returns.tolist()
    with pytest.raises(mpies.RunError, match="File name too long"):
        mpies.Policy.load(tmp_path / ("long" * 100))
    with pytest.raises(mpies.RunError, match="cannot be written"):
        policy.save(tmp_path / "absent" / "copy.h5")


def test_a_policy_does_not_replace_a_file_of_a_run(trained):
    run = mpies.load(trained(CARTPOLE))
    before = (run.path / "best.h5").read_bytes()
    for saved in (run.policy(1), mpies.AskTell("snes", np.ones(3))):
        with pytest.raises(mpies.ConfigError, match=r"best.h5: is a file of the run in .*; give another file"):
            saved.save(run.path / "best.h5")
    assert (run.path / "best.h5").read_bytes() == before


@pytest.mark.parametrize("kind", REMEMBERS)
def test_a_state_of_another_policy_is_refused_in_one_line(kind, policy_of):
    policy = policy_of(kind)
    observation = np.zeros(4 if kind == "lstm" else 3)
    action, state = policy.predict(observation)
    for wrong in (5, (), state[:-1], (*state, state[0]), [None] * len(state), tuple(np.zeros((1, 9)) for _ in state)):
        with pytest.raises(mpies.UserError, match=r"^state must be what this policy's predict has .*, but is "):
            policy.predict(observation, state=wrong)
    assert policy.predict(observation, state=list(state)) is not None
    np.testing.assert_array_equal(policy.predict(observation, state=None)[0], action)


def test_observations_of_another_form_are_refused_in_one_line(policy_of):
    policy, env = policy_of("mlp"), make_env("mlp")
    shapes = [np.zeros(shape) for shape in ((3,), (2, 5), (2, 2, 4), (), (0, 4))]
    wrong = {"": [*shapes, None, "abcd", [["a", "b", "c", "d"]], [[1, 2], [3]], {"x": 1}]}
    wrong["an observation has shape (4,), but this is a tuple of 2"] = [env.reset(seed=1)]
    wrong["an observation has shape (4,), but this is a tuple of 5"] = [env.step(0)]
    for words, values in wrong.items():
        for value in values:
            with pytest.raises(mpies.UserError, match="CartPole-v1: ") as caught:
                policy(value)
            assert words in str(caught.value) and "\n" not in str(caught.value)
    with pytest.raises(mpies.UserError) as caught:
        policy.predict(np.zeros((3, 4)), episode_start=[True, False])
    assert str(caught.value) == "episode_start must have shape (3,), one for each observation, but has (2,)"


@pytest.mark.parametrize("kind", ["mlp", "lstm"])
def test_a_policy_that_has_acted_can_be_copied_and_sent_to_other_processes(kind, policy_of):
    policy, observation = policy_of(kind), np.ones(4, np.float32)
    policy(observation)
    copies = [copy.deepcopy(policy), pickle.loads(pickle.dumps(policy))]
    action = policy(observation)  # the second of its episode, as theirs is
    assert [one(observation) for one in copies] == [action, action]


def test_a_policy_of_a_solver_in_a_file_is_sent_to_other_processes(tmp_path):
    (tmp_path / "mine.py").write_text("from mpies.solvers.snes import SNES\nclass Mine(SNES): pass\n")
    values = yaml.safe_load(CARTPOLE) | {"solver": {"kind": f"{tmp_path}/mine.py:Mine", "population": 8}}
    policy = mpies.train(values, "stop.generations=1", out=tmp_path / "run", progress=False).best
    sent = pickle.loads(pickle.dumps(policy))
    assert resolved(sent.config) == resolved(policy.config) and sent(np.ones(4)) == policy(np.ones(4))


@pytest.mark.parametrize("kind", ["mlp", "lstm"])
def test_threads_that_share_a_policy_get_their_own_actions(kind, policy_of):
    policy = policy_of(kind)
    batches = [np.random.default_rng(n).normal(size=(32, 4)).astype(np.float32) for n in range(4)]

    def act(batch, expected):
        for _ in range(200):
            np.testing.assert_equal(policy.predict(batch), expected)

    expected, before = list(map(policy.predict, batches)), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    with ThreadPoolExecutor(4) as pool:
        acted = pool.map(act, batches, expected)
    sys.setswitchinterval(before)
    assert list(acted) == [None] * 4  # else it raises what was raised there


def test_a_function_has_a_point_and_no_actions(tmp_path):
    policy = make_policy("environment: {id: 'function:sphere', dimension: 3}\n", tmp_path)
    assert policy.parameters.shape == (3,)
    with pytest.raises(mpies.UserError, match="no observations"):
        policy(np.zeros(3))


@pytest.mark.parametrize(("hide", "action"), [([], "Discrete(3, start=1)"), ([1], "Box(-2, 2, (2,), np.float32)")])
def test_a_policy_acts_where_the_code_of_its_environment_is_not(hide, action, tmp_path, monkeypatch):
    (tmp_path / "home").mkdir()
    monkeypatch.chdir(tmp_path / "home")
    Path("mine.py").write_text(
        "import gymnasium, numpy as np\nfrom gymnasium.spaces import *\n"
        "class Mine(gymnasium.Env):\n"
        f"    observation_space, action_space = Box(-9, 9, (3,), np.float32), {action}\n"
        "    def reset(self, seed=None, options=None): return np.float32([1, 2, seed % 5]), {}\n"
        "    def step(self, action): return np.float32([1, 2, 3]), float(np.sum(action)), True, False, {}\n"
    )
    settings = {"hide": hide, "population": 4, "noise": {"size": 20000}, "generations": 1}
    at_home = mpies.train({"environment": {"id": "mine.py:Mine"}}, out="run", progress=False, **settings).best
    observations = np.random.default_rng(1).normal(size=(5, 3)).astype(np.float32)
    expected = at_home(observations) - (1 if "start" in action else 0)  # the file has no start of an action space
    at_home.save(tmp_path / "policy.h5")
    monkeypatch.chdir(tmp_path)
    abroad = mpies.Policy.load("policy.h5")
    np.testing.assert_array_equal(abroad(observations), expected)
    np.testing.assert_array_equal(abroad(observations[0]), expected[0])
    with pytest.raises(mpies.UserError, match="has shape"):
        abroad(np.zeros(4))
    with pytest.raises(mpies.RunError, match="trust=True"):
        abroad.evaluate(1)
