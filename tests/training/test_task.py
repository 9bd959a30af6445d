"""What a Config asks to be solved: parameters to begin with, seeds, and changes of rewards and of lengths."""

import hashlib
import time

import gymnasium
import numpy as np
import pytest

from mpies.config.environment import EnvironmentSection
from mpies.config.loading import validate_config
from mpies.core.errors import ConfigError
from mpies.core.streams import REFERENCE, stream
from mpies.envs import trial
from mpies.envs.base import SEED_BITS
from mpies.envs.gymnasium_env import GymnasiumEnv
from mpies.runs.formats.policy_file import PolicyFile
from mpies.training.task import Task, draw_reference, make_task_env
from tests.support import CARTPOLE, assert_refused, describe_config, environment_module, invoke

FEW = {"population": 6, "episodes": 2}


def make_task(**sections):
    cartpole = {"environment": {"id": "CartPole-v1"}, "solver": {"population": 16}, "noise": {"size": 20000}}
    return Task(validate_config(cartpole | sections, "x"))


def test_a_function_begins_at_zero_and_a_policy_where_its_seed_says():
    function = make_task(environment={"id": "function:sphere", "dimension": 3})
    assert function.first_policy()["parameters"].tolist() == [0, 0, 0]
    first, same, other = (make_task(seed=seed).first_policy()["parameters"] for seed in (1, 1, 2))
    assert first.tobytes() == same.tobytes() != other.tobytes()


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ({"hidden": [9]}, "has 58 parameters, but this policy has 65"),
        ({"kind": "lstm"}, "has kind mlp, but this policy is of kind lstm"),
        ({"activation": "relu"}, "has activation tanh, but this policy has relu"),
        ({"normalize_observations": False}, "has statistics of 4 observations, but this policy needs 0"),
    ],
)
def test_a_policy_that_does_not_fit_is_refused(policy, message, trained):
    hidden = {} if "kind" in policy else {"hidden": [8]}
    task = make_task(policy=hidden | policy | {"init_from": str(trained(CARTPOLE))})
    with pytest.raises(ConfigError, match=f"policy.init_from: .* {message}; use the same policy and environment"):
        task.first_policy()


def test_after_a_wrong_path_the_corrected_config_is_trained_in_the_same_folder(here, write_config, trained):
    text = CARTPOLE.replace("hidden: [8]", "hidden: [8], init_from: %s")
    assert_refused(invoke("train", write_config(text % "nowhere.h5"), "--out", "run"), "nowhere.h5: cannot be read")
    command = "train", write_config(text % trained(CARTPOLE)), "--out", "run"
    invoke(*command, "stop.generations=1", code=0)
    assert_refused(invoke(*command, "seed=2"), "contains a run of another config")


def test_seeds_depend_on_seed_generation_and_batch_and_antithetic_pairs_share_theirs():
    task = make_task(solver=FEW)
    seeds = task.training_seeds(3, 0)
    by_member = seeds.reshape(6, 2)
    assert np.array_equal(by_member[0::2], by_member[1::2]) and len(np.unique(by_member[0::2])) == 6
    others = make_task(solver=FEW, seed=2).training_seeds(3, 0), task.training_seeds(3, 1), task.training_seeds(4, 0)
    assert all(not np.array_equal(seeds, other) for other in others)
    held_out = task.evaluation_seeds(3, 0, 6)
    assert 2**30 < task.evaluation_seeds(3, 0, 100).max() < 2**31
    assert not set(held_out.tolist()) & set(seeds.tolist())
    assert not np.array_equal(held_out, task.evaluation_seeds(3, 1, 6))
    assert not np.array_equal(held_out, task.evaluation_seeds(3, 0, 6, seed=9))
    shared = make_task(environment={"id": "CartPole-v1", "seeds": "generation"}, solver=FEW).training_seeds(3, 0)
    assert (shared.reshape(6, 2) == shared[:2]).all() and shared[0] != shared[1]


@pytest.mark.parametrize("name", ["evaluation_seeds", "held_out_action_seeds"])
def test_seeds_of_held_out_episodes_are_those_of_the_run_or_of_another_seed(name):
    ours, other = (getattr(make_task(seed=seed), name) for seed in (1, 2))
    assert ours(3, 0, 6).tolist() == other(3, 0, 6, seed=1).tolist() != other(3, 0, 6).tolist()


SWIMMER = {"id": "Swimmer-v5", "backend": "envpool", "seeds": "generation"}


def numbers_of(task, generation, batch=0):
    """The seeds and the numbers of the episodes of a batch, where all members of a generation share theirs."""
    seeds = task.training_seeds(generation, batch)
    return seeds & (1 << SEED_BITS) - 1, seeds >> SEED_BITS


