"""What the tests of views share: two small trained runs, and curves made by hand."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from mpies.report.compare.curves import Curves
from tests.report.web.served_runs import run_folder, server  # noqa: F401 (fixtures)

CONFIG = """
environment: {id: CartPole-v1, backend: gymnasium, max_steps: 40}
policy: {hidden: []}
solver: {population: 8, sigma: 0.3, optimizer: {learning_rate: 0.2}}
noise: {size: 10000}
evaluation: {every: 2, episodes: 4}
stop: {generations: 6, target: 1000}
"""


@pytest.fixture(scope="session")
def two_runs(trained, tmp_path_factory):
    """A folder with the runs one-seed-1 and one-seed-2 of CONFIG; not to be changed."""
    folder = tmp_path_factory.mktemp("two")
    for seed in (1, 2):
        shutil.copytree(trained(f"seed: {seed}\n{CONFIG}"), folder / f"one-seed-{seed}")
    return folder


@pytest.fixture
def run(two_runs, tmp_path):
    """A run of its own: a copy of one-seed-1."""
    return shutil.copytree(two_runs / "one-seed-1", tmp_path / "run")


@pytest.fixture
def make_curves():
    """Make Curves by hand: a generation a second with ten steps, evaluated where `evaluations` is not None."""

    def make(evaluations, seed=1, reason="", target=None, path="run", environment=None, **solver):
        config = {"seed": seed, "environment": environment or {"id": "CartPole-v1"}}
        config |= {"solver": {"kind": "snes", **solver}, "evaluation": {"episodes": 4}, "stop": {"target": target}}
        numbers = np.arange(1, len(evaluations) + 1, dtype=float)
        columns = {"generation": numbers, "seconds": numbers, "steps": 10 * numbers, "episodes": numbers}
        columns |= {"return_mean": numbers, "return_min": numbers - 1, "return_max": numbers + 1}
        columns["eval_mean"] = means = np.array(evaluations, float)  # None becomes NaN
        columns |= {"eval_std": np.where(np.isfinite(means), 2.0, np.nan)}
        columns |= {"eval_episodes": np.where(np.isfinite(means), 4.0, np.nan)}
        columns |= {"failures": np.zeros(len(numbers)), "ranks": np.ones(len(numbers))}
        return Curves(Path(path), config, {"numpy": "2.0"}, columns, reason)

    return make
