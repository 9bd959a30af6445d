"""What a policy file or a run directory names runs only where it was trained here, or where the user says so."""

import os
import pickle
import shutil

import numpy as np
import pytest
import yaml

import mpies
from mpies.config.trust import find_code, find_refusal, sign
from mpies.envs import EnvironmentProblem, make_env
from mpies.runs.formats import hdf5
from tests.support import assert_refused, environment_module, invoke, train

WORLD = environment_module("World", step="action = 1")
SOLVER = "from mpies.solvers.openai_es import OpenAIES\nclass Own(OpenAIES):\n    pass\n"
TEXT = """
environment: {id: ID}
policy: {hidden: []}
solver: {kind: KIND, population: 4}
noise: {size: 1000}
evaluation: {every: 1, episodes: 1}
stop: {generations: 1}
"""
TRACE = "open('has-run', 'w')\n"


@pytest.fixture
def folder(here, monkeypatch):
    monkeypatch.delenv("MPIES_TRUST", raising=False)
    (here / "env.py").write_text(WORLD)
    (here / "own.py").write_text(SOLVER)
    return here


def config_of(identity="env.py:World", kind="openai_es"):
    return TEXT.replace("ID", identity).replace("KIND", kind)


def change_environment(file, **changes):
    """Change the section of the environment in the config of a policy file."""
    arrays, attributes = hdf5.read(file)
    values = yaml.safe_load(attributes["config"])
    values["environment"] |= changes
    file.write_bytes(hdf5.pack(arrays, attributes | {"config": yaml.safe_dump(values)}))


@pytest.mark.parametrize("identity", ["os:system", "gymnasium:evil:Id-v0", "evil.py:make"])
def test_a_policy_file_runs_nothing_that_it_names(folder, identity, trained):
    run = shutil.copytree(trained(config_of("CartPole-v1")), folder / "run")
    (folder / "evil.py").write_text(TRACE + "def make(**kwargs):\n    open('has-run', 'w')\n")
    change_environment(run / "best.h5", id=identity, kwargs={"command": "touch has-run"})
    arrays, attributes = hdf5.read(run / "best.h5")
    (run / "old.h5").write_bytes(hdf5.pack({k: v for k, v in arrays.items() if "interface" not in k}, attributes))
    assert invoke("export", run / "best.h5", "--to", "x.npz").code == 0
    without_interface = "export run/old.h5 --to x.npz"
    for command in ("evaluate run", "evaluate run/best.h5", "play run/best.h5 --video x.mp4", without_interface):
        assert_refused(invoke(*command.split()), "--trust", identity.removeprefix("gymnasium:"))
    policy = mpies.Policy.load(run / "best.h5")
    for use in (policy.evaluate, pickle.loads(pickle.dumps(policy)).evaluate):
        with pytest.raises(mpies.RunError, match="trust=True"):
            use()
    assert policy(np.zeros(4)) in (0, 1)  # from the sizes in the file
    with pytest.raises(mpies.RunError, match="trust=True"):
        mpies.Policy.load(run / "old.h5")(np.zeros(4))
    assert not (folder / "has-run").exists()


def test_looking_at_a_run_runs_no_solver_of_its_own(folder):
    run = train(folder, config_of("CartPole-v1", "own.py:Own"))
    (folder / "own.py").write_text(TRACE + SOLVER)
    for command in ("report run", "plot run", "compare run --out compared", "runs ."):
        invoke(*command.split(), code=0)
    assert mpies.load(run).metrics["generation"].tolist() == [1]
    for command in ("replay run --generation 1", "evaluate run", "play run --member 1,0", "plot run --trajectory"):
        assert_refused(invoke(*command.split()), "own.py:Own", "--trust")
    assert_refused(invoke("check", run / "config.yaml"), "own.py:Own", "--trust")
    with pytest.raises(mpies.RunError, match="trust=True"):
        mpies.load(run).config  # noqa: B018
    assert not (folder / "has-run").exists()
    invoke("replay", run, "--generation", 1, "--trust", code=0)
    assert (folder / "has-run").exists()
    assert mpies.load(run, trust=True).config.solver.kind == "own.py:Own"


