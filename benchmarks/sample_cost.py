"""What a way of training costs in samples: evaluations until a task is solved, beside training without it.

    python benchmarks/sample_cost.py [TASK ...] [--ways low_rank orthogonal ...] [--seeds 10] [--jobs 2] [--json FILE]

Each seed is trained in turn by plain `mpies train`, with noise of low rank, with orthogonal directions, and with shares
of overlap.
Solved is a mean return over 100 held-out episodes at the task's target, and again over 100 fresh ones, evaluated after
every second generation, or every tenth of the walker.  Evaluations are episodes of members; those of the mean do not
count.  Time does not matter here: run it on a machine that does other things, at low priority.  With a file of figures
that is there already, only what it lacks is run.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import yaml

from mpies.comm import mpiexec
from mpies.runs.metrics import read_metrics

WAYS: dict[str, dict[str, Any]] = {"plain": {}, "low_rank": {"noise": {"kind": "low_rank", "rank": 1}}}
WAYS |= {"orthogonal": {"noise": {"kind": "orthogonal"}}}
WAYS |= {f"overlap_{share:g}": {"overlap": share} for share in (0.25, 0.5, 1)}
SOLVER = {"kind": "openai_es", "sigma": 0.1, "weight_decay": 0.0}
TASKS = {
    "cartpole": {
        "environment": {"id": "CartPole-v1"},
        "policy": {"hidden": [64, 64]},
        "solver": SOLVER | {"population": 32, "optimizer": {"learning_rate": 0.01}},
        "stop": {"target": 475, "generations": 300},
    },
    "cartpole_linear": {
        "environment": {"id": "CartPole-v1"},
        "policy": {"hidden": []},
        "solver": SOLVER | {"population": 32, "sigma": 0.3, "optimizer": {"learning_rate": 0.1}},
        "stop": {"target": 475, "generations": 300},
    },
    "lqr": {  # the best possible is about -45
        "environment": {"id": "LQR-v0"},
        "policy": {"hidden": [], "initial": "zeros", "normalize_observations": False},
        "solver": SOLVER | {"population": 16, "sigma": 0.05, "optimizer": {"learning_rate": 0.02}},
        "stop": {"target": -60, "generations": 300},
    },
    "sphere": {
        "environment": {"id": "function:sphere", "dimension": 100, "shift": 1},
        "solver": SOLVER | {"population": 32, "optimizer": {"learning_rate": 0.1}},
        "stop": {"target": -1, "generations": 1000},
    },
    "rosenbrock": {
        "environment": {"id": "function:rosenbrock", "dimension": 10, "shift": 0},
        "solver": SOLVER | {"population": 16, "sigma": 0.05, "optimizer": {"learning_rate": 0.05}},
        "stop": {"target": -1, "generations": 4000},
    },
    "inverted_pendulum": {
        "environment": {"id": "InvertedPendulum-v5"},
        "policy": {"hidden": [64, 64]},
        "solver": SOLVER | {"population": 32, "optimizer": {"learning_rate": 0.02}},
        "stop": {"target": 950, "generations": 300},
    },
    "lunar_lander": {
        "environment": {"id": "LunarLander-v3"},
        "policy": {"hidden": [32, 32]},
        "solver": SOLVER | {"population": 128, "optimizer": {"learning_rate": 0.03}},
        "stop": {"target": 200, "generations": 300},
    },
    "rastrigin": {
        "environment": {"id": "function:rastrigin", "dimension": 20, "shift": 1},
        "solver": {"kind": "snes", "population": 400, "sigma": 3.0},
        "stop": {"target": -1e-3, "generations": 600},
    },
    "bipedal_walker": {  # the recipe; 250 is a walk that seldom falls, and 300 takes twice as long
        "environment": {
            "id": "BipedalWalker-v3",
            "ignored_rewards": [-100],
            "seeds": "generation",
            "adaptive": {"start": 500, "ratio": 1.1},
        },
        "policy": {"hidden": []},
        "solver": SOLVER | {"population": 32, "sigma": 0.05, "optimizer": {"learning_rate": 0.02}},
        "evaluation": {"every": 10},
        "stop": {"target": 250, "generations": 1000},
    },
}


def fits(task: str, way: str) -> bool:
    """Whether the task has matrices for noise of low rank, and a solver for the way's kind of noise."""
    kind, solver = WAYS[way].get("noise", {}).get("kind", "full"), TASKS[task]["solver"]["kind"]
    return kind == "full" or (solver == "openai_es" and (kind != "low_rank" or "policy" in TASKS[task]))


def train(task: str, way: str, seed: int) -> dict[str, Any]:
    """The figures of one run."""
    config = {"evaluation": {"every": 2}} | TASKS[task] | WAYS[way] | {"seed": seed}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        (path / "config.yaml").write_text(yaml.safe_dump(config))
        command = [sys.executable, "-m", "mpies", "train", path / "config.yaml", "--out", path / "run"]
        environment = mpiexec.environment() | {"MPIES_PICTURES": "0"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{task}, {way}, seed {seed} ended with code {done.returncode}:\n{done.stderr[-2000:]}")
        last = read_metrics(path / "run")[-1]
        reason = yaml.safe_load((path / "run/finished.yaml").read_text())["reason"]
    return {
        "task": task,
        "way": way,
        "seed": seed,
        "solved": reason == "solved",
        "generations": int(last["generation"]),
        "evaluations": int(last["episodes"]),
        "steps": int(last["steps"]),
    }


def summary(rows: list[dict[str, Any]], task: str) -> Iterator[str]:
    """Lines on a task: evaluations in each way, and how they compare."""
    ways: dict[str, dict[int, dict[str, Any]]] = {}
    for row in rows:
        if row["task"] == task:
            ways.setdefault(row["way"], {})[row["seed"]] = row
    for way, by_seed in ways.items():
        counts = [row["evaluations"] for row in by_seed.values()]
        solved = sum(row["solved"] for row in by_seed.values())
        spread = statistics.stdev(counts) if len(counts) > 1 else 0.0
        ratios = [row["evaluations"] / ways["plain"][seed]["evaluations"] for seed, row in by_seed.items()]
        yield (
            f"{task:<18} {way:<9} {solved:>3} of {len(counts)} solved, evaluations: "
            f"mean {statistics.mean(counts):,.0f}, median {statistics.median(counts):,.0f}, deviation {spread:,.0f}; "
            f"over plain, seed by seed: geometric mean {statistics.geometric_mean(ratios):.2f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tasks", nargs="*", metavar="TASK", help=", ".join(TASKS))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--ways", nargs="+", default=list(WAYS)[1:], choices=[way for way in WAYS if WAYS[way]])
    parser.add_argument("--jobs", type=int, default=1, help="trainings at the same time, on one core each")
    parser.add_argument("--json")
    options = parser.parse_args()
    rows = json.loads(Path(options.json).read_text()) if options.json and Path(options.json).exists() else []
    for task in options.tasks or TASKS:
        known = {(row["way"], row["seed"]) for row in rows if row["task"] == task}
        ways = [way for way in ("plain", *options.ways) if fits(task, way)]
        lacking = [(way, seed) for seed in range(1, options.seeds + 1) for way in ways if (way, seed) not in known]
        with ThreadPoolExecutor(options.jobs) as pool:
            for row in pool.map(lambda run, task=task: train(task, *run), lacking):
                rows.append(row)
                if options.json:
                    Path(options.json).write_text(json.dumps(rows, indent=1) + "\n")
        print("\n".join(summary(rows, task)), flush=True)


if __name__ == "__main__":
    main()
