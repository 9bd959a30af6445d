"""Policy files: found, read and refused."""

import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from mpies.config.recipes import RESULTS
from mpies.core.errors import ConfigError, RunError
from mpies.envs.base import Binary, Composite, Continuous, Discrete, Interface
from mpies.runs.formats import hdf5
from mpies.runs.formats.policy_file import find_policy, load_policy, select
from tests.support import assert_refused, invoke

CONFIG = "environment: {id: CartPole-v1}\n"
ARRAYS = {
    "parameters": np.arange(3, dtype=np.float32),
    "normalization": np.ones((2, 4), np.float32),
    "constants/reference": np.zeros((5, 4), np.uint8),
}


def write_policy(path, generation=7, config=CONFIG, arrays=ARRAYS):
    path.write_bytes(hdf5.pack(arrays, {"config": config, "generation": generation}))
    return path


def test_a_policy_is_read_as_it_was_written(tmp_path):
    policy = load_policy(write_policy(tmp_path / "x.h5"))
    assert policy.generation == 7 and policy.path == tmp_path / "x.h5"
    assert policy.config.environment.id == "CartPole-v1"
    assert policy.arrays["parameters"].tobytes() == ARRAYS["parameters"].tobytes()
    assert list(policy.constants) == ["reference"] and policy.constants["reference"].shape == (5, 4)


def test_of_a_run_the_best_policy_is_taken_else_the_newest_and_of_another_folder_a_run_is_named(tmp_path):
    with pytest.raises(RunError) as error:
        find_policy(tmp_path)
    assert str(error.value) == f"{tmp_path}: is a folder, but not a run; give a run directory or a policy file"
    for name in ("b/c", "a"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "config.yaml").write_text(f"{CONFIG}versions: {{mpies: '1'}}\n")
    with pytest.raises(RunError, match=f"; give one of the runs in it, such as {tmp_path}/a$"):
        find_policy(tmp_path)
    run = tmp_path / "a"
    with pytest.raises(RunError, match="contains no policy yet; the first is saved at the first evaluation"):
        find_policy(run)
    for name, generation in (("policy.h5", 9), ("best.h5", 4)):
        write_policy(run / name, generation)
        assert load_policy(run).generation == generation


PACKED = Interface(4, Discrete(2)).pack()
ALIASES = "".join(f"{b}: &{b} [{', '.join([f'*{a}'] * 10)}]\n" for a, b in pairwise("abcdefgh"))
WIDE = {"parameters": np.zeros(82, np.float32), "normalization": np.ones((2, 9), np.float32)}
HOSTILE = {
    "no config": ({"config": None}, {}),
    "deep": ({"config": "{a: " * 90 + "1" + "}" * 90}, {}),
    "aliases": ({"config": "a: &a [1,1,1,1,1,1,1,1,1,1]\n" + ALIASES}, {}),
    "a long number": ({"config": "seed: " + "9" * 60_000}, {}),
    "generation": ({"generation": "x"}, {}),
    "whole numbers": ({}, {"parameters": np.zeros(3, int)}),
    "normalization": ({}, {"normalization": np.zeros((3, 4), np.float32)}),
    "interface": ({}, {"constants/interface": PACKED[:-3]}),
    "statistics": ({}, {"constants/interface": PACKED, **WIDE}),
    "images": ({}, {"constants/interface": np.frombuffer(b'[4,[2,3],false,[["Discrete",2]]]', np.uint8)}),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_policy_file_that_a_stranger_has_made_is_refused_in_one_line(case, tmp_path):
    texts, arrays = HOSTILE[case]
    attributes = {"config": CONFIG, "generation": 7} | texts
    path = tmp_path / "x.h5"
    path.write_bytes(hdf5.pack(ARRAYS | arrays, {name: one for name, one in attributes.items() if one is not None}))
    export = "export", path, "--to", tmp_path / "x.py"
    for command in (("evaluate", path), ("play", path, "--video", "x.gif"), export):
        assert_refused(invoke(*command), "" if case == "statistics" else str(path))


def test_what_a_policy_must_know_of_an_environment_is_packed_and_unpacked():
    low, high = np.array([-1, -np.inf], np.float32), np.array([0.1, np.inf], np.float32)
    actions = (Discrete(3), Continuous(low, high), Composite((Binary(2), Discrete(4), Continuous(low, high))))
    for action, shape in zip(actions, (None, (1, 2, 3), None), strict=True):
        other = Interface.unpack(Interface(6, action, shape).pack())
        assert (other.observation_size, other.shape, repr(other.action)) == (6, shape, repr(action))


def test_a_file_without_parameters_or_with_a_wrong_config_is_no_policy(tmp_path):
    path = write_policy(tmp_path / "x.h5", arrays={"solver/mean": np.zeros(3)})
    with pytest.raises(RunError, match=r"x\.h5: is not a policy; give a run directory, best\.h5 or policy\.h5"):
        load_policy(path)
    write_policy(path, config="environment: {id: CartPole-v1}\nsolver: {population: 7}\n")
    with pytest.raises(ConfigError, match=r"x\.h5: solver\.population must be even"):
        load_policy(path)
    arrays = {"solver/mean": 1, "solver/a/b": 2, "solvers": 3, "normalizer/count": 4}
    assert select(arrays, "solver/") == {"mean": 1, "a/b": 2}


def test_the_trained_policy_of_a_recipe_is_found_by_its_name_behind_files_and_runs_of_that_name(here):
    recorded = RESULTS / "swimmer" / "policy.h5"
    assert find_policy("swimmer") == recorded and load_policy("swimmer").config.environment.id == "Swimmer-v5"
    assert find_policy("swimmer-ars") == RESULTS / "swimmer-ars" / "policy.h5"
    (here / "swimmer").mkdir()  # a folder is no policy
    assert find_policy("swimmer") == recorded
    (here / "swimmer" / "config.yaml").write_text(f"{CONFIG}versions: {{mpies: '1'}}\n")
    with pytest.raises(RunError, match="swimmer: contains no policy yet"):
        find_policy("swimmer")
    write_policy(here / "swimmer" / "policy.h5")
    assert find_policy("swimmer") == Path("swimmer/policy.h5")
    write_policy(here / "hopper")
    assert find_policy("hopper") == Path("hopper") and load_policy("hopper").generation == 7


@pytest.mark.parametrize(
    ("given", "cure"),
    [
        ("absent.h5", "(No such file or directory); give a run directory, a policy file, or the name of a recipe"),
        ("swimer", "give a run directory, a policy file, or the name of a recipe, such as swimmer"),
        ("results/swimer.h5", "or the name of a recipe, such as swimmer"),
        ("humanoid", "no policy of this recipe comes with mpies; train it with mpies train humanoid"),
    ],
)
def test_a_path_at_which_nothing_is_is_refused_with_what_to_give(given, cure, here):
    with pytest.raises(RunError, match=rf"^{given}: [^\n]*{re.escape(cure)}$"):
        find_policy(given)
