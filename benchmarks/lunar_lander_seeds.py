"""How many seeds solve the lunar lander in a minute.

    python benchmarks/lunar_lander_seeds.py [--seeds 10] [--first 1] [--ranks 2] [--out FOLDER] [KEY=VALUE ...]

For each seed: `mpirun -n 2 mpies train configs/lunar_lander.yaml seed=S`, then `mpies evaluate RUN --episodes 100`
on held-out episodes.  A seed counts when that evaluation's mean reaches 200 and the training took at most 60 s
(the clock of metrics.csv: generations, without start-up and evaluations; the wall time of the command stands beside).
A run in FOLDER that is there already is resumed, so the count can be taken up again.  --json FILE keeps the figures.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from mpies.comm import mpiexec
from mpies.runs.metrics import read_metrics

TARGET, SECONDS, EPISODES = 200.0, 60.0, 100


def run(command: list[str]) -> str:
    """Standard output of a command.  The benchmark ends with its output where it fails."""
    done = subprocess.run(command, env=mpiexec.environment(), capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        sys.exit(f"{' '.join(command)} ended with code {done.returncode}:\n{(done.stderr or done.stdout)[-2000:]}")
    return done.stdout


def measure(options: argparse.Namespace, folder: Path, seed: int) -> dict[str, Any]:
    """The figures of one seed."""
    path = folder / f"seed-{seed}"
    words = ["train", options.config, "--out", str(path), f"seed={seed}", *options.overrides]
    start = time.perf_counter()
    run(mpiexec.command(mpiexec.find(), options.ranks, words))
    wall = time.perf_counter() - start
    words = ["evaluate", str(path), "--episodes", str(EPISODES), "--json"]
    evaluation = json.loads(run([sys.executable, "-m", "mpies", *words]))
    last = read_metrics(path)[-1]
    figures = {
        "seed": seed,
        "generations": int(last["generation"]),
        "steps": int(last["steps"]),
        "training_seconds": float(last["seconds"]),
        "wall_seconds": wall,
        "mean": evaluation["mean"],
        "interval": evaluation["interval"],
    }
    return figures | {"counts": figures["mean"] >= TARGET and figures["training_seconds"] <= SECONDS}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("--config", default="configs/lunar_lander.yaml")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--out", help="folder of the runs; default a temporary one")
    parser.add_argument("--json")
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(options.out or temporary)
        print(f"{'seed':>4} {'generations':>11} {'steps':>12} {'training s':>10} {'wall s':>8} {'evaluation':>18}")
        for seed in range(options.first, options.first + options.seeds):
            row = measure(options, folder, seed)
            rows.append(row)
            print(
                f"{seed:>4} {row['generations']:>11} {row['steps']:>12,} {row['training_seconds']:>10.1f} "
                f"{row['wall_seconds']:>8.1f} {row['mean']:>10.2f} +- {row['interval']:<5.2f}"
                f"{'' if row['counts'] else '  does not count'}",
                flush=True,
            )
    counted = sum(row["counts"] for row in rows)
    print(f"{counted} of {len(rows)} seeds: mean return >= {TARGET:g} within {SECONDS:g} s of training")
    if options.json:
        Path(options.json).write_text(json.dumps({"ranks": options.ranks, "seeds": rows, "counted": counted}, indent=1))


if __name__ == "__main__":
    main()
