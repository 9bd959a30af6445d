"""Runs that start from a policy of another program: Stable-Baselines3, OpenAI's starter, estool, es_on_gke."""

import io
import itertools
import json
import pickle
import shlex
import zipfile

import numpy as np
import pytest

from mpies.config.loading import validate_config
from mpies.core.errors import ConfigError
from mpies.policies.imported import read_first_policy
from mpies.training.normalizer import Normalizer
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
    ended = run_mpies(0, "train", config, *added, "solver.population=4", "noise.size=100000", "evaluation.episodes=2")
    assert ended.code == 0, ended.stderr
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
    content = pickle.dumps(Thief(str(tmp_path / "stolen")))
    with zipfile.ZipFile(tmp_path / "model.zip") as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    if member == "policy.pth":
        image = io.BytesIO()
        with zipfile.ZipFile(image, "w") as tensors:
            tensors.writestr("archive/data.pkl", content)
        members[member] = image.getvalue()
    else:
        import base64

        data = json.loads(members["data"])
        data["policy_class"][":serialized:"] = base64.b64encode(content).decode()
        members["data"] = json.dumps(data).encode()
    with zipfile.ZipFile(tmp_path / "model.zip", "w") as archive:
        for name, value in members.items():
            archive.writestr(name, value)
    if member == "policy.pth":
        with pytest.raises(ConfigError, match=r"cannot be used \(it contains .*open, which is not a tensor\)"):
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


@pytest.mark.parametrize("name", ["model.npz", "model.zip", "model.json", "model.h5"])
def test_a_damaged_file_is_refused_in_one_line(name, tmp_path):
    whole, policy, random = tmp_path / name, {"hidden": [6]} | RAW, np.random.default_rng(0)
    flat = np.concatenate([np.append(weights, biases) for weights, biases in layers([3, 6, 1])])
    if name == "model.npz":
        np.savez_compressed(whole, params=flat)
    elif name == "model.zip":
        with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("data", json.dumps({"policy_kwargs": {"net_arch": [6] * 50}}))
            archive.writestr("policy.pth", flat.tobytes())
    elif name == "model.json":
        whole.write_text(json.dumps([flat.tolist()]))
    else:
        save_openai(whole, layers([3, 6, 1]), np.zeros(3), np.ones(3))
    task, damaged = Task(validate_config({"environment": {"id": "Pendulum-v1"}, "policy": policy}, "config")), 0
    content, path = whole.read_bytes(), tmp_path / f"damaged{whole.suffix}"
    for _ in range(300):
        changed = bytearray(content)
        for place in random.integers(len(changed), size=2):
            changed[place] = random.integers(256)
        path.write_bytes(changed)
        try:
            read_first_policy(path, path.name, task.policy)
        except ConfigError as error:
            damaged += "\n" not in str(error)
    assert damaged > 100


def layers(sizes, seed=3):
    """Random weights (inputs, outputs) and biases of each layer."""
    random = np.random.default_rng(seed)
    return [
        (0.5 * random.standard_normal((rows, columns)), 0.1 * random.standard_normal(columns))
        for rows, columns in itertools.pairwise(sizes)
    ]


def save_openai(path, parameters, mean, deviation, nonlinearity="tanh", bins="continuous:"):
    """A file as MujocoPolicy.save writes it: a variable each, and the pickled arguments of the constructor."""
    h5py = pytest.importorskip("h5py")
    made = {"ac_bins": bins, "ac_noise_std": 0.01, "connection_type": "ff", "hidden_dims": [8, 6]}
    with h5py.File(path, "w") as file:
        for number, (weights, biases) in enumerate(parameters):
            layer = "out" if number == len(parameters) - 1 else f"l{number}"
            file[f"MujocoPolicy/{layer}/w:0"], file[f"MujocoPolicy/{layer}/b:0"] = weights, biases
        file["MujocoPolicy/ob_mean:0"], file["MujocoPolicy/ob_std:0"] = mean, deviation
        file.attrs["name"] = "MujocoPolicy"
        content = pickle.dumps(((Thief("stolen"),), {**made, "nonlin_type": nonlinearity}), protocol=-1)
        file.attrs["args_and_kwargs"] = np.void(content)


