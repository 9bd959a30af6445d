"""mpies export to a program of PyTorch, and of a module of the user's to ONNX: their actions are the policy's own."""

import numpy as np
import pytest

import mpies
from mpies.config.loading import as_yaml, resolved, validate_config
from mpies.runs import hdf5
from mpies.training.task import Task
from tests.support import assert_refused, invoke

torch = pytest.importorskip("torch", reason="PyTorch is an extra")


def write_policy(folder, hide=(), **options):
    """A policy file for CartPole with these options and random parameters; the Policy, as the API has it."""
    config = validate_config({"environment": {"id": "CartPole-v1", "hide": list(hide)}, "policy": options}, "test")
    size = Task(config).policy.size
    random = np.random.default_rng(1)
    seen = 4 - len(hide) if config.policy.normalize_observations else 0  # as in the files of a run
    arrays = {"parameters": random.normal(size=size), "normalization": random.uniform(0.5, 2, (2, seen))}
    content = hdf5.pack(
        {name: values.astype(np.float32) for name, values in arrays.items()},
        {"config": as_yaml(resolved(config)), "generation": 3},
    )
    (folder / "policy.h5").write_bytes(content)
    return mpies.Policy.load(folder / "policy.h5")


OWN_MODULE = """import torch
def make(i, o): return torch.nn.Sequential(torch.nn.Linear(i, 5), torch.nn.GELU(), torch.nn.Linear(5, o))
"""


def check_program(folder, policy):
    """Assert that the .pt2 of a policy has its actions.  Returns observations (20, 1, 4) and these actions."""
    observations = np.random.default_rng(2).normal(0, 5, (20, 1, 4)).astype(np.float32)
    expected = [policy(row[0]) for row in observations]
    assert len(set(map(int, expected))) == 2
    assert invoke("export", folder / "policy.h5", "--to", folder / "policy.pt2").code == 0
    program = torch.export.load(folder / "policy.pt2").module()
    assert [int(program(torch.tensor(row))) for row in observations] == expected
    return observations, expected


def check_onnx(folder, observations, expected):
    """The same actions by ONNX, where what writes and runs it is installed."""
    pytest.importorskip("onnxscript")
    onnxruntime = pytest.importorskip("onnxruntime")
    assert invoke("export", folder / "policy.h5", "--to", folder / "policy.onnx").code == 0
    session = onnxruntime.InferenceSession(folder / "policy.onnx")
    name = session.get_inputs()[0].name
    assert [session.run(None, {name: row})[0].item() for row in observations] == expected


def test_a_module_of_the_users_own_becomes_a_program_of_pytorch(tmp_path):
    (tmp_path / "own.py").write_text(OWN_MODULE)
    policy = write_policy(tmp_path, kind="torch", module=f"{tmp_path}/own.py:make")
    observations, expected = check_program(tmp_path, policy)
    outcome = invoke("export", tmp_path / "policy.h5", "--to", tmp_path / "policy.py")
    assert_refused(outcome, "policy.kind torch needs PyTorch; export it to .pt2 or .onnx")
    check_onnx(tmp_path, observations, expected)


@pytest.mark.parametrize("module", [False, True])
def test_a_program_takes_the_numbers_that_environment_hide_leaves_out(tmp_path, module):
    (tmp_path / "own.py").write_text(OWN_MODULE)
    options = {"kind": "torch", "module": f"{tmp_path}/own.py:make"} if module else {"hidden": [8]}
    policy = write_policy(tmp_path, hide=[1, 3], **options)
    observations, expected = check_program(tmp_path, policy)
    assert [int(policy.to_torch()(torch.tensor(row))) for row in observations] == expected


@pytest.mark.parametrize("kind", ["mlp", "lstm", "gru"])
def test_mpies_own_policies_become_programs_of_pytorch(tmp_path, kind):
    policy = write_policy(tmp_path, kind=kind, hidden=[8] if kind == "mlp" else 8)
    assert invoke("export", tmp_path / "policy.h5", "--to", tmp_path / "policy.pt2").code == 0
    program = torch.export.load(tmp_path / "policy.pt2").module()
    observations = np.random.default_rng(2).normal(size=(20, 3, 4)).astype(np.float32)
    policy.reset()
    zeros = torch.zeros(1, 3, 8)
    state = (zeros, zeros) if kind == "lstm" else zeros
    for rows in observations:
        if kind == "mlp":
            actions = program(torch.tensor(rows))
        else:
            actions, state = program(torch.tensor(rows), state)
        assert actions.tolist() == policy(rows).tolist()


@pytest.mark.parametrize("options", [{"hidden": [5]}, {"kind": "torch", "module": "own.py:make"}])
def test_a_policy_without_normalisation_becomes_a_program(tmp_path, options, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(OWN_MODULE)
    policy = write_policy(tmp_path, normalize_observations=False, **options)
    observations, expected = check_program(tmp_path, policy)
    if "kind" in options:
        check_onnx(tmp_path, observations, expected)
