"""Runs that start from a policy of another program: Stable-Baselines3."""

import io
import json
import pickle
import shlex
import zipfile

import numpy as np
import pytest

from mpies.config.loading import validate_config
from mpies.core.errors import ConfigError
from mpies.policies.imported import import_policy
from mpies.training.task import Task
from tests.support import assert_refused

RAW = {"normalize_observations": False}


def first_policy(path, environment, policy, **environment_keys):
    """The Task and the first arrays of a run that begins from a file."""
    section = {"id": environment, **environment_keys}
    values = {"environment": section, "policy": {**policy, "init_from": str(path)}, "noise": {"size": 200_000}}
    task = Task(validate_config(values, "config"))
    return task, task.first_policy()


def act(task, arrays, observations):
    """Actions of the first policy for observations (n, o), each its own."""
    inputs = observations.astype(np.float32)
    if "normalization" in arrays:
        mean, deviation = arrays["normalization"]
        inputs = ((inputs - mean) / deviation).clip(-5, 5)
    stack = np.tile(arrays["parameters"], (len(inputs), 1)).astype(np.float32)
    actor = task.policy.bind(stack)
    for slot in range(len(inputs)):
        actor.begin(slot)
    return actor(inputs).copy()


def draw(size, count=50, seed=0):
    return np.random.default_rng(seed).standard_normal((count, size)).astype(np.float32)


def make_sb3(path, kind, environment, **options):
    """Save a real model of Stable-Baselines3.  Returns it."""
    sb3 = pytest.importorskip("stable_baselines3", reason="stable-baselines3 is not installed")
    import torch

    activations = {"relu": torch.nn.ReLU, "tanh": torch.nn.Tanh, "elu": torch.nn.ELU}
    if "activation_fn" in options:
        options["activation_fn"] = activations[options["activation_fn"]]
    further = {"buffer_size": 10} if kind in ("DQN", "SAC", "TD3", "DDPG") else {}
    model = getattr(sb3, kind)("MlpPolicy", environment, device="cpu", seed=1, policy_kwargs=options, **further)
    with torch.no_grad():  # actions of a new model are all near 0
        for parameter in model.policy.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape))
    model.save(path)
    return model


@pytest.mark.parametrize(
    ("kind", "environment", "options", "policy"),
    [
        ("PPO", "CartPole-v1", {}, {}),
        ("PPO", "CartPole-v1", {"net_arch": [16], "activation_fn": "relu"}, {"hidden": [16], "activation": "relu"}),
        ("PPO", "CartPole-v1", {"net_arch": []}, {"hidden": [], "activation": "elu"}),
        ("A2C", "Pendulum-v1", {"activation_fn": "elu"}, {"activation": "elu"}),
        ("DQN", "Acrobot-v1", {"net_arch": [32]}, {"hidden": [32], "activation": "relu"}),
        ("SAC", "Pendulum-v1", {"net_arch": [24, 8]}, {"hidden": [24, 8], "activation": "relu", "output": "scale"}),
        ("TD3", "Pendulum-v1", {"net_arch": [24, 8]}, {"hidden": [24, 8], "activation": "relu", "output": "scale"}),
    ],
)
def test_a_policy_of_stable_baselines3_acts_as_it_does_there(kind, environment, options, policy, tmp_path):
    model = make_sb3(tmp_path / "model.zip", kind, environment, **options)
    task, arrays = first_policy(tmp_path / "model.zip", environment, policy | RAW)
    observations = draw(task.env.interface.observation_size)
    low, high = model.observation_space.low, model.observation_space.high
    observations = observations.clip(low, high)
    expected = model.predict(observations, deterministic=True)[0]
    assert np.allclose(act(task, arrays, observations), expected, atol=2e-5)
    assert len(np.unique(expected)) > 1  # a policy that always does the same would prove nothing


def test_the_deviations_of_ppo_are_those_of_gaussian_sampling(tmp_path):
    model = make_sb3(tmp_path / "model.zip", "PPO", "Pendulum-v1", log_std_init=-0.7)
    _, arrays = first_policy(tmp_path / "model.zip", "Pendulum-v1", RAW | {"sampling": "gaussian"})
    assert arrays["parameters"][-1] == pytest.approx(model.policy.log_std.item())


