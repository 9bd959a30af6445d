"""mpies verify: the same bits on different numbers of ranks, or the generation from which on they differ."""

import pytest

from mpies.comm import mpiexec
from mpies.launch.verify import compare_digests
from tests.support import assert_refused, invoke

CONFIG = """
environment: {id: "function:sphere", dimension: 6}
solver: {population: 8}
noise: {size: 1000}
"""

# Returns that depend on the number of ranks, from the third generation on.
RANK_FUNCTION = """
import os
evaluations = 0

def value(x):
    global evaluations
    evaluations += 1
    ranks = int(os.environ.get("OMPI_COMM_WORLD_SIZE", 1))
    return -(x @ x) + (ranks - 1) * (evaluations > 2 * 8) * (evaluations % 3)  # also if one rank plays all members
"""


def test_digests_are_compared_generation_by_generation():
    assert compare_digests(["a", "b"], ["a", "b"]) == "same"
    assert compare_digests(["a", "b", "c"], ["a", "x", "c"]) == "differs from generation 2 on"
    with pytest.raises(ValueError, match="shorter"):
        compare_digests(["a", "b"], ["a"])


def test_equal_bits_are_confirmed(write_config):
    config = write_config(CONFIG)
    outcome = invoke("verify", config, "--ranks", "1,2", "--generations", "2", "solver.sigma=0.3")
    assert outcome.code == 0, outcome.stderr
    first, one, two, resumed, last = outcome.stdout.splitlines()
    assert first == f"{config}: function:sphere, 2 generations" and last == "the same bits on all"
    assert one.split()[:2] == ["1", "rank"] and two.split()[:2] == ["2", "ranks"]
    assert one.split()[2:] == two.split()[2:] and one.split()[3] == "same"
    assert resumed == f"{one}, stopped after generation 1 and resumed"
    other = invoke("verify", config, "--ranks", "1", "--generations", "2", "solver.sigma=0.4").stdout.splitlines()[1]
    assert other.split()[2] != one.split()[2]


def test_bits_that_differ_end_with_exit_code_1(write_config, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ranks.py").write_text(RANK_FUNCTION)
    write_config(CONFIG.replace("function:sphere", "ranks.py:value"))
    outcome = invoke("verify", "config.yaml", "--ranks", "1,2", "--generations", "5")
    assert outcome.code == 1
    assert "differs from generation" in outcome.stdout.splitlines()[2]
    assert "differs from generation 1 on" not in outcome.stdout
    assert outcome.stdout.splitlines()[-1].startswith("NOT the same bits")


def test_training_that_fails_is_one_line(write_config, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_config(CONFIG.replace("function:sphere", "absent.py:value"))
    outcome = invoke("verify", "config.yaml", "--ranks", "1")
    assert outcome.code == 2 and outcome.stderr.count("\n") == 1
    assert "training on 1 rank ended with code 2: mpies: absent.py:value: there is no file" in outcome.stderr


def test_several_ranks_are_refused_at_once_without_mpiexec(write_config, monkeypatch):
    monkeypatch.setattr(mpiexec, "find", lambda: None)
    assert_refused(invoke("verify", write_config(CONFIG)), "several ranks need mpiexec")


def test_no_other_tool_follows_the_runs(write_config, tmp_path):
    config = write_config(CONFIG + "tracking: {wandb: {project: x}, tensorboard: true, json: true}")
    outcome = invoke("verify", config, "--ranks", "1", "--generations", "1")
    assert outcome.code == 0, outcome.stderr
    assert "tracking" not in outcome.stderr
