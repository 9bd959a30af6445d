"""mpies export: an exported policy acts as the trained one."""

import subprocess
import sys

import numpy as np
import pytest
import yaml

import mpies
from mpies.config.loading import as_yaml, resolved, validate_config
from mpies.policies import aligned_stack
from mpies.policies.exported import Policy
from mpies.runs import hdf5
from mpies.training.task import Task
from tests.support import assert_refused, invoke

POLICIES = {
    "discrete": ("CartPole-v1", {"hidden": [16, 8], "activation": "relu"}),
    "linear": ("CartPole-v1", {"hidden": [], "normalize_observations": False, "bias": False}),
    "clip": ("Pendulum-v1", {"hidden": [32, 32], "activation": "elu"}),
    "scale": ("Pendulum-v1", {"hidden": [7], "activation": "lrelu", "output": "scale"}),
    "floor": ("Pendulum-v1", {"hidden": [7], "output": "floor"}),
    "wide": ("HalfCheetah-v5", {"hidden": [64, 64]}),
}


@pytest.fixture(scope="module", params=POLICIES)
def policy(request, tmp_path_factory):
    """A policy file with random parameters, 1,000 observations, and what training's policy does on them."""
    environment, options = POLICIES[request.param]
    config = validate_config({"environment": {"id": environment}, "policy": options}, "test")
    task, random = Task(config), np.random.default_rng(3)
    size = task.env.interface.observation_size
    arrays = {
        "parameters": random.normal(0, 0.15, task.dimension).astype(np.float32),
        "normalization": np.stack([random.normal(size=size), random.uniform(0.5, 2, size)]).astype(np.float32),
    }
    path = tmp_path_factory.mktemp("policy") / "policy.h5"
    path.write_bytes(hdf5.pack(arrays, {"config": as_yaml(resolved(config)), "generation": 3}))
    observations = random.normal(0, 3, (1000, size)).astype(np.float32)
    inputs = observations
    if config.policy.normalize_observations:
        inputs = (observations - arrays["normalization"][0]) / arrays["normalization"][1]
        inputs = np.maximum(np.minimum(inputs, np.float32(5)), np.float32(-5))
    stack = aligned_stack(64, task.dimension)
    stack[:] = arrays["parameters"]
    act = task.policy.bind(stack)
    actions = np.concatenate([act(inputs[start : start + 50]).copy() for start in range(0, 1000, 50)])
    return path, observations, actions


def export(policy, to):
    outcome = invoke("export", policy, "--to", to)
    assert outcome.code == 0, outcome.stderr
    return outcome.stdout


def test_the_python_file_acts_to_the_bit_and_needs_numpy_alone(policy, tmp_path):
    path, observations, actions = policy
    about = f"generation 3, {len(hdf5.read(path)[0]['parameters'])} parameters"
    assert export(path, tmp_path / "policy.py").rstrip().endswith(about)
    np.save(tmp_path / "observations.npy", observations)
    program = (
        "import sys, numpy; import policy; act = policy.Policy();"
        "numpy.save('actions.npy', act(numpy.load('observations.npy')));"
        "numpy.save('first.npy', act(numpy.load('observations.npy')[0]));"
        "ours = [name for name in sys.modules if name.split('.')[0] in ('mpies', 'gymnasium')];"
        "assert not ours, ours"
    )
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env={}, check=True)
    found = np.load(tmp_path / "actions.npy")
    assert found.dtype == actions.dtype and found.tobytes() == actions.tobytes()
    assert np.array_equal(np.load(tmp_path / "first.npy"), actions[0])


def test_the_npz_acts_to_the_bit(policy, tmp_path):
    path, observations, actions = policy
    export(path, tmp_path / "policy.npz")
    with np.load(tmp_path / "policy.npz", allow_pickle=False) as arrays:
        assert Policy(arrays)(observations).tobytes() == actions.tobytes()


