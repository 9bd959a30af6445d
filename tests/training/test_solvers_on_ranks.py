"""Every solver through the real loop: the same bits on any number of ranks, and after a stop."""

import re

import pytest

from mpies.runs.metrics import read_metrics
from mpies.solvers import SOLVERS
from tests.support import HOME, assert_refused

DOCS = HOME / "docs" / "solvers.md"
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


def read_results(run):
    """Digest and evaluation of each generation."""
    return [(row["digest"], row["eval_mean"]) for row in read_metrics(run)]


@pytest.mark.parametrize("kind", CONFIGS)
def test_digests_are_the_same_on_any_number_of_ranks(kind, run_mpies, write_config, tmp_path):
    config, results = write_config(config_of(kind)), []
    for ranks in (0, 3):  # 0 is one rank without MPI
        outcome = run_mpies(ranks, "train", config, "--out", f"run-{ranks}")
        assert outcome.code == 0, outcome.stderr[-3000:]
        results.append(read_results(tmp_path / f"run-{ranks}"))
    assert len({digest for digest, _ in results[0]}) == 7
    assert results[0] == results[1]


@pytest.mark.parametrize("kind", ["cma_es", "deep_ga", "novelty_es", "cr_fm_nes"])
def test_a_run_stopped_on_two_ranks_goes_on_to_the_same_bits_on_three(kind, run_mpies, write_config, tmp_path):
    config = write_config(config_of(kind))
    for ranks, out, stop in ((0, "undisturbed", 7), (2, "parts", 3), (3, "parts", 7)):
        outcome = run_mpies(ranks, "train", config, "--out", out, f"stop.generations={stop}")
        assert outcome.code == 0, outcome.stderr[-3000:]
    undisturbed, parts = (read_results(tmp_path / name) for name in ("undisturbed", "parts"))
    assert [digest for digest, _ in parts] == [digest for digest, _ in undisturbed]


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
        config, results = write_config(env + text + f"solver: {{kind: {kind}, population: 20, episodes: 2}}\n"), []
        for ranks in (0, 3):
            outcome = run_mpies(ranks, "train", config, "--out", f"{kind}-{ranks}")
            assert outcome.code == 0, outcome.stderr[-3000:]
            results.append(read_results(tmp_path / f"{kind}-{ranks}"))
        assert results[0] == results[1]


def test_the_example_of_the_documentation_trains(run_mpies, write_config, tmp_path):
    program, recipe = re.findall(r"```(?:python|yaml)\n(.*?)```", DOCS.read_text(), re.DOTALL)
    (tmp_path / "cross_entropy.py").write_text(program)
    config, results = write_config(recipe + "evaluation: {every: 20}\nnoise: {size: 300000}\n"), []
    for ranks in (0, 2):
        outcome = run_mpies(ranks, "train", config, "--out", f"run-{ranks}")
        assert outcome.code == 0, outcome.stderr[-3000:]
        results.append(read_results(tmp_path / f"run-{ranks}"))
    assert results[0] == results[1]
    first, last = (float(results[0][g - 1][1]) for g in (20, 60))
    assert last > first / 10 > -1e6
    outcome = run_mpies(0, "train", config, "solver.flor=0.1")
    assert outcome.code == 2 and "solver.flor is not a key; did you mean solver.floor?" in outcome.stderr


def test_what_cannot_fit_is_refused_before_anything_begins(run_mpies, write_config, tmp_path):
    config = write_config('environment: {id: "function:sphere", dimension: 20000}\nsolver: {kind: cma_es}\n')
    for command in ("check", "train"):
        outcome = run_mpies(0, command, config)
        assert_refused(outcome, "needs 16.0 GB for 20,000 parameters", "covariance: diagonal")
    assert list(tmp_path.iterdir()) == [config]


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("snez", "solver.kind must be one of"),
        ("nevergrad:TBPSB", "such as TBPSA"),
        ("nowhere.py:Mine", "there is no file nowhere.py"),
        ("broken.py:Mine", "ZeroDivisionError"),
        ("empty.py:Mine", "subclass of mpies.solvers.base.Solver"),
    ],
)
def test_a_solver_that_does_not_exist_is_a_users_mistake(kind, words, run_mpies, write_config, tmp_path):
    if kind.startswith("nevergrad"):
        pytest.importorskip("nevergrad", reason="nevergrad is not installed")
    (tmp_path / "broken.py").write_text("1 / 0\n")
    (tmp_path / "empty.py").write_text("Mine = None\n")
    outcome = run_mpies(0, "check", write_config(COMMON + f'solver: {{kind: "{kind}"}}\n'))
    assert_refused(outcome, words)
