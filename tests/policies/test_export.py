"""mpies export: exported policies of every kind act as in rollouts.

Real episodes are played twice: by the rollouts' own player, which records what it observed and did, and by the exported
file on these observations.  The last tests are of the arithmetic that exported policies and networks share.
"""

import ast
import json
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import mpies
from mpies.config.loading import validate_config
from mpies.core.errors import ConfigError
from mpies.policies import exported as arithmetic
from mpies.policies.export import as_python
from mpies.policies.exported import ExportedPolicy, aligned_stack, dense, sigmoid, tanh
from mpies.rollouts.batch import evaluation_batch
from mpies.rollouts.queue import play_alone
from mpies.runs.formats import hdf5
from mpies.training.task import Task
from tests.policies.examples import PENDULUM, save_policy
from tests.support import assert_refused, invoke

ROVER, IMAGES, MIXED = "tests.envs.rover:Rover", "tests.envs.rover:Images", {"actions": "mixed"}
CASES = {
    "discrete": ("CartPole-v1", {}, {"hidden": [16, 8], "activation": "relu"}),
    "linear": ("CartPole-v1", {}, {"hidden": [], "normalize_observations": False, "bias": False}),
    "clip": ("Pendulum-v1", {}, {"hidden": [32, 32], "activation": "elu"}),
    "scale": ("Pendulum-v1", {}, {"hidden": [7], "activation": "lrelu", "output": "scale"}),
    "floor": ("Pendulum-v1", {}, {"hidden": [7], "output": "floor"}),
    "wide": ("HalfCheetah-v5", {}, {"hidden": [64, 64]}),
    "lstm": ("LunarLander-v3", {}, {"kind": "lstm", "hidden": 6}),
    "gru": ("Pendulum-v1", {}, {"kind": "gru", "hidden": 5}),
    "elman": ("Pendulum-v1", {}, {"kind": "elman", "hidden": 5, "output": "scale"}),
    "bins": ("LunarLanderContinuous-v3", {}, {"hidden": [8], "bins": "uniform:5"}),
    "time": ("LunarLander-v3", {}, {"hidden": [8], "time_input": 30, "normalize_observations": False}),
    "lstm of all": (ROVER, MIXED, {"kind": "lstm", "hidden": 4, "time_input": 7, "bins": "custom:-1,0,2"}),
    "parts": (ROVER, MIXED, {"hidden": [9]}),
    "scaled parts": (ROVER, {"actions": "two boxes"}, {"hidden": [9], "output": "scale", "sampling": "gaussian"}),
    "bits": (ROVER, {"actions": "lamps"}, {"kind": "gru", "hidden": 4}),
    "one choice": (ROVER, {"actions": "one choice"}, {"hidden": []}),
    "one-hot": ("gymnasium:Blackjack-v1", {}, {"hidden": [8]}),
    "noisy": ("Pendulum-v1", {}, {"hidden": [8], "sampling": "gaussian"}),
}
CONVOLUTIONS = {"kind": "conv", "convolutions": [[3, 4, 2], [4, 3, 1]], "hidden": [7], "reference": 20}
PLAIN = CONVOLUTIONS | {"batch_normalization": False, "hidden": [], "activation": "elu"}
CASES |= {"conv": (IMAGES, MIXED, CONVOLUTIONS), "plain conv": (IMAGES, {"actions": "gears"}, PLAIN)}


