"""Seconds of training by the command that people type, over those of the same ranks bound to cores by hand.

    python benchmarks/cores.py                          the lunar lander, 60 generations
    python benchmarks/cores.py --busy                   beside a busy program
    python benchmarks/cores.py BipedalWalker-v3 --generations 20

In turn: `mpies train --ranks N`; the same ranks by `mpirun --bind-to core`; the same without any binding.  Then two
jobs of one rank each at the same time, as typed, and pinned by taskset.  Nothing else may run on the machine.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from mpies.comm import mpiexec
from mpies.runs.formats.metrics import read_metrics

SETTINGS = ["policy.hidden=[40,40]", "solver.population=64", "evaluation.every=0", "evaluation.episodes=1"]
BUSY = "while True: pass"


def seconds(commands: list[list[str]], settings: list[str]) -> float:
    """Seconds of training, a mean over these commands of mpies, which run at the same time."""
    with tempfile.TemporaryDirectory() as folder:
        runs = [Path(folder, f"run{number}") for number in range(len(commands))]
        jobs = [
            subprocess.Popen(
                [*command, *settings, "--out", str(run)],
                env=mpiexec.environment() | {"MPIES_PICTURES": "0"},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            for command, run in zip(commands, runs, strict=True)
        ]
        for job in jobs:
            if job.wait():
                sys.exit(f"{' '.join(map(str, job.args))} ended with {job.returncode}")  # type: ignore[arg-type]
        return statistics.mean(float(read_metrics(run)[-1]["seconds"] or 0) for run in runs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("environment", nargs="?", default="LunarLander-v3")
    parser.add_argument("--ranks", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--generations", type=int, default=60)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--busy", action="store_true", help="beside a program that is always busy")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    settings = [*SETTINGS, f"stop.generations={options.generations}"]
    train, mpirun = [sys.executable, "-m", "mpies", "train", options.environment], [mpiexec.find() or "mpiexec"]
    cpus = sorted(os.sched_getaffinity(0))[:2]
    contestants = {
        f"mpies train --ranks {options.ranks}": [[*train, "--ranks", str(options.ranks)]],
        "mpirun --bind-to core": [[*mpirun, "--bind-to", "core", "-n", str(options.ranks), *train]],
        "without binding": [[*train, "--ranks", str(options.ranks), "bind_ranks=false"]],
        "two jobs": [train, train],
        "two jobs, taskset": [["taskset", "-c", str(cpu), *train, "bind_ranks=false"] for cpu in cpus],
    }
    busy = subprocess.Popen([sys.executable, "-c", BUSY]) if options.busy else None
    times: dict[str, list[float]] = {name: [] for name in contestants}
    try:
        for _ in range(options.repeats):
            for name, commands in contestants.items():
                times[name].append(seconds(commands, settings))
    finally:
        if busy:
            busy.kill()
            busy.wait()
    medians = {name: statistics.median(values) for name, values in times.items()}
    typed, bound, free, jobs, pinned = medians.values()
    print(f"{options.environment}, {options.generations} generations, medians of {options.repeats}")
    for name, values in times.items():
        print(f"{name:26} {medians[name]:7.2f} s   ({min(values):.2f} to {max(values):.2f})")
    ratios = {
        "bound / typed": bound / typed,
        "bound / unbound": bound / free,
        "pinned jobs / typed jobs": pinned / jobs,
    }
    for name, ratio in ratios.items():
        print(f"{name:26} {ratio:7.2f}")
    if options.json:
        Path(options.json).write_text(json.dumps({"seconds": times, "medians": medians, "ratios": ratios}, indent=1))


if __name__ == "__main__":
    main()
