"""Seconds and steps until a task's score is reached, beside what one would use in place of mpies.

    make peers                                              (builds the peers' environment)
    python benchmarks/time_to_score.py [TASK ...] [--trainers mpies ppo ...] [--seeds 5] [--limit S] [--json FILE]
    python benchmarks/time_to_score.py --json FILE --table  (prints the tables of a file and runs nothing)

For each task and seed in turn: `mpirun -n 2 mpies train` with a recipe, the same with a config of one line, and
each peer of peers/learner.py on as many processes, with the settings of peers/learner_settings.py.  The score is
reached when the mean return over 100 held-out episodes is at the target, and again over 100 fresh ones.  Seconds are
those of training: for no trainer do start-up and evaluations count.  A trainer that has not reached the score when
the limit or its schedule is over counts as unsolved, and as slower than all others in median and quartiles.
With a file of figures that is there already, only what it lacks is run.  --json keeps each run as it ends.  A trainer
that fails is not in the table; the others go on, and the same command tries it again.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml

from mpies.comm import mpiexec
from mpies.runs.formats.metrics import read_metrics
from mpies.runs.machine import describe_machine

PEERS = Path(__file__).parent / "peers"
EVERYONE = ("ppo", "evotorch", "pycma", "evosax")

# Task: environment, target, the recipe with its overrides, and the peers.
TASKS: dict[str, tuple[str, float, list[str], tuple[str, ...]]] = {
    "cartpole": ("CartPole-v1", 475, ["cartpole"], EVERYONE),
    "pendulum": ("Pendulum-v1", -200, ["pendulum"], (*EVERYONE, "sac")),
    "lunar_lander": ("LunarLander-v3", 200, ["lunar_lander"], EVERYONE),
    "lunar_lander_continuous": (
        "LunarLanderContinuous-v3",
        200,
        ["lunar_lander_18-cma_5", "evaluation.every=2"],
        (*EVERYONE, "sac"),
    ),
    "bipedal_walker": ("BipedalWalker-v3", 300, ["bipedal_walker"], (*EVERYONE, "sac")),
    "swimmer": ("Swimmer-v5", 325, ["swimmer", "evaluation.every=1"], (*EVERYONE, "sac")),
    "hopper": ("Hopper-v5", 3000, ["hopper"], (*EVERYONE, "sac")),
    "half_cheetah": ("HalfCheetah-v5", 3000, ["half_cheetah"], (*EVERYONE, "sac")),
    "walker2d": ("Walker2d-v5", 3000, ["walker2d", "evaluation.every=5"], ("ppo", "sac")),
    "ant": ("Ant-v5", 2300, ["ant", "evaluation.episodes=100"], ("ppo", "sac")),
    "humanoid": (
        "Humanoid-v5",
        5000,
        ["humanoid_linear", "environment.backend=mujoco", "evaluation.episodes=100"],
        ("ppo", "sac"),
    ),
}
SECONDS = 60, 60, 180, 120, 240, 120, 180, 180, 900, 1800, 3600
LIMITS: dict[str, float] = dict(zip(TASKS, SECONDS, strict=True))  # seconds of training
OURS = ("mpies", "mpies, one line")
NAMES = {"ppo": "SB3 PPO", "sac": "SB3 SAC", "evotorch": "EvoTorch PGPE", "pycma": "pycma", "evosax": "evosax Open_ES"}


class TrainerFailed(Exception):
    """A trainer ended with an error, which says nothing about its speed."""


def run(command: list[str], environment: dict[str, str] | None = None) -> str:
    """Standard output of a command.  Raises TrainerFailed with the end of its error."""
    pipes: dict[str, Any] = {"capture_output": True, "text": True, "stdin": subprocess.DEVNULL}
    done = subprocess.run(command, env=environment, **pipes)
    if done.returncode:
        text = (done.stderr or done.stdout)[-2000:]
        raise TrainerFailed(f"{' '.join(command)} ended with code {done.returncode}:\n{text}")
    return done.stdout


def train_ours(task: str, trainer: str, seed: int, limit: float, options: argparse.Namespace) -> dict[str, Any]:
    """The figures of a run of `mpies train`.  trainer: one of OURS."""
    name, target, (recipe, *overrides), _ = TASKS[task]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        if trainer == OURS[0]:
            words = ["train", recipe, *overrides]
        else:
            words = ["train", name]
        words += ["--out", str(out), f"seed={seed}"]
        words += [f"stop.target={target}", f"stop.seconds={limit}", "stop.generations=1000000"]
        environment = mpiexec.environment() | {"MPIES_PICTURES": "0"}
        run(mpiexec.command(mpiexec.find(), options.processes, words), environment)
        last = read_metrics(out)[-1]
        reason = yaml.safe_load((out / "finished.yaml").read_text())["reason"]
    score = float(last["eval_mean"] or "nan")
    return {
        "solved": reason == "solved",
        "seconds": float(last["seconds"]),
        "steps": int(last["steps"]),
        "score": score,
    }


def train_peer(task: str, trainer: str, seed: int, limit: float, options: argparse.Namespace) -> dict[str, Any]:
    """The figures of a peer.  trainer: one of NAMES."""
    environment, target = TASKS[task][:2]
    command = [options.python, PEERS / "learner.py", trainer, environment, "--seed", seed, "--target", target]
    command += ["--limit", limit, "--workers", options.processes]
    threads = str(options.processes) if trainer == "sac" else "1"  # PPO's networks are too small to share
    single = {f"{library}_NUM_THREADS": threads for library in ("OMP", "OPENBLAS", "MKL")}
    figures: dict[str, Any] = json.loads(run(list(map(str, command)), os.environ | single).splitlines()[-1])
    return figures


def quantile(values: list[float], share: float) -> float:
    """The smallest of the values that at least this share of them does not exceed; infinite ones are allowed."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def as_cell(values: list[float], digits: int) -> str:
    """Median and quartiles of a column; a dash for those that are not reached."""

    def one(value: float) -> str:
        return f"{value:,.{digits}f}" if math.isfinite(value) else "–"

    low, middle, high = (one(quantile(values, share)) for share in (0.25, 0.5, 0.75))
    return middle if low == middle == high else f"{middle} ({low} to {high})"


