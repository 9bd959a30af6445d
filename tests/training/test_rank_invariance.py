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
# Trained on 0 (one rank without MPI) and 3 ranks.  Each has a way through the program that no other one has.
TASKS = {
    "cartpole-envpool": """
environment: {id: CartPole-v1, backend: envpool, max_steps: 100}
policy: {hidden: [8]}
solver: {population: 30, sigma: 0.2, timesteps_per_batch: 1500}
""",
    "cartpole-gymnasium": """
environment: {id: CartPole-v1, backend: gymnasium, max_steps: 40, seeds: generation}
policy: {hidden: [8], activation: relu, statistics_fraction: 0.5}
solver: {population: 14, sigma: 0.2, episodes: 3, optimizer: {kind: sgd}}
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
}
FUNCTION = 'environment: {id: "function:rosenbrock", dimension: 203, shift: 1}\nsolver: {kind: "%s", %s}\n'
KINDS = {
    "openai_es": "population: 26, sigma: 0.1, sigma_decay: 0.99",
    "pepg": "population: 20, average_baseline: false",
    "pgpe": "population: 20, interactions: 50",
    "ars": "population: 20, top: 6",
    "snes": "",
    "sep_cma": "",
    "cr_fm_nes": "",
    "cma_es": "covariance: full",
    "deep_ga": "population: 20, parents: 4, snapshot: 2, sigma: 0.1",
    "novelty_es": "population: 20, means: 2",
}
SMALL = "\npolicy: {hidden: [8]}\nsolver: {population: 12, sigma: 0.1}\n"
OTHERS = {
    "novelty": """
environment: {id: Hopper-v5, max_steps: 20, behaviour: [x_position]}
policy: {hidden: [4]}
solver: {kind: novelty_es, population: 20, episodes: 2}
""",
    "documented": RECIPE.replace("generations: 60", "generations: 20"),
    "adaptive": """
environment: {id: CartPole-v1, adaptive: {start: 10, threshold: 0.5, ratio: 1.5}, reward_shift: 0.25, hide: [1]}
policy: {hidden: []}
solver: {population: 16, sigma: 0.3, optimizer: {kind: adam, learning_rate: 0.2}}
""",
    "numbered": """
environment: {id: Hopper-v5, backend: envpool, seeds: generation, max_steps: 30, reward_shift: auto}
policy: {hidden: [], initial: zeros}
solver: {kind: pgpe, population: 20, interactions: 700, sigma: 0.1}
""",
    "parts": 'environment: {id: "tests.envs.rover:Rover", kwargs: {actions: mixed}, max_steps: 20}' + SMALL,
    "one-hot": 'environment: {id: "gymnasium:Blackjack-v1", max_steps: 20, reward_shift: auto}' + SMALL,
    "reused": 'environment: {id: "own.py:ReusesArrays"}' + SMALL,
}
CONFIGS = TASKS | {kind: FUNCTION % (kind, options) for kind, options in KINDS.items()} | OTHERS
NEEDED = {"numbered": "envpool", "cartpole-envpool": "envpool"}
COMMON = "evaluation: {every: 2, episodes: 6}\ncheckpoint: {every: 2}\nstop: {generations: 4}\n"
# Stopped on one rank after three generations, and resumed on three.
STOPPED = ["cartpole-envpool", "low-rank", "overlap", "numbered", "cma_es", "deep_ga"]
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
    shutil.copy(HOME / "tests" / "envs" / "misbehaving.py", folder / "own.py")
    names = [name for name in CONFIGS if importlib.util.find_spec(NEEDED.get(name, "mpies"))]
    for name in names:
        text = CONFIGS[name] + (COMMON if name != "documented" else "evaluation: {every: 10}\n")
        text += "noise: {size: 300000}\n" if "noise:" not in text else ""
        (folder / f"{name}.yaml").write_text(text)
    stopped = [(f"{name}.yaml", f"stopped/{name}") for name in STOPPED if name in names]
    alone, together = ([(f"{name}.yaml", f"{ranks}/{name}") for name in names] for ranks in (0, 3))
    train_many(folder, 0, alone + [(*run, "stop.generations=3") for run in stopped])
    train_many(folder, 3, together + stopped)


def results_of(run):
    return [[row[column] for column in COLUMNS] for row in read_metrics(run)]


def skip_if_absent(name):
    if name in NEEDED:
        pytest.importorskip(NEEDED[name], reason=f"{NEEDED[name]} is not installed")


@pytest.mark.parametrize("name", CONFIGS)
def test_results_are_the_same_on_one_rank_and_on_three_also_where_a_run_was_stopped_in_between(name, folder):
    skip_if_absent(name)
    expected = results_of(folder / "0" / name)
    assert len({digest for digest, *_ in expected}) == (20 if name == "documented" else 4)
    assert results_of(folder / "3" / name) == expected
    assert {row["ranks"] for row in read_metrics(folder / "3" / name)} == {"3"}
    if name in STOPPED:
        assert read_digests(folder / "stopped" / name) == read_digests(folder / "0" / name)
        assert [row["ranks"] for row in read_metrics(folder / "stopped" / name)] == ["1"] * 3 + ["3"]


def test_every_solver_of_the_registry_is_tested():
    assert set(SOLVERS) <= set(KINDS)


def test_the_example_of_the_documentation_trains(folder, monkeypatch):
    rows = read_metrics(folder / "0" / "documented")
    assert float(rows[19]["eval_mean"]) > 0.7 * float(rows[9]["eval_mean"]) > -1e6
    monkeypatch.chdir(folder)
    outcome = invoke("check", "documented.yaml", "solver.flor=0.1")
    assert outcome.code == 2 and "solver.flor is not a key; did you mean solver.floor?" in outcome.stderr


def test_limit_and_shift_of_a_task_change_training_alone(folder):
    rows = read_metrics(folder / "0" / "adaptive")
    lengths = [float(row["length_mean"]) for row in rows]
    assert lengths[0] <= 10 < max(lengths)
    assert float(rows[0]["return_max"]) == 10 * 0.75  # the shift is subtracted in training
    assert max(float(row["eval_mean"]) for row in rows if row["eval_mean"]) > 10  # no limit, no shift


@pytest.mark.parametrize(("name", "member"), [("adaptive", "4,3"), ("numbered", "4,27")])  # 27: of the second batch
def test_generations_and_members_are_replayed(name, member, folder):
    skip_if_absent(name)
    assert invoke("replay", folder / "0" / name, "--generation", 4).code == 0
    assert invoke("play", folder / "0" / name, "--member", member).code == 0


def test_another_seed_gives_other_bits(folder):
    out = folder / "another-seed"
    invoke("train", folder / "openai_es.yaml", "--out", out, "seed=2", "stop.generations=1", code=0)
    assert read_digests(out) != read_digests(folder / "0" / "openai_es")[:1]