def test_generations_play_the_next_numbered_episodes_of_the_same_environments():
    pytest.importorskip("envpool", reason="EnvPool is not installed")
    task = make_task(environment=SWIMMER, solver={"kind": "ars", "population": 6})
    seeds, numbers = zip(*(numbers_of(task, generation) for generation in range(130)), strict=True)
    assert [set(n.tolist()) for n in numbers[:3]] == [{1}, {2}, {3}]
    assert all((s == s[0]).all() for s in seeds) and len({s[0] for s in seeds}) == 3  # 64, 64 and 2 generations
    assert [n[0] for n in numbers[62:66]] == [63, 64, 1, 2]
    plain = make_task(environment=SWIMMER | {"backend": "gymnasium"}, solver={"kind": "ars", "population": 6})
    assert np.array_equal(plain.training_seeds(0, 0), seeds[0])
    pairs = make_task(environment={"id": "Swimmer-v5", "backend": "envpool"}, solver=FEW)
    assert not (plain.training_seeds(1, 0) >> SEED_BITS).any() and not (pairs.training_seeds(3, 0) >> SEED_BITS).any()
    seeds, numbers = numbers_of(make_task(environment=SWIMMER, solver=FEW), 3)
    assert len(np.unique(seeds)) == 2 and len(set(numbers.tolist())) == 1


def test_batches_of_a_generation_with_numbered_episodes_follow_each_other():
    pytest.importorskip("envpool", reason="EnvPool is not installed")
    task = make_task(environment=SWIMMER, solver={"kind": "pgpe", "population": 6, "interactions": 100})
    order = [(generation, batch) for generation in range(4) for batch in range(16)]
    seeds, numbers = zip(*(numbers_of(task, *one) for one in order), strict=True)
    assert [n[0] for n in numbers] == list(range(1, 65)) and len({s[0] for s in seeds}) == 1
    later = [numbers_of(task, *one) for one in [(0, 16), (4, 0)]]
    assert all(n[0] == 1 and s[0] != seeds[0][0] for s, n in later)


def test_only_a_policy_that_draws_actions_has_seeds_for_them():
    assert make_task().action_seeds(0, 0) is None
    assert make_task(environment={"id": "function:sphere", "dimension": 3}).action_seeds(0, 0) is None
    seeds = make_task(policy={"sampling": "softmax"}).action_seeds(0, 0)
    assert seeds.shape == (16,) and len(np.unique(seeds)) == 16


@pytest.mark.parametrize(("policy", "fraction"), [({}, 0.1), ({"statistics_fraction": 0.5}, 0.5)])
def test_the_configured_share_of_rollouts_feeds_the_statistics(policy, fraction):
    task = make_task(policy=policy, solver={"population": 4000})
    assert task.training_samples(0, 0).mean() == pytest.approx(fraction, abs=0.03)
    assert not make_task(policy={"normalize_observations": False}).training_samples(0, 0).any()


class Pictures(gymnasium.Env):
    """Images; an episode ends after `least` to `most` steps, or earlier where action 2 is taken."""

    observation_space = gymnasium.spaces.Box(0, 255, (1, 4, 3), np.uint8)
    action_space = gymnasium.spaces.Discrete(3)

    def __init__(self, least=3, most=40):
        self.least, self.most = least, most

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = int(self.np_random.integers(self.least, self.most))
        self.picture = self.np_random.integers(0, 256, (1, 4, 3)).astype(np.uint8)
        return self.picture, {}

    def step(self, action):
        self.picture = self.picture * np.uint8(3) + np.uint8(action)
        self.left -= 1 + (action == 2)
        return self.picture, 0.0, self.left <= 0, False, {}


@pytest.mark.parametrize(
    ("lengths", "digest"),  # the last as in runs of earlier versions
    [((3, 40), "054370cf775ab88d"), ((3, 12), "c92edef3ca991994"), ((900, 901), "eb67e9d8bd334d81")],
)
@pytest.mark.parametrize("instances", [None, 8, 7, 3, 1])
def test_the_reference_batch_does_not_depend_on_how_many_episodes_are_played_together(instances, lengths, digest):
    env = GymnasiumEnv("x", lambda: Pictures(*lengths), False, instances=instances)
    images = draw_reference(env, 100, stream(1, REFERENCE))
    assert images.shape == (100, 12) and hashlib.sha256(images.tobytes()).hexdigest()[:16] == digest


def test_the_reference_batch_does_not_depend_on_the_ranks_of_a_node():
    section = {"id": f"{__name__}:Pictures", "instances": 6, "instances_per": "node", "rebuild": "never"}
    policy = {"kind": "conv", "convolutions": [[2, 2, 1]], "hidden": [], "reference": 40}
    config = validate_config({"environment": section, "policy": policy, "noise": {"size": 20000}}, "x")
    one, *others = (Task(config, node_size=size).policy.constants["reference"].tobytes() for size in (1, 2, 6))
    assert others == [one, one]