def test_what_was_trained_here_needs_no_flag_until_its_code_changes(folder, monkeypatch):
    run = train(folder, config_of())
    commands = [("evaluate", run), ("evaluate", run / "policy.h5"), ("play", run, "--member", "1,0")]
    assert invoke("replay", run, "--generation", 1, "--out", folder / "mean.h5").code == 0
    for command in (*commands, ("evaluate", folder / "mean.h5"), ("check", run / "config.yaml")):
        assert invoke(*command).code == 0
    assert mpies.load(run).best.evaluate(2).mean == 1

    (folder / "env.py").write_text(WORLD + "\n")
    for command in commands:
        assert_refused(invoke(*command), "env.py:World", "--trust")
        assert invoke(*command, "--trust").code == 0
    assert mpies.load(run, trust=True).best.evaluate(2).mean == 1
    assert_refused(invoke("evaluate", run), "--trust")  # the flag is of one command
    monkeypatch.setenv("MPIES_TRUST", "1")
    assert invoke("evaluate", run).code == 0


def test_other_arguments_and_another_users_key_are_not_what_was_trained_here(folder, monkeypatch):
    run = train(folder, config_of())
    change_environment(run / "best.h5", kwargs={"fault": "another"})
    assert_refused(invoke("evaluate", run / "best.h5"), "--trust")
    assert invoke("evaluate", run / "policy.h5").code == 0
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "other"))
    assert_refused(invoke("evaluate", run / "policy.h5"), "--trust")


def test_training_needs_no_flag_where_there_is_no_key(folder, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "env.py"))  # no folder
    text = config_of(kind="own.py:Own")
    run = train(folder, text)
    assert "signature" not in (run / "config.yaml").read_text()
    assert_refused(invoke("evaluate", run), "--trust")
    train(folder, text.replace("generations: 1", "generations: 2"))
    assert mpies.load(run).generation == 2


def test_a_key_that_others_can_read_is_none(folder, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "keys"))
    values = {"environment": {"id": "env.py:World"}}
    signature = sign(values)
    key = folder / "keys" / "mpies" / "key"
    assert len(signature) == 64 and key.stat().st_mode & 0o777 == 0o600
    assert not find_refusal(values, signature, "x") and find_refusal(values, "", "x")
    key.chmod(0o644)
    assert sign(values) == "" and find_refusal(values, signature, "x") and find_refusal(values, "", "x")


def test_the_key_is_found_without_home(folder, monkeypatch):
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # no entry in the list of users either
    assert sign({"environment": {"id": "env.py:World"}}) == ""
    assert not (folder / "~").exists()


@pytest.mark.parametrize(
    ("section", "named"),
    [
        ({"environment": {"id": "CartPole-v1"}}, None),
        ({"environment": {"id": "gym:AntBulletEnv-v0"}}, None),
        ({"environment": {"id": "function:sphere"}}, None),
        ({"solver": {"kind": "nevergrad:CMA"}}, None),
        ({"environment": 3, "solver": "pepg", "policy": None}, None),
        ({"environment": {"id": "auto:os:system"}}, "os:system"),
        ({"environment": {"id": "GymV21Environment-v0"}}, "GymV21Environment-v0"),
        ({"policy": {"kind": "torch", "module": "net"}}, "net"),
        ({"solver": {"kind": "x.py:Solver"}}, "x.py:Solver"),
    ],
)
def test_what_counts_as_code(section, named):
    assert list(find_code(section).values()) == ([named] if named else [])


def test_a_function_of_pythons_own_is_no_environment(folder):
    (folder / "indirect.py").write_text("from os import system\n")
    for identity in ("os:system", "subprocess:run", "indirect.py:system"):
        with pytest.raises(EnvironmentProblem, match="Python's"):
            make_env(identity, command="touch has-run")
    assert not (folder / "has-run").exists()


def test_a_saved_optimiser_runs_a_solver_of_its_own_only_where_it_is_trusted(folder):
    mpies.AskTell("own.py:Own", np.zeros(3), sigma=0.1, population=4, noise_size=1000).save("state.h5")
    assert mpies.AskTell.load("state.h5").kind == "own.py:Own"
    (folder / "own.py").write_text(TRACE + SOLVER)
    with pytest.raises(mpies.RunError, match="trust=True"):
        mpies.AskTell.load("state.h5")
    assert not (folder / "has-run").exists()
    assert mpies.AskTell.load("state.h5", trust=True).kind == "own.py:Own"