def record(task, saved, seeds):
    """Play an episode of each seed as rollouts do.  Returns the observations and the actions of each."""
    player, seen, done = task.player, {}, {}
    open_batch = player.env.open

    def watch(seeds, is_training=False):
        batch = open_batch(seeds, is_training)
        batch.calls = None  # steps in Python, so that they can be watched
        send, receive, running = batch.send, batch.receive, []
        for place, seed in enumerate(seeds):
            seen[seed], done[seed] = [np.array(batch.observations[place], np.float32)], []

        def watched_send(places, actions):
            running[:] = [seeds[place] for place in places]
            for seed, action in zip(running, actions, strict=True):
                done[seed].append(np.array(action))
            send(places, actions)

        def watched_receive():
            observations, rewards, over = receive()
            for seed, row in zip(running, observations, strict=True):
                seen[seed].append(np.array(row, np.float32))
            return observations, rewards, over

        batch.send, batch.receive = watched_send, watched_receive
        return batch

    player.env.open = watch
    normalization = saved["normalization"] if task.observation_size else None
    records, failures = play_alone(player, evaluation_batch(saved["parameters"], np.array(seeds), normalization))
    assert not failures, failures
    assert [len(done[seed]) for seed in seeds] == records["steps"].tolist()
    return [np.stack(seen[seed][:-1]) for seed in seeds], [np.stack(done[seed]) for seed in seeds]


@pytest.fixture(scope="module", params=CASES)
def played(request, tmp_path_factory):
    """A policy file with random parameters, and the observations and actions of episodes that rollouts played."""
    environment, kwargs, options = CASES[request.param]
    values = {"environment": {"id": environment, "kwargs": kwargs, "max_steps": 60}, "policy": options}
    task, random = Task(validate_config(values, "test")), np.random.default_rng(3)
    size, stack = task.env.interface.observation_size, aligned_stack(1, task.dimension)
    # Large weights make an Elman network chaotic: what one runtime rounds otherwise would grow from step to step.
    stack[:] = random.normal(0, 0.3 if task.policy.options.kind == "elman" else 0.8, task.dimension)
    for block, view in zip(task.policy.blocks, task.policy.views(stack), strict=True):
        view *= 1 if len(block.shape) == 2 else 0.2  # of large biases, actions would never change
    normalization = np.stack([random.normal(0, 0.3, size), random.uniform(0.5, 2, size)])
    path = tmp_path_factory.mktemp("policy") / "policy.h5"
    save_policy(values, path, parameters=stack[0], normalization=normalization)
    return path, *record(task, hdf5.read(path)[0], range(11, 16))


def export(policy, to):
    return invoke("export", policy, "--to", to, code=0).stdout


def exported(path, folder):
    """The policy of a file or a run, by way of .npz."""
    export(path, folder / "policy.npz")
    with np.load(folder / "policy.npz", allow_pickle=False) as arrays:
        return ExportedPolicy(arrays)


def test_both_files_act_to_the_bit_through_whole_episodes_alone_and_side_by_side(played, tmp_path):
    path, episodes, actions = played
    policy = exported(path, tmp_path)
    export(path, tmp_path / "policy.py")
    for one in (policy, runpy.run_path(str(tmp_path / "policy.py"))["Policy"]()):
        for observations, expected in zip(episodes, actions, strict=True):
            one.reset()
            found = np.stack([one(observation) for observation in observations])
            assert found.astype(expected.dtype).tobytes() == expected.tobytes()
    assert len(np.unique(np.concatenate(actions), axis=0)) > 1  # it does more than one thing
    if policy.kind in ("lstm", "gru", "elman") or policy.horizon is not None:  # it carries units, or the time
        with pytest.raises(ValueError, match="1 episodes are in progress; call reset before you pass 2 observations"):
            policy(np.tile(episodes[0][0], (2, 1)))
    for _ in range(2):
        policy.reset()
        for step in range(min(len(expected) for expected in actions)):
            found = policy(np.stack([observations[step] for observations in episodes]))
            expected = np.stack([expected[step] for expected in actions])
            assert found.dtype == expected.dtype and found.tobytes() == expected.tobytes()


