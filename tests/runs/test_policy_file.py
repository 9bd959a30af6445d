"""Policy files: found, read and refused."""

import numpy as np
import pytest

from mpies.errors import ConfigError, RunError
from mpies.runs import hdf5
from mpies.runs.policy_file import find_policy, load_policy, select

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


def test_of_a_run_the_best_policy_is_taken_else_the_newest(tmp_path):
    (tmp_path / "config.yaml").write_text(f"{CONFIG}versions: {{mpies: '1'}}\n")
    with pytest.raises(RunError, match="contains no policy yet; the first is saved at the first evaluation"):
        find_policy(tmp_path)
    write_policy(tmp_path / "policy.h5", generation=9)
    assert load_policy(tmp_path).generation == 9
    write_policy(tmp_path / "best.h5", generation=4)
    assert load_policy(tmp_path).generation == 4


def test_a_folder_that_is_no_run_is_named_with_a_run_in_it(tmp_path):
    with pytest.raises(RunError) as error:
        find_policy(tmp_path)
    assert str(error.value) == f"{tmp_path}: is a folder, but not a run; give a run directory or a policy file"
    for name in ("b/c", "a"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "config.yaml").write_text(f"{CONFIG}versions: {{mpies: '1'}}\n")
    with pytest.raises(RunError) as error:
        find_policy(tmp_path)
    cure = f"give one of the runs in it, such as {tmp_path}/a"
    assert str(error.value) == f"{tmp_path}: is a folder, but not a run; {cure}"


def test_a_file_without_parameters_is_no_policy(tmp_path):
    path = write_policy(tmp_path / "x.h5", arrays={"solver/mean": np.zeros(3)})
    with pytest.raises(RunError, match=r"x\.h5: is not a policy; give a run directory, best\.h5 or policy\.h5"):
        load_policy(path)


def test_a_config_that_is_wrong_is_a_mistake_in_that_file(tmp_path):
    path = write_policy(tmp_path / "x.h5", config="environment: {id: CartPole-v1}\nsolver: {population: 7}\n")
    with pytest.raises(ConfigError, match=r"x\.h5: solver\.population must be even"):
        load_policy(path)


def test_arrays_are_selected_by_their_prefix():
    arrays = {"solver/mean": 1, "solver/a/b": 2, "solvers": 3, "normalizer/count": 4}
    assert select(arrays, "solver/") == {"mean": 1, "a/b": 2}
