"""Every solver through the real loop: the same bits on any number of ranks, and after a stop."""

from mpies.runs.metrics import read_metrics
import re
from pathlib import Path

import pytest

from mpies.solvers import SOLVERS

DOCS = Path(__file__).resolve().parents[2] / "docs" / "solvers.md"
CONFIGS = {
    "openai_es": "population: 20, sigma: 0.1",
    "pepg": "population: 20, average_baseline: false",
    "pgpe": "population: 20, interactions: 50",
    "ars": "population: 20, top: 6",
    "snes": "",
    "sep_cma": "",
    "cr_fm_nes": "",
    "cma_es": "covariance: full",
    "deep_ga": "population: 20, parents: 4, snapshot: 2, sigma: 0.1",
    "novelty_es": "population: 20, means: 2",
    "nevergrad:TBPSA": "population: 10",
}
COMMON = """
environment: {id: "function:rosenbrock", dimension: 203, shift: 1}
noise: {size: 300000}
evaluation: {every: 2}
checkpoint: {every: 2}
stop: {generations: 7}
"""


def config_of(kind):
    if kind.startswith("nevergrad"):
        pytest.importorskip("nevergrad", reason="nevergrad is not installed")
    return COMMON + f'solver: {{kind: "{kind}", {CONFIGS[kind]}}}\n'


def test_every_solver_of_the_registry_is_tested():
    assert set(SOLVERS) <= set(CONFIGS)


def digests(run):
    return [(row["digest"], row["eval_mean"]) for row in read_metrics(run)]


@pytest.mark.parametrize("kind", CONFIGS)
def test_digests_are_the_same_on_any_number_of_ranks(kind, run_mpies, write_config, tmp_path):
    config, found = write_config(config_of(kind)), []
    for ranks in (0, 3):  # 0 is the serial twin
        ended = run_mpies(ranks, "train", config, "--out", f"run-{ranks}")
        assert ended.code == 0, ended.stderr[-3000:]
        found.append(digests(tmp_path / f"run-{ranks}"))
    assert len({digest for digest, _ in found[0]}) == 7
    assert found[0] == found[1]


@pytest.mark.parametrize("kind", ["cma_es", "deep_ga", "novelty_es", "cr_fm_nes"])
def test_a_run_stopped_on_two_ranks_goes_on_to_the_same_bits_on_three(kind, run_mpies, write_config, tmp_path):
    config = write_config(config_of(kind))
    for ranks, out, stop in ((0, "whole", 7), (2, "broken", 3), (3, "broken", 7)):
        ended = run_mpies(ranks, "train", config, "--out", out, f"stop.generations={stop}")
        assert ended.code == 0, ended.stderr[-3000:]
    whole, broken = (dict(enumerate(digests(tmp_path / name))) for name in ("whole", "broken"))
    assert [broken[g][0] for g in (0, 3, 4, 5, 6)] == [whole[g][0] for g in (0, 3, 4, 5, 6)]


def test_a_policy_is_trained_by_whole_candidates_and_by_novelty(run_mpies, write_config, tmp_path):
    environments = {
        "cma_es": "environment: {id: CartPole-v1, max_steps: 60}",
        "novelty_es": "environment: {id: Hopper-v5, max_steps: 60, behaviour: [x_position]}",
    }
    text = """
policy: {hidden: [4]}
evaluation: {every: 2, episodes: 6}
stop: {generations: 3}
noise: {size: 100000}
"""
    for kind, env in environments.items():
        config, found = write_config(env + text + f"solver: {{kind: {kind}, population: 20, episodes: 2}}\n"), []
        for ranks in (0, 3):
            ended = run_mpies(ranks, "train", config, "--out", f"{kind}-{ranks}")
            assert ended.code == 0, ended.stderr[-3000:]
            found.append(digests(tmp_path / f"{kind}-{ranks}"))
        assert found[0] == found[1]


def test_the_example_of_the_documentation_trains(run_mpies, write_config, tmp_path):
    program, recipe = re.findall(r"```(?:python|yaml)\n(.*?)```", DOCS.read_text(), re.DOTALL)
    (tmp_path / "cross_entropy.py").write_text(program)
    config, found = write_config(recipe + "evaluation: {every: 20}\nnoise: {size: 300000}\n"), []
    for ranks in (0, 2):
        ended = run_mpies(ranks, "train", config, "--out", f"run-{ranks}")
        assert ended.code == 0, ended.stderr[-3000:]
        found.append(digests(tmp_path / f"run-{ranks}"))
    assert found[0] == found[1]
    first, last = (float(found[0][g - 1][1]) for g in (20, 60))
    assert last > first / 10 > -1e6
    ended = run_mpies(0, "train", config, "solver.flor=0.1")
    assert ended.code == 2 and "solver.flor is not a key; did you mean solver.floor?" in ended.stderr


def test_what_cannot_fit_is_refused_before_anything_begins(run_mpies, write_config, tmp_path):
    config = write_config('environment: {id: "function:sphere", dimension: 20000}\nsolver: {kind: cma_es}\n')
    for command in ("check", "train"):
        ended = run_mpies(0, command, config)
        assert ended.code == 2 and ended.stdout == ""
        assert "needs 16.0 GB for 20,000 parameters" in ended.stderr and "covariance: diagonal" in ended.stderr
        assert ended.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == [config]


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("snez", "solver.kind must be one of"),
        ("nevergrad:TBPSB", "such as TBPSA"),
        ("nowhere.py:Mine", "no nowhere.py"),
        ("broken.py:Mine", "ZeroDivisionError"),
        ("empty.py:Mine", "subclass of solvers.base.Solver"),
    ],
)
def test_a_solver_that_does_not_exist_is_a_users_mistake(kind, words, run_mpies, write_config, tmp_path):
    if kind.startswith("nevergrad"):
        pytest.importorskip("nevergrad", reason="nevergrad is not installed")
    (tmp_path / "broken.py").write_text("1 / 0\n")
    (tmp_path / "empty.py").write_text("Mine = None\n")
    ended = run_mpies(0, "check", write_config(COMMON + f'solver: {{kind: "{kind}"}}\n'))
    assert ended.code == 2 and words in ended.stderr and ended.stderr.count("\n") == 1
