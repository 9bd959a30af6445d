"""The same bits on any number of ranks, however often a run is stopped and resumed."""

import pytest

from mpies.runs.metrics import read_digests, read_metrics

CONFIGS = {
    "cartpole-envpool": """
environment: {id: CartPole-v1, backend: envpool, max_steps: 100}
policy: {hidden: [8]}
solver: {population: 30, sigma: 0.2, timesteps_per_batch: 1500}
noise: {size: 600000}
""",
    "cartpole-gymnasium": """
environment: {id: CartPole-v1, backend: gymnasium, max_steps: 40, seeds: generation}
policy: {hidden: [8], statistics_fraction: 0.5}
solver: {population: 14, sigma: 0.2, episodes: 3}
noise: {size: 600000}
""",
    "lander-envpool": """
environment: {id: LunarLander-v3, backend: envpool, max_steps: 120}
solver: {population: 20, sigma: 0.1}
noise: {size: 600000}
""",
    "lander-gymnasium": """
environment: {id: LunarLander-v3, backend: gymnasium, max_steps: 60}
policy: {hidden: [16], activation: relu}
solver: {population: 12, sigma: 0.1, optimizer: {kind: sgd}}
noise: {size: 600000}
""",
    "low-rank": """
environment: {id: CartPole-v1, max_steps: 60}
policy: {hidden: [70, 33]}
solver: {population: 14, sigma: 0.1}
noise: {kind: low_rank, rank: 2, size: 600000}
""",
    "overlap": """
overlap: 1
environment: {id: CartPole-v1, max_steps: 100, adaptive: {start: 30, ratio: 1.3}}
policy: {hidden: [8]}
solver: {population: 24, sigma: 0.2, timesteps_per_batch: 900}
noise: {size: 600000}
""",
    "rastrigin": """
environment: {id: "function:rastrigin", dimension: 1001, shift: 1}
solver: {population: 26, sigma: 0.1, sigma_decay: 0.99}
noise: {size: 600000}
""",
}
COMMON = """
evaluation: {every: 2, episodes: 6}
stop: {generations: 6}
"""


@pytest.mark.parametrize("name", CONFIGS)
def test_digests_are_the_same_on_any_number_of_ranks(name, run_mpies, write_config, tmp_path):
    config, expected = write_config(CONFIGS[name] + COMMON), None
    # 0 is one rank without MPI.  A single rank under MPI is tried where little is computed.
    for ranks in (0, 1, 2, 3, 5) if name in ("cartpole-envpool", "overlap", "rastrigin") else (0, 2, 3, 5):
        outcome = run_mpies(ranks, "train", config, "--out", f"run-{ranks}")
        assert outcome.code == 0, outcome.stderr[-3000:]
        rows = read_metrics(tmp_path / f"run-{ranks}")
        assert [row["ranks"] for row in rows] == [str(ranks or 1)] * 6
        results = [[row[key] for key in ("digest", "return_mean", "steps", "eval_mean", "failures")] for row in rows]
        expected = expected or results
        assert results == expected, f"{ranks} ranks"
    assert len({row[0] for row in expected}) == 6


@pytest.mark.parametrize("name", ["cartpole-envpool", "low-rank", "overlap", "rastrigin"])
def test_a_run_stopped_on_two_ranks_and_resumed_on_three_is_the_undisturbed_one(
    name, run_mpies, write_config, tmp_path
):
    config = write_config(CONFIGS[name] + COMMON)
    for ranks, run, generations in [(0, "undisturbed", 8), (2, "parts", 5), (3, "parts", 8)]:
        outcome = run_mpies(ranks, "train", config, "--out", run, f"stop.generations={generations}")
        assert outcome.code == 0, outcome.stderr[-3000:]
    assert read_digests(tmp_path / "parts") == read_digests(tmp_path / "undisturbed")
    assert [row["ranks"] for row in read_metrics(tmp_path / "parts")] == ["2"] * 5 + ["3"] * 3


def test_another_seed_gives_other_bits(run_mpies, write_config, tmp_path):
    config = write_config(CONFIGS["rastrigin"] + COMMON)
    for seed in (1, 2):
        assert run_mpies(0, "train", config, "--out", f"run-{seed}", f"seed={seed}", "stop.generations=1").code == 0
    assert read_digests(tmp_path / "run-1") != read_digests(tmp_path / "run-2")


def test_verify_compares_the_digests_of_numbers_of_ranks(run_mpies, write_config):
    config = write_config(CONFIGS["cartpole-envpool"] + COMMON)
    outcome = run_mpies(0, "verify", config, "--ranks", "1,2,3", "--generations", 2)
    assert outcome.code == 0, outcome.stdout + outcome.stderr
    assert outcome.stdout.count("same") >= 3


LEAKY = """
import os, gymnasium, numpy as np
from gymnasium import spaces

class Leaky(gymnasium.Env):
    observation_space, action_space = spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(2)
    def reset(self, seed=None, options=None):
        return np.zeros(2, np.float32), {}
    def step(self, action):
        return np.ones(2, np.float32), float(os.urandom(1)[0]), True, False, {}

gymnasium.register("Leaky-v0", Leaky)
"""


def test_verify_names_the_first_generation_that_differs(run_mpies, write_config, tmp_path):
    (tmp_path / "leaky.py").write_text(LEAKY)
    config = write_config("environment: {id: 'leaky:Leaky-v0'}\nnoise: {size: 600000}\n" + COMMON)
    outcome = run_mpies(0, "verify", config, "--ranks", "1,2", "--generations", 2)
    assert outcome.code == 1, outcome.stdout + outcome.stderr
    assert "differs from generation 1" in outcome.stdout