def test_the_onnx_model_acts_but_for_rounding_through_whole_episodes(played, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    path, episodes, actions = played
    export(path, tmp_path / "policy.onnx")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(tmp_path / "policy.onnx", options, providers=["CPUExecutionProvider"])
    carried = [given.shape[1] for given in session.get_inputs() if given.name == "state"]
    assert [value.name for value in session.get_outputs()] == ["action", "next_state"][: 1 + len(carried)]
    for observations, expected in zip(episodes, actions, strict=True):
        state = [np.zeros((1, width), np.float32) for width in carried]
        for observation, action in zip(observations, expected, strict=True):
            feed = {"observation": observation[None]} | dict(zip(["state"], state, strict=False))
            (found, *state) = session.run(None, feed)
            assert found[0].shape == action.shape
            np.testing.assert_allclose(found[0], action, rtol=1e-5, atol=1e-5)
    feed = {"observation": np.stack([observations[0] for observations in episodes])}  # a batch of first steps
    feed |= dict(zip(["state"], (np.zeros((len(episodes), width), np.float32) for width in carried), strict=False))
    first = [taken[0] for taken in actions]
    np.testing.assert_allclose(session.run(["action"], feed)[0], first, rtol=1e-5, atol=1e-5)


def test_what_training_wrote_is_exported_and_its_python_file_needs_numpy_alone(trained, tmp_path):
    run = trained(PENDULUM.replace("Pendulum", "gymnasium:Pendulum") + "policy: {kind: lstm, hidden: 4}")
    observations = np.random.default_rng(1).normal(size=(100, 3)).astype(np.float32)
    policy, ours = exported(run, tmp_path), mpies.load(run).best
    expected = [float(ours(observation)[0]) for observation in observations]
    assert [float(policy(observation)[0]) for observation in observations] == expected and len(set(expected)) > 50
    export(run, tmp_path / "policy.py")
    np.save(tmp_path / "observations.npy", observations)
    program = (
        "import sys, numpy; import policy; act = policy.Policy();"
        "print([float(act(one)[0]) for one in numpy.load('observations.npy')]);"
        "ours = [name for name in sys.modules if name.split('.')[0] in ('mpies', 'gymnasium')];"
        "assert not ours, ours"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env={}, check=True, stdout=subprocess.PIPE)
    assert json.loads(done.stdout) == expected


@pytest.mark.parametrize(
    ("options", "seed"), [({"hidden": [8]}, 3), ({"kind": "lstm", "hidden": 4, "time_input": 9}, 6)]
)
def test_exports_take_the_numbers_that_environment_hide_leaves_out(options, seed, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    values = {"environment": {"id": "CartPole-v1", "hide": [3, 1]}, "policy": options}
    path = save_policy(values, tmp_path / "policy.h5", seed)
    random = np.random.default_rng(4)
    ours, observations = mpies.Policy.load(path), random.normal(size=(50, 4)).astype(np.float32)
    expected = ours(observations)
    for name in ("policy.py", "policy.onnx"):
        export(path, tmp_path / name)
    policy = exported(path, tmp_path)
    assert policy(observations).tolist() == expected.tolist() and len(set(expected)) == 2
    with pytest.raises(ValueError, match=r"an observation must be a vector of 4 numbers, but has shape \(50, 2\)"):
        policy(observations[:, [0, 2]])
    session = onnxruntime.InferenceSession(tmp_path / "policy.onnx", providers=["CPUExecutionProvider"])
    feed = {value.name: np.zeros((50, value.shape[1]), np.float32) for value in session.get_inputs()}
    assert session.run(["action"], feed | {"observation": observations})[0].tolist() == expected.tolist()


def test_an_export_closes_its_environment(tmp_path):
    (tmp_path / "own.py").write_text(
        "from tests.envs.misbehaving import Good\nclass Env(Good):\n    def close(self): print('closed')\n"
    )
    name = f"{tmp_path}/own.py:Env"
    path = save_policy({"environment": {"id": name}, "policy": {"hidden": [3]}}, tmp_path / "own.h5")
    about = f"{tmp_path}/own.npz: {name}, generation 3, 17 parameters"
    assert export(path, tmp_path / "own.npz").splitlines() == ["closed", about]


def test_what_cannot_be_exported_is_refused_in_one_line(tmp_path):
    path = save_policy({"environment": {"id": "CartPole-v1"}, "policy": {"hidden": [3]}}, tmp_path / "policy.h5")
    function = {"environment": {"id": "function:sphere", "dimension": 3}, "policy": {"kind": "none"}}
    other = save_policy(function, tmp_path / "other.h5")
    for policy, to, words in (
        (path, "policy.pkl", "policy.pkl: an export must end in .npz, .py or .onnx"),
        (path, "absent/policy.npz", "cannot be written"),
        (other, "policy.py", "function:sphere has no observations; `parameters` is the point that was found"),
    ):
        assert_refused(invoke("export", policy, "--to", tmp_path / to), words)
    assert {file.name for file in tmp_path.iterdir()} == {"policy.h5", "other.h5"}


def test_the_name_of_an_environment_is_no_code_of_the_exported_file():
    for name in ("coding:raw_unicode_escape \\u000aopened = 1#", "a # -*- coding: utf-7 -*-"):
        code = ast.parse(as_python({}, name))
        assert not [name for name in ast.walk(code) if getattr(name, "id", "") == "opened"]
    for name in ("a\nopened = 1#", "a\ropened = 1#", "a\x00"):
        with pytest.raises(ConfigError, match=r"environment.id: .* has a newline or another control character"):
            as_python({}, name)


def test_the_arithmetic_needs_only_numpy():
    tree = ast.parse(Path(arithmetic.__file__).read_text())
    imported = {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    imported |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert imported == {"base64", "io", "math", "collections.abc", "numpy"}


def test_networks_use_nothing_of_numpy_that_differs_between_processors():
    """BLAS and NumPy's own exp and tanh do.  What makes actions may use np.tanh, for `output: scale`."""
    tree = ast.parse(Path(arithmetic.__file__).read_text())
    definitions = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    found = {
        (definition.name, node.attr)
        for definition in definitions
        for node in ast.walk(definition)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "np"
    }
    assert ("LSTMNetwork", "split") in found and ("dense", "zeros") in found  # it finds what is used
    assert not {name for name in found if name[1] in ("matmul", "dot", "einsum", "exp", "tanh", "sum", "mean")}
    assert not any(isinstance(node, ast.MatMult) for node in ast.walk(tree))


def test_the_hyperbolic_tangent_and_the_sigmoid_are_close_to_the_true_ones():
    x = np.concatenate([np.linspace(-12, 12, 1_000_001), np.logspace(-30, 1, 10_001)]).astype(np.float32)
    error = np.abs(tanh(x) - np.tanh(x.astype(np.float64)))
    assert error.max() < 4.5e-7
    assert (error[x != 0] / np.abs(np.tanh(x[x != 0].astype(np.float64)))).max() < 8e-7
    assert tanh(np.array([np.inf, -np.inf], np.float32)).tolist() == pytest.approx([1, -1], abs=2e-7)
    assert np.isnan(tanh(np.array([np.nan], np.float32)))
    x = np.linspace(-40, 40, 1_000_001).astype(np.float32)
    assert np.abs(sigmoid(x) - 1 / (1 + np.exp(-x.astype(np.float64)))).max() < 2.3e-7
    assert sigmoid(np.array([-np.inf, 0, np.inf], np.float32)).tolist() == pytest.approx([0, 0.5, 1], abs=1e-7)


def test_a_layer_adds_its_products_to_the_bias_in_the_order_of_the_inputs():
    x = np.array([[1, 1, 1]], np.float32)
    weights = np.array([[[1e8], [1], [-1e8]]], np.float32)
    assert dense(x, weights).tolist() == [[0]]  # 1e8 + 1 is 1e8 in float32
    assert dense(x[:, [0, 2, 1]], weights[:, [0, 2, 1]]).tolist() == [[1]]
    assert dense(x[:, :2], weights[:, :2], np.array([[-1e8]], np.float32)).tolist() == [[1]]  # the bias comes first