def test_what_does_not_fit_a_model_of_stable_baselines3_is_said_with_what_to_add(tmp_path, run_mpies, write_config):
    make_sb3(tmp_path / "sac.zip", "SAC", "Pendulum-v1", net_arch=[24, 8])
    config = write_config("environment: {id: Pendulum-v1}\npolicy: {init_from: sac.zip}\nstop: {generations: 1}\n")
    refused = run_mpies(0, "train", config)
    assert_refused(
        refused,
        "policy.init_from: sac.zip differs from this policy; add 'policy.hidden=[24, 8]' "
        "policy.output=scale policy.activation=relu policy.normalize_observations=false\n",
    )
    added = shlex.split(refused.stderr.split("; add ")[1])
    run_mpies(0, "train", config, *added, "solver.population=4", "noise.size=100000", "evaluation.episodes=2", code=0)
    assert_refused(
        run_mpies(0, "train", config, *added, "environment.id=MountainCarContinuous-v0"),
        "sac.zip has 3 inputs and 1 outputs, but this environment needs 2 and 1",
    )
    assert_refused(run_mpies(0, "train", config, "policy.kind=gru", "policy.hidden=4"), "but this policy is gru")


class Thief:
    """Runs code where it is unpickled."""

    def __init__(self, path):
        self._path = path

    def __reduce__(self):
        return open, (self._path, "w")


@pytest.mark.parametrize("member", ["policy.pth", "data"])
def test_nothing_of_a_model_is_run(member, tmp_path):
    """Neither a pickle in the place of the tensors, nor the pickles beside the readable texts of `data`."""
    make_sb3(tmp_path / "model.zip", "PPO", "CartPole-v1")
    thief = Thief(str(tmp_path / "stolen"))
    with zipfile.ZipFile(tmp_path / "model.zip") as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    if member == "policy.pth":
        import torch

        image = io.BytesIO()
        torch.save(thief, image)
        members[member] = image.getvalue()
    else:
        import base64

        data = json.loads(members["data"])
        data["policy_class"][":serialized:"] = base64.b64encode(pickle.dumps(thief)).decode()
        members["data"] = json.dumps(data).encode()
    with zipfile.ZipFile(tmp_path / "model.zip", "w") as archive:
        for name, value in members.items():
            archive.writestr(name, value)
    if member == "policy.pth":
        with pytest.raises(ConfigError, match=r"cannot be used \(it contains more than tensors\)"):
            first_policy(tmp_path / "model.zip", "CartPole-v1", RAW)
    else:
        first_policy(tmp_path / "model.zip", "CartPole-v1", RAW)
    assert not (tmp_path / "stolen").exists()


def test_models_that_are_no_mlp_are_refused(tmp_path):
    sb3 = pytest.importorskip("stable_baselines3", reason="stable-baselines3 is not installed")
    sb3.PPO("MlpPolicy", "Pendulum-v1", use_sde=True, device="cpu").save(tmp_path / "sde.zip")
    with pytest.raises(ConfigError, match=r"sde.zip cannot be used \(it uses state-dependent exploration"):
        first_policy(tmp_path / "sde.zip", "Pendulum-v1", RAW)
    for content in (b"", b"PK\x03\x04nonsense"):
        (tmp_path / "torn.zip").write_bytes(content)
        with pytest.raises(ConfigError, match=r"torn.zip cannot be used \([^\n]+\)"):
            first_policy(tmp_path / "torn.zip", "Pendulum-v1", RAW)


def test_a_damaged_file_is_refused_in_one_line(tmp_path):
    whole, path, random = tmp_path / "model.zip", tmp_path / "damaged.zip", np.random.default_rng(0)
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("data", json.dumps({"policy_kwargs": {"net_arch": [6] * 50}}))
        archive.writestr("policy.pth", random.bytes(120))
    section = {"environment": {"id": "Pendulum-v1"}, "policy": {"hidden": [6]} | RAW}
    task, damaged = Task(validate_config(section, "config")), 0
    content = whole.read_bytes()
    for _ in range(300):
        changed = bytearray(content)
        for place in random.integers(len(changed), size=2):
            changed[place] = random.integers(256)
        path.write_bytes(changed)
        try:
            import_policy(path, path.name, task.policy)
        except ConfigError as error:
            damaged += "\n" not in str(error)
    assert damaged > 100


@pytest.mark.parametrize(
    ("name", "content"),
    [("x.json", b"{}"), ("x.json", b"[[1, 2"), ("x.npz", b"no"), ("x.h5", b"\x89HDF\r\n\x1a\nno"), ("x.zip", b"no")],
)
def test_a_file_that_is_none_of_these_is_refused_in_one_line(name, content, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match=rf"^policy.init_from: [^\n]*{name}:? [^\n]+$"):
        first_policy(tmp_path / name, "Pendulum-v1", RAW)