def test_the_onnx_model_acts_to_a_millionth(policy, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    path, observations, actions = policy
    export(path, tmp_path / "policy.onnx")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(tmp_path / "policy.onnx", options, providers=["CPUExecutionProvider"])
    (found,) = session.run(["action"], {"observation": observations})
    assert found.shape == actions.shape
    np.testing.assert_allclose(found, actions, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("options", [{"hidden": [8]}, {"kind": "lstm", "hidden": 4, "time_input": 9}])
def test_exports_take_the_numbers_that_environment_hide_leaves_out(options, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    environment = {"id": "CartPole-v1", "hide": [3, 1]}
    config, random = validate_config({"environment": environment, "policy": options}, "test"), np.random.default_rng(3)
    arrays = {
        "parameters": random.normal(size=Task(config).dimension).astype(np.float32),
        "normalization": np.stack([random.normal(size=2), random.uniform(0.5, 2, 2)]).astype(np.float32),
    }
    path = tmp_path / "policy.h5"
    path.write_bytes(hdf5.pack(arrays, {"config": as_yaml(resolved(config)), "generation": 3}))
    ours, observations = mpies.Policy.load(path), random.normal(size=(50, 4)).astype(np.float32)
    expected = ours(observations)
    for name in ("policy.npz", "policy.py", "policy.onnx"):
        export(path, tmp_path / name)
    with np.load(tmp_path / "policy.npz", allow_pickle=False) as values:
        policy = Policy(values)
    assert policy(observations).tolist() == expected.tolist() and len(set(expected)) == 2
    with pytest.raises(ValueError, match=r"an observation must be a vector of 4 numbers, but has shape \(50, 2\)"):
        policy(observations[:, [0, 2]])
    session = onnxruntime.InferenceSession(tmp_path / "policy.onnx", providers=["CPUExecutionProvider"])
    feed = {value.name: np.zeros((50, value.shape[1]), np.float32) for value in session.get_inputs()}
    assert session.run(["action"], feed | {"observation": observations})[0].tolist() == expected.tolist()


OWN = """
import gymnasium, numpy as np
class Env(gymnasium.Env):
    observation_space, action_space = gymnasium.spaces.Box(-9, 9, (2,), np.float32), gymnasium.spaces.Discrete(2)
    open = 0
    def __init__(self):
        Env.open += 1
    def reset(self, seed=None, options=None):
        return np.zeros(2, np.float32), {}
    def step(self, action):
        return np.zeros(2, np.float32), 0.0, True, False, {}
    def close(self):
        Env.open -= 1
        print(f"{Env.open} open")
"""


def test_an_export_closes_its_environment(tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    config = validate_config({"environment": {"id": f"{tmp_path}/own.py:Env"}, "policy": {"hidden": [3]}}, "test")
    task = Task(config)
    size = task.dimension
    task.close()
    arrays = {"parameters": np.zeros(size, np.float32), "normalization": np.ones((2, 2), np.float32)}
    path = tmp_path / "own.h5"
    path.write_bytes(hdf5.pack(arrays, {"config": as_yaml(resolved(config)), "generation": 3}))
    assert export(path, tmp_path / "own.npz").splitlines()[0] == "0 open"


def saved_again(path, folder, **sections):
    """A copy of a policy file whose config has these sections."""
    arrays, attributes = hdf5.read(path)
    values = yaml.safe_load(attributes["config"]) | sections
    attributes["config"] = as_yaml(resolved(validate_config(values, "test")))
    (folder / "other.h5").write_bytes(hdf5.pack(arrays, attributes))
    return folder / "other.h5"


def test_what_cannot_be_exported_is_refused_in_one_line(policy, tmp_path):
    path = policy[0]
    assert_refused(
        invoke("export", path, "--to", tmp_path / "policy.pkl"), "policy.pkl: an export must end in .npz, .py or .onnx"
    )
    assert_refused(invoke("export", path, "--to", tmp_path / "absent" / "policy.npz"), "cannot be written")
    function = {"environment": {"id": "function:sphere", "dimension": 3}, "policy": {"kind": "none"}}
    other = saved_again(path, tmp_path, **function)
    assert_refused(
        invoke("export", other, "--to", tmp_path / "policy.py"),
        "function:sphere has no observations; `parameters` is the point that was found",
    )
    assert [file.name for file in tmp_path.iterdir()] == ["other.h5"]