def table(rows: list[dict[str, Any]]) -> list[str]:
    """The lines of a Markdown table, a line for each task and trainer."""
    lines = ["| task, score | trainer | solved | seconds | steps |", "|---|---|---|---|---|"]
    for task, (environment, target, _, _) in TASKS.items():
        found: dict[str, list[dict[str, Any]]] = {}
        for row in rows:
            if row["task"] == task:
                found.setdefault(row["trainer"], []).append(row)
        seconds = {who: [r["seconds"] if r["solved"] else math.inf for r in runs] for who, runs in found.items()}
        for who in sorted(found, key=lambda name: (quantile(seconds[name], 0.5), name)):
            runs = found[who]
            steps = [row["steps"] if row["solved"] else math.inf for row in runs]
            solved = f"{sum(row['solved'] for row in runs)} of {len(runs)}"
            digits = 1 if quantile(seconds[who], 0.5) < 100 else 0
            cells = [as_cell(seconds[who], digits), as_cell(steps, 0)]
            lines.append(f"| {environment}, {target:g} | {NAMES.get(who, who)} | {solved} | {cells[0]} | {cells[1]} |")
    return lines


def summary(rows: list[dict[str, Any]]) -> list[str]:
    """The lines of a Markdown table with a line for each task: median seconds, and how many seeds if not all."""
    trainers = [name for name in (*OURS, *NAMES) if any(row["trainer"] == name for row in rows)]
    lines = ["| task, score | limit | " + " | ".join(NAMES.get(name, name) for name in trainers) + " |"]
    lines.append("|---" * (len(trainers) + 2) + "|")
    for task, (environment, target, _, _) in TASKS.items():
        cells = []
        for name in trainers:
            runs = [row for row in rows if (row["task"], row["trainer"]) == (task, name)]
            if not runs:
                cells.append("")
                continue
            solved = sum(row["solved"] for row in runs)
            seconds = quantile([row["seconds"] if row["solved"] else math.inf for row in runs], 0.5)
            cell = f"{seconds:.{1 if seconds < 10 else 0}f} s" if math.isfinite(seconds) else "–"
            cells.append(cell if solved == len(runs) else f"{cell} ({solved} of {len(runs)})")
        if any(cells):
            limits = sorted({row["limit"] for row in rows if row["task"] == task})
            limit = " or ".join(f"{seconds:g} s" for seconds in limits)
            lines.append(f"| {environment}, {target:g} | {limit} | {' | '.join(cells)} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tasks", nargs="*", metavar="TASK", help=", ".join(TASKS))
    parser.add_argument("--trainers", nargs="+", choices=[*OURS, *NAMES], help="default all that the task has")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--limit", type=float, help="seconds of training; default that of the task's row")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--python", default=PEERS / ".venv/bin/python", help="of the peers' environment")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--table", action="store_true", help="print the tables of the file and run nothing")
    options = parser.parse_args()
    if unknown := set(options.tasks) - set(TASKS):
        parser.error(f"there is no {', '.join(sorted(unknown))}; choose from {', '.join(TASKS)}")
    rows = json.loads(options.json.read_text()) if options.json and options.json.exists() else []
    failed: list[str] = []
    kept = {(row["task"], row["trainer"], row["seed"], row["limit"]) for row in rows}
    for task in [] if options.table else options.tasks or TASKS:
        limit = options.limit or LIMITS[task]
        trainers = [name for name in (*OURS, *TASKS[task][3]) if not options.trainers or name in options.trainers]
        if set(trainers) - set(OURS) and not Path(options.python).exists():
            sys.exit(f"{options.python} does not exist: run make peers, or name it with --python")
        for seed in range(1, options.seeds + 1):
            for trainer in trainers:
                if (task, trainer, seed, limit) in kept:
                    continue
                began = time.perf_counter()
                try:
                    figures = (train_ours if trainer in OURS else train_peer)(task, trainer, seed, limit, options)
                except TrainerFailed as error:
                    failed.append(f"{task}, {trainer}, seed {seed}")
                    print(error, file=sys.stderr, flush=True)
                    continue
                row = {"task": task, "trainer": trainer, "seed": seed, "limit": limit, **figures}
                row["processes"] = options.processes
                rows.append(row | {"wall": round(time.perf_counter() - began, 1), "machine": describe_machine()})
                print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
                if options.json:
                    options.json.write_text(json.dumps(rows, indent=1) + "\n")
    machines = sorted({row["machine"] for row in rows})
    print("\n".join([*summary(rows), "", *table(rows), "", *(f"On {machine}." for machine in machines)]))
    if failed:
        sys.exit(f"{len(failed)} of the runs failed; the same command tries them again: {'; '.join(failed)}")


if __name__ == "__main__":
    main()