def test_a_policy_of_openais_starter_brings_its_statistics(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    parameters, mean, deviation = layers([3, 8, 6, 1]), np.array([0.1, -0.2, 3.0]), np.array([0.4, 1.5, 0.1])
    save_openai(tmp_path / "snapshot.h5", parameters, mean, deviation, "elu")
    task, arrays = first_policy("snapshot.h5", "Pendulum-v1", {"hidden": [8, 6], "activation": "elu"})
    observations = draw(3)
    x = ((observations - mean) / deviation).clip(-5, 5)
    for weights, biases in parameters[:-1]:
        x = x @ weights + biases
        x = np.where(x > 0, x, np.expm1(x))
    expected = (x @ parameters[-1][0] + parameters[-1][1]).clip(-2, 2)
    assert np.allclose(act(task, arrays, observations), expected, atol=1e-4)
    normalizer = Normalizer(3)
    normalizer.restore({key: arrays[f"normalizer/{key}"] for key in ("count", "total", "squares")})
    assert np.allclose(normalizer.mean_and_deviation(), [mean, deviation], rtol=1e-6)
    assert not (tmp_path / "stolen").exists()
    with pytest.raises(
        ConfigError, match=r"snapshot.h5 differs from this policy; .* policy.normalize_observations=true"
    ):
        first_policy("snapshot.h5", "Pendulum-v1", {"hidden": [8, 6], "activation": "elu"} | RAW)


def test_bins_of_openais_starter(tmp_path):
    parameters = layers([3, 8, 6, 5])
    save_openai(tmp_path / "bins.h5", parameters, np.zeros(3), np.ones(3), bins="uniform:5")
    policy = {"hidden": [8, 6], "bins": "uniform:5"}
    task, arrays = first_policy(tmp_path / "bins.h5", "Pendulum-v1", policy)
    observations = draw(3)
    x = observations.clip(-5, 5)
    for weights, biases in parameters[:-1]:
        x = np.tanh(x @ weights + biases)
    chosen = (x @ parameters[-1][0] + parameters[-1][1]).argmax(axis=1)
    assert np.allclose(act(task, arrays, observations)[:, 0], np.linspace(-2, 2, 5)[chosen])
    with pytest.raises(ConfigError, match=r"add policy\.bins=uniform:5$"):
        first_policy(tmp_path / "bins.h5", "Pendulum-v1", {"hidden": [8, 6]})
    save_openai(tmp_path / "leaky.h5", parameters, np.zeros(3), np.ones(3), nonlinearity="lrelu", bins="uniform:5")
    with pytest.raises(ConfigError, match=r"its lrelu has a slope of 0\.2"):
        first_policy(tmp_path / "leaky.h5", "Pendulum-v1", policy | {"activation": "lrelu"})


@pytest.mark.parametrize("best", [False, True])
def test_a_policy_of_estool(best, tmp_path):
    parameters = layers([4, 10, 7, 1])  # 3 observations and the time
    flat = np.concatenate([np.concatenate([weights.ravel(), biases]) for weights, biases in parameters]).round(4)
    (tmp_path / "game.json").write_text(json.dumps([flat.tolist(), 12.5] if best else [flat.tolist()]))
    policy = {"hidden": [10, 7], "output": "scale", "time_input": 1000} | RAW
    task, arrays = first_policy(tmp_path / "game.json", "Pendulum-v1", policy)
    observations, steps = draw(3), np.arange(50) * 20
    x = np.column_stack([observations, steps / 1000])
    for weights, biases in parameters:
        x = np.tanh(x @ weights + biases)
    actor = task.policy.bind(np.tile(arrays["parameters"], (50, 1)))
    assert np.allclose(actor(observations, steps), 2 * x, atol=2e-3)  # estool writes four decimals
    with pytest.raises(ConfigError, match=r"it has 135 parameters, but an MLP of 4-10-1 has 61; set policy.hidden"):
        first_policy(tmp_path / "game.json", "Pendulum-v1", policy | {"hidden": [10]})


def test_a_policy_of_estool_with_noise_brings_its_deviations(tmp_path):
    parameters = layers([3, 5, 1])
    flat = np.concatenate([*(np.append(weights, biases) for weights, biases in parameters), [-1.2]])
    (tmp_path / "game.json").write_text(json.dumps([flat.tolist()]))
    policy = {"hidden": [5], "output": "scale", "sampling": "gaussian"} | RAW
    _, arrays = first_policy(tmp_path / "game.json", "Pendulum-v1", policy)
    assert np.allclose(arrays["parameters"], [*flat[:-1], -0.6])  # the deviation is exp(x / 2) there
    _, arrays = first_policy(tmp_path / "game.json", "Pendulum-v1", policy | {"sampling": "none"})
    assert np.allclose(arrays["parameters"], flat[:-1])


def test_a_policy_of_es_on_gke(tmp_path):
    parameters = layers([3, 12, 1])
    flat = np.concatenate([np.append(weights.T, biases) for weights, biases in parameters])
    np.savez(tmp_path / "best_model.npz", params=flat)
    policy = {"hidden": [12], "activation": "relu", "output": "scale"} | RAW
    task, arrays = first_policy(tmp_path / "best_model.npz", "Pendulum-v1", policy)
    observations = draw(3)
    hidden = np.maximum(0, observations @ parameters[0][0] + parameters[0][1])
    expected = 2 * np.tanh(hidden @ parameters[1][0] + parameters[1][1])
    assert np.allclose(act(task, arrays, observations), expected, atol=1e-5)
    with pytest.raises(ConfigError, match=r"add policy\.output=scale policy\.normalize_observations=false$"):
        first_policy(tmp_path / "best_model.npz", "Pendulum-v1", {"hidden": [12]})
    np.savez(tmp_path / "pickled.npz", params=np.array([Thief(str(tmp_path / "stolen"))], object))
    with pytest.raises(ConfigError, match=r"pickled.npz cannot be used"):
        first_policy(tmp_path / "pickled.npz", "Pendulum-v1", policy)
    assert not (tmp_path / "stolen").exists()


@pytest.mark.parametrize(
    ("name", "content"),
    [("x.json", b"{}"), ("x.json", b"[[1, 2"), ("x.npz", b"no"), ("x.h5", b"\x89HDF\r\n\x1a\nno"), ("x.zip", b"no")],
)
def test_a_file_that_is_none_of_these_is_refused_in_one_line(name, content, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match=rf"^policy.init_from: [^\n]*{name} [^\n]+$"):
        first_policy(tmp_path / name, "Pendulum-v1", RAW)
