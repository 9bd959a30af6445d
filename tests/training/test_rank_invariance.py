"""The same bits on any number of ranks, with every solver and kind of environment, also of a run that was stopped.

One start of mpiexec trains all configs for its number of ranks.
"""

import fcntl
import importlib.util
import re
import shutil

import pytest

from mpies.runs.formats.metrics import read_digests, read_metrics
from mpies.solvers import SOLVERS
from tests.support import HOME, invoke, train_many

PROGRAM, RECIPE = re.findall(r"```(?:python|yaml)\n(.*?)```", (HOME / "docs" / "solvers.md").read_text(), re.DOTALL)
SMOOTH = """
import gymnasium, numpy as np
class Smooth(gymnasium.Env):
    observation_space = action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    def reset(self, seed=None, options=None):
        self.random = np.random.default_rng(seed)
        self.last, self.left = np.zeros(1, np.float32), 3 + int(seed % 20)
        return self.random.uniform(-1, 1, 1).astype(np.float32), {}
    def step(self, action):
        cost = float(((action - self.last) ** 2).sum())
        self.last, self.left = action, self.left - 1
        return self.random.uniform(-1, 1, 1).astype(np.float32), -cost, self.left == 0, False, {}
class Copies(Smooth):
    def step(self, action):
        return super().step(action.copy())
"""

