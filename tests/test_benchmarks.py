"""The scripts in benchmarks/ fit the program: their imports exist, and they understand what it writes."""

import ast
import importlib
import itertools
import json
import subprocess
import sys

import numpy as np
import pytest

import mpies
from tests.support import HOME, load_script, mpiexec_or_skip

SCRIPTS = sorted((HOME / "benchmarks").glob("*.py"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_what_a_benchmark_imports_from_mpies_exists(script):
    """Also what it imports within a function, which its start does not show."""
    for node in ast.walk(ast.parse(script.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "mpies":
            module = importlib.import_module(node.module)
            for name in (alias.name for alias in node.names):
                if not hasattr(module, name):
                    importlib.import_module(f"{node.module}.{name}")


def test_faults_reads_from_the_log_how_long_a_repair_took(tmp_path):
    mpiexec_or_skip(has_ulfm=True)
    file = tmp_path / "faults.json"
    command = [sys.executable, HOME / "benchmarks" / "faults.py", "rank", "--trials", "1", "--json", file]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(file.read_text())["repair_max_s"] > 0


def test_the_cosine_of_gradients_and_its_error_are_those_of_all_pairs_and_of_the_jackknife():
    mean_cosine = load_script("benchmarks/gradient_signal.py").mean_cosine
    steps = np.random.default_rng(5).normal(size=(6, 9)) + 0.7

    def of_pairs(rows):
        pairs = itertools.combinations(rows, 2)
        return np.mean([a @ b / np.linalg.norm(a) / np.linalg.norm(b) for a, b in pairs])

    without = np.array([of_pairs(np.delete(steps, i, 0)) for i in range(6)])
    error = np.sqrt(5 / 6 * ((without - without.mean()) ** 2).sum())
    assert mean_cosine(steps) == pytest.approx((of_pairs(steps), error))
    assert mean_cosine(np.ones((4, 3))) == pytest.approx((1, 0), abs=1e-7)


def test_gradients_estimated_from_the_ledger_are_the_steps_of_the_run(tmp_path, monkeypatch):
    """With raw fitness and plain gradient steps, a step has the direction of the return's estimated gradient."""
    run = mpies.train(
        "cartpole",
        "solver={kind: openai_es, population: 16, timesteps_per_batch: 400, fitness: raw, weight_decay: 0}",
        "solver.optimizer={kind: sgd, momentum: 0, learning_rate: 0.01}",
        "stop={generations: 4}",
        out=tmp_path / "run",
        progress=False,
    )
    script = load_script("benchmarks/fitness_signal.py")
    estimates = script.estimate_gradients(tmp_path / "run", 1, 4)
    means = np.stack([run.policy(generation).parameters.astype(np.float64) for generation in range(5)])
    assert run.metrics["episodes"][0] > 16  # several batches of members
    for step, estimate, lengths in zip(np.diff(means, axis=0), estimates["return"], estimates["length"], strict=True):
        assert step @ estimate == pytest.approx(np.linalg.norm(step) * np.linalg.norm(estimate), rel=1e-4)
        assert lengths == pytest.approx(estimate)  # a step of the pole earns 1
    assert script.nearby_cosine(np.eye(3), 2) == (0, 0)
    mpies.train(
        "cartpole", "noise={kind: low_rank, rank: 2}", "stop={generations: 1}", out=tmp_path / "other", progress=False
    )
    with pytest.raises(SystemExit, match=r"expected antithetic pairs, noise\.kind full and no overlap"):
        script.estimate_gradients(tmp_path / "other", 1, 1)
    monkeypatch.setattr(sys, "argv", ["fitness_signal.py", str(tmp_path / "run"), "--generations", "1", "9"])
    with pytest.raises(SystemExit, match=r"generation 5 is not in its ledger, which has 1 to 4"):
        script.main()