def test_without_batch_normalization_there_are_no_reference_images_to_be_warned_of(monkeypatch, here, caplog):
    monkeypatch.setattr("mpies.training.task.draw_reference", None)  # nobody calls it
    environment = {"id": f"{__name__}:Pictures", "rebuild": "never"}
    policy = {"kind": "conv", "convolutions": [[2, 2, 1]], "hidden": [], "batch_normalization": False}
    task = make_task(environment=environment, policy=policy)
    assert not task.policy.constants
    arrays = task.first_policy()
    saved = arrays | {"normalization": np.zeros((2, 0), np.float32), "constants/reference": np.zeros((64, 12))}
    PolicyFile(None, task.config, saved, describe_config(task.config) | {"generation": 0}).save(here / "policy.h5")
    again = make_task(environment=environment, policy=policy | {"init_from": "policy.h5"})
    np.testing.assert_array_equal(again.first_policy()["parameters"], arrays["parameters"])
    assert caplog.text == ""


@pytest.mark.parametrize(("rebuild", "served"), [("auto", 1000), ("always", 1), ("never", 1000)])
def test_rebuild_decides_whether_each_episode_gets_a_new_environment(rebuild, served):
    section = EnvironmentSection(id="CartPole-v1", backend="gymnasium", rebuild=rebuild)
    assert make_task_env(section)._rebuild_every == served


def test_too_small_a_noise_table_is_refused():
    with pytest.raises(ConfigError, match=r"noise.size must be at least 4610, .* but is 4609; leave it out"):
        make_task(noise={"size": 4609})
    make_task(noise={"size": 4610})
    expected = r"at least 25040002, .* but is 25000000; set it to 25040130 or more, or use fewer parameters$"
    with pytest.raises(ConfigError, match=expected):
        make_task(environment={"id": "gymnasium:CartPole-v1"}, noise={}, policy={"hidden": [5000, 5000]})


def test_a_table_that_is_too_short_for_noise_of_their_own_is_named():
    assert make_task().find_shared_noise() == ""
    longest = 4610 + 16 * 4  # a row of each of the four pairs, and 16 normals between their beginnings
    assert make_task(noise={"size": longest}, solver={"population": 8}).find_shared_noise() == ""
    assert make_task(noise={"size": 4610}, solver={"population": 8}).find_shared_noise() == (
        "members share their noise: it starts in one place of a table of 4610 normals, but 4 different directions are "
        f"drawn a generation; set noise.size to at least {longest}"
    )
    assert "in 3 places" in make_task(noise={"size": 4642}, solver={"population": 8}).find_shared_noise()


def test_a_solver_that_does_not_exist_is_a_users_mistake(here):
    (here / "broken.py").write_text("1 / 0\n")
    for kind, words in (("snez", "solver.kind must be one of"), ("broken.py:Mine", "ZeroDivisionError")):
        assert_refused(invoke("check", "CartPole-v1", f"solver.kind={kind}"), words)


def write_room(folder, length, step="pass"):
    """An environment that ignores its seed, as room.py:Room."""
    reset = "return np.zeros(2, np.float32), {}"
    (folder / "room.py").write_text(environment_module("Room", reset=reset, step=step, length=length))


@pytest.mark.parametrize(
    ("length", "max_steps", "is_endless"), [(1000, None, False), (1001, None, True), (10**9, 50, False)]
)
def test_an_environment_that_never_ends_is_named_before_it_is_trained(length, max_steps, is_endless, here):
    write_room(here, length)
    limit = "" if max_steps is None else f"environment.max_steps={max_steps}"
    checked = invoke("check", "room.py:Room", *limit.split())
    assert checked.code == 0 and ("not over after 1,000 steps" in checked.stderr) == is_endless
    probed = invoke("probe", "room.py:Room", "--episodes", 0, "--steps", 5)
    assert ("or set environment.max_steps" in probed.stdout) == (length > 1000)
    task = make_task(environment={"id": "room.py:Room", "max_steps": max_steps})
    found = task.find_warnings()
    assert any("not over" in warning for warning in found) == is_endless
    assert found[-1].startswith("room.py:Room: different seeds give the same episode, for 50 steps at least")
    assert not make_task().find_warnings()  # the pole of CartPole-v1 begins elsewhere with each seed


@pytest.mark.parametrize("name", ["unseeded.py:Unseeded", "tests.envs.misbehaving:Good"])
def test_an_environment_that_ignores_its_seed_is_warned_of(name, here):
    reset = "return np.random.random(2).astype(np.float32), {}"
    (here / "unseeded.py").write_text(environment_module("Unseeded", reset=reset, length=5))
    found = " ".join(make_task(environment={"id": name, "hide": [1]}).find_warnings())
    assert (f"{name}: two episodes with the same seed differ" in found) == (name == "unseeded.py:Unseeded"), found


def test_a_slow_environment_does_not_hold_up_the_ranks_that_wait_for_it(here, monkeypatch):
    """Each start tries it out, also one after the loss of a rank."""
    monkeypatch.setattr(trial, "PATIENCE", 0.2)
    write_room(here, 10**9, "time.sleep(0.01)")
    task, began = make_task(environment={"id": "room.py:Room"}), time.monotonic()
    assert task.find_warnings() == [] and time.monotonic() - began < 3
