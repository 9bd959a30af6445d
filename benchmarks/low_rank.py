"""What noise of low rank costs in samples: evaluations until a task is solved, beside full noise.

    python benchmarks/low_rank.py [TASK ...] [--seeds 10] [--rank 1] [--json FILE]

For each seed in turn `mpies train` with noise.kind full and low_rank, all else equal: solved is a mean return over 100
held-out episodes at the task's target, and again over 100 fresh ones, asked for after every second generation.
Evaluations are episodes of members; those of the mean do not count.  Time does not matter here: run it on a machine
that does other things, at low priority.  With a file of figures that is there already, only what it lacks is run.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

from mpies import mpiexec, store

SOLVER = {"kind": "openai_es", "sigma": 0.1, "weight_decay": 0.0}
TASKS = {
    "cartpole": {
        "environment": {"id": "CartPole-v1"},
        "policy": {"hidden": [64, 64]},
        "solver": SOLVER | {"population": 32, "optimizer": {"learning_rate": 0.01}},
        "stop": {"target": 475, "generations": 300},
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
}


def train(task, noise, seed):
    """The figures of one run."""
    config = TASKS[task] | {"seed": seed, "noise": noise, "evaluation": {"every": 2}}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        (path / "config.yaml").write_text(yaml.safe_dump(config))
        command = [sys.executable, "-m", "mpies", "train", path / "config.yaml", "--out", path / "run"]
        environment = mpiexec.environment() | {"MPIES_PICTURES": "0"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{task}, {noise}, seed {seed} ended with code {done.returncode}:\n{done.stderr[-2000:]}")
        last = store.read_metrics(path / "run")[-1]
        reason = yaml.safe_load((path / "run/finished.yaml").read_text())["reason"]
    return {
        "task": task,
        "noise": noise["kind"],
        "seed": seed,
        "solved": reason == "solved",
        "generations": int(last["generation"]),
        "evaluations": int(last["episodes"]),
        "steps": int(last["steps"]),
    }


def summary(rows, task):
    """Lines on a task: evaluations of each kind of noise, and how they compare."""
    kinds = {}
    for row in rows:
        if row["task"] == task:
            kinds.setdefault(row["noise"], {})[row["seed"]] = row
    for kind, found in kinds.items():
        counts = [row["evaluations"] for row in found.values()]
        solved = sum(row["solved"] for row in found.values())
        spread = statistics.stdev(counts) if len(counts) > 1 else 0.0
        yield (
            f"{task:<18} {kind:<9} {solved:>3} of {len(counts)} solved, evaluations: "
            f"mean {statistics.mean(counts):,.0f}, median {statistics.median(counts):,.0f}, deviation {spread:,.0f}"
        )
    if len(kinds) == 2:
        full, low = kinds["full"], kinds["low_rank"]
        ratios = [low[seed]["evaluations"] / full[seed]["evaluations"] for seed in full if seed in low]
        if ratios:
            yield f"{task:<18} low_rank / full, seed by seed: geometric mean {statistics.geometric_mean(ratios):.2f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tasks", nargs="*", metavar="TASK", help=", ".join(TASKS))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--rank", type=int, default=1)
    parser.add_argument("--json")
    options = parser.parse_args()
    rows = json.loads(Path(options.json).read_text()) if options.json and Path(options.json).exists() else []
    for task in options.tasks or TASKS:
        for seed in range(1, options.seeds + 1):
            for noise in ({"kind": "full"}, {"kind": "low_rank", "rank": options.rank}):
                if any((row["task"], row["noise"], row["seed"]) == (task, noise["kind"], seed) for row in rows):
                    continue
                rows.append(train(task, noise, seed))
                if options.json:
                    Path(options.json).write_text(json.dumps(rows, indent=1) + "\n")
        print("\n".join(summary(rows, task)), flush=True)


if __name__ == "__main__":
    main()