# Trained on 0 (one rank without MPI) and 3 ranks.
TASKS = {
    "cartpole-envpool": """
environment: {id: CartPole-v1, backend: envpool, max_steps: 100}
policy: {hidden: [8]}
solver: {population: 30, sigma: 0.2, timesteps_per_batch: 1500}
""",
    "cartpole-gymnasium": """
environment: {id: CartPole-v1, backend: gymnasium, max_steps: 40, seeds: generation}
policy: {hidden: [8], statistics_fraction: 0.5}
solver: {population: 14, sigma: 0.2, episodes: 3}
""",
    "lander-envpool": """
environment: {id: LunarLander-v3, backend: envpool, max_steps: 120}
solver: {population: 20, sigma: 0.1}
""",
    "lander-gymnasium": """
environment: {id: LunarLander-v3, backend: gymnasium, max_steps: 60}
policy: {hidden: [16], activation: relu}
solver: {population: 12, sigma: 0.1, optimizer: {kind: sgd}}
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
""",
    "rastrigin": """
environment: {id: "function:rastrigin", dimension: 1001, shift: 1}
solver: {population: 26, sigma: 0.1, sigma_decay: 0.99}
""",
}
FUNCTION = 'environment: {id: "function:rosenbrock", dimension: 203, shift: 1}\nsolver: {kind: "%s", %s}\n'
KINDS = {
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
POLICY = "\npolicy: {hidden: [4]}\nsolver: {kind: %s, population: 20, episodes: 2}\n"
SMALL = "\npolicy: {hidden: [8]}\nsolver: {population: 12, sigma: 0.1}\n"
OTHERS = {
    "candidates": "environment: {id: CartPole-v1, max_steps: 60}" + POLICY % "cma_es",
    "novelty": "environment: {id: Hopper-v5, max_steps: 20, behaviour: [x_position]}" + POLICY % "novelty_es",
    "documented": RECIPE,
    "adaptive": """
environment: {id: CartPole-v1, adaptive: {start: 10, threshold: 0.5, ratio: 1.5}, reward_shift: 0.25, hide: [1]}
policy: {hidden: []}
solver: {population: 16, sigma: 0.3, optimizer: {kind: adam, learning_rate: 0.2}}
""",
    "numbered": """
environment: {id: Hopper-v5, seeds: generation, max_steps: 30}
policy: {hidden: [], initial: zeros}
solver: {kind: pgpe, population: 20, interactions: 700, sigma: 0.1}
""",
    "parts": 'environment: {id: "tests.envs.rover:Rover", kwargs: {actions: mixed}, max_steps: 20}' + SMALL,
    "one-hot": 'environment: {id: "gymnasium:Blackjack-v1", max_steps: 20}' + SMALL,
    "pybullet": "environment: {id: InvertedPendulumBulletEnv-v0, max_steps: 30}" + SMALL,
    "swing-up": "environment: {id: CartPoleSwingUp-v0, max_steps: 30}" + SMALL,
    "smooth": 'environment: {id: "smooth.py:Smooth"}' + SMALL,
    "copies": 'environment: {id: "smooth.py:Copies"}' + SMALL,
    "reused": 'environment: {id: "own.py:ReusesArrays"}' + SMALL,
}
CONFIGS = TASKS | {kind: FUNCTION % (kind, options) for kind, options in KINDS.items()} | OTHERS
NEEDED = {"nevergrad:TBPSA": "nevergrad", "pybullet": "pybullet", "numbered": "envpool", "cartpole-envpool": "envpool"}
NEEDED["lander-envpool"] = "envpool"
COMMON = "evaluation: {every: 2, episodes: 6}\ncheckpoint: {every: 2}\nstop: {generations: 6}\n"
FIVE = ["cartpole-envpool", "lander-gymnasium", "low-rank", "overlap"]  # also trained on five ranks
# Stopped on two ranks after three generations, and resumed on three.
STOPPED = ["cartpole-envpool", "low-rank", "overlap", "rastrigin", "adaptive", "numbered"]
STOPPED += ["cma_es", "deep_ga", "novelty_es", "cr_fm_nes"]
COLUMNS = "digest", "return_mean", "steps", "eval_mean", "failures", "episodes"


@pytest.fixture(scope="module")
def folder(outcomes_on_ranks):
    """The runs of all configs: R/NAME on R ranks, and stopped/NAME.  All workers of pytest-xdist share it."""
    folder = outcomes_on_ranks / "rank-invariance"
    with open(outcomes_on_ranks / "rank-invariance.lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "trained").exists():
            folder.mkdir(exist_ok=True)
            train_all(folder)
            (folder / "trained").touch()
    return folder


def train_all(folder):
    (folder / "cross_entropy.py").write_text(PROGRAM)
    (folder / "smooth.py").write_text(SMOOTH)
    shutil.copy(HOME / "tests" / "envs" / "misbehaving.py", folder / "own.py")
    names = [name for name in CONFIGS if importlib.util.find_spec(NEEDED.get(name, "mpies"))]
    for name in names:
        text = CONFIGS[name] + (COMMON if name != "documented" else "evaluation: {every: 20}\n")
        text += "noise: {size: 300000}\n" if "noise:" not in text else ""
        (folder / f"{name}.yaml").write_text(text)
    stopped = [(f"{name}.yaml", f"stopped/{name}") for name in STOPPED if name in names]
    for ranks in (0, 2, 3, 5):
        chosen = {0: CONFIGS, 3: CONFIGS, 5: FIVE}.get(ranks, ())
        runs = [(f"{name}.yaml", f"{ranks}/{name}") for name in chosen if name in names]
        runs += {2: [(*run, "stop.generations=3") for run in stopped], 3: stopped}.get(ranks, [])
        train_many(folder, ranks, runs)


def results_of(run):
    return [[row[column] for column in COLUMNS] for row in read_metrics(run)]


def skip_if_absent(name):
    if name in NEEDED:
        pytest.importorskip(NEEDED[name], reason=f"{NEEDED[name]} is not installed")


@pytest.mark.parametrize("name", CONFIGS)
def test_results_are_the_same_on_any_number_of_ranks(name, folder):
    skip_if_absent(name)
    expected = results_of(folder / "0" / name)
    assert len({digest for digest, *_ in expected}) == (60 if name == "documented" else 6)
    others = [*folder.glob(f"[35]/{name}")]
    assert len(others) >= (2 if name in FIVE else 1)
    for run in others:
        assert results_of(run) == expected, run
        assert {row["ranks"] for row in read_metrics(run)} == {run.parent.name}


@pytest.mark.parametrize("name", STOPPED)
def test_a_run_stopped_on_two_ranks_and_resumed_on_three_is_the_undisturbed_one(name, folder):
    skip_if_absent(name)
    assert read_digests(folder / "stopped" / name) == read_digests(folder / "0" / name)
    assert [row["ranks"] for row in read_metrics(folder / "stopped" / name)] == ["2"] * 3 + ["3"] * 3


def test_every_solver_of_the_registry_is_tested():
    assert set(SOLVERS) <= set(KINDS)


def test_an_environment_may_keep_its_actions(folder):
    assert read_digests(folder / "0" / "smooth") == read_digests(folder / "0" / "copies")


def test_the_example_of_the_documentation_trains(folder, monkeypatch):
    rows = read_metrics(folder / "0" / "documented")
    assert float(rows[59]["eval_mean"]) > float(rows[19]["eval_mean"]) / 10 > -1e6
    monkeypatch.chdir(folder)
    outcome = invoke("check", "documented.yaml", "solver.flor=0.1")
    assert outcome.code == 2 and "solver.flor is not a key; did you mean solver.floor?" in outcome.stderr


def test_limit_and_shift_of_a_task_change_training_alone(folder):
    rows = read_metrics(folder / "0" / "adaptive")
    lengths = [float(row["length_mean"]) for row in rows]
    assert lengths[0] <= 10 < max(lengths)
    assert float(rows[0]["return_max"]) == 10 * 0.75  # the shift is subtracted in training
    assert max(float(row["eval_mean"]) for row in rows if row["eval_mean"]) > 10  # no limit, no shift


@pytest.mark.parametrize(("name", "member"), [("adaptive", "5,3"), ("numbered", "5,27")])  # 27: of the second batch
def test_generations_and_members_are_replayed(name, member, folder):
    skip_if_absent(name)
    assert invoke("replay", folder / "0" / name, "--generation", 5).code == 0
    assert invoke("play", folder / "0" / name, "--member", member).code == 0


def test_another_seed_gives_other_bits(folder):
    train_many(folder, 0, [("rastrigin.yaml", "another-seed", "seed=2", "stop.generations=1")])
    assert read_digests(folder / "another-seed") != read_digests(folder / "0" / "rastrigin")[:1]


def test_verify_compares_the_digests_of_numbers_of_ranks(folder, monkeypatch):
    monkeypatch.chdir(folder)
    outcome = invoke("verify", "cartpole-gymnasium.yaml", "--ranks", "1,2", "--generations", 2)
    assert outcome.code == 0, outcome.stdout + outcome.stderr
    assert outcome.stdout.count("same") >= 2


LEAKY = """
import os
from smooth import Smooth
class Leaky(Smooth):
    def step(self, action):
        return super().step(action)[0], float(os.urandom(1)[0]), True, False, {}
"""


def test_verify_names_the_first_generation_that_differs(folder, monkeypatch):
    monkeypatch.chdir(folder)
    (folder / "leaky.py").write_text(LEAKY)
    (folder / "leaky.yaml").write_text("environment: {id: 'leaky.py:Leaky'}\nnoise: {size: 600000}\n" + COMMON)
    outcome = invoke("verify", "leaky.yaml", "--ranks", "1,2", "--generations", 2)
    assert outcome.code == 1, outcome.stdout + outcome.stderr
    assert "differs from generation 1" in outcome.stdout
