"""Ctrl-C at random moments: does each leave a checkpoint of the newest generation and exit code 75?

    python benchmarks/interrupts.py [--trials 50] [--kinds make,long] [--seed 1] [--json FILE]

make: `make train` of the lunar lander, from the first second to the eighth.  long: `mpies train --ranks 2` of an
environment that sleeps, with generations of 5 seconds.  SIGINT goes to the whole process group, as from a terminal.
Call `make install` first: a trial that had to install would not count.
A trial is right when the exit code is 75 (make reports it as `Error 75`) and the newest row of metrics.csv has its
checkpoint.  A run that is interrupted before it has begun has neither.  Where a run ends before the signal, it counts
as finished.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from mpies.runs.checkpoint import list_checkpoints
from mpies.runs.metrics import read_metrics

HOME = Path(__file__).resolve().parent.parent
SLEEPING = """
import time, gymnasium, numpy as np
from gymnasium import spaces

class Sleeping(gymnasium.Env):
    observation_space, action_space = spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(2)
    def reset(self, seed=None, options=None):
        self.left = 5
        return np.zeros(2, np.float32), {}
    def step(self, action):
        time.sleep(0.05)
        self.left -= 1
        return np.ones(2, np.float32), float(action), not self.left, False, {}
"""
LONG = """
environment: {id: 'sleeping.py:Sleeping'}
policy: {hidden: []}
solver: {population: 40}
noise: {size: 100000}
evaluation: {every: 0}
checkpoint: {every: 1000}
"""
LATEST = {"make": 8.0, "long": 20.0}  # seconds after the start, of the latest signal


def prepare(kind: str, folder: Path) -> tuple[list[str], Path]:
    """Fill a folder for a trial.  Returns the command and the run directory."""
    if kind == "make":
        for entry in HOME.iterdir():
            if entry.name not in (".git", "runs"):
                (folder / entry.name).symlink_to(entry)
        return ["make", "train", "RANKS=2"], folder / "runs" / "lunar_lander"
    (folder / "sleeping.py").write_text(SLEEPING)
    (folder / "config.yaml").write_text(LONG)
    return [sys.executable, "-m", "mpies", "train", "config.yaml", "--ranks", "2", "--out", "run"], folder / "run"


def trial(kind: str, moment: float) -> dict[str, object]:
    """Start, interrupt after `moment` seconds, and report what is left."""
    with tempfile.TemporaryDirectory(prefix="mpies-interrupt-") as name:
        command, run = prepare(kind, Path(name))

        def restore() -> None:  # a job in the background of a shell would ignore SIGINT
            signal.signal(signal.SIGINT, signal.default_int_handler)

        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        process = subprocess.Popen(command, cwd=name, start_new_session=True, preexec_fn=restore, **pipes)
        time.sleep(moment)
        began = time.monotonic()
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)
        output = process.communicate(timeout=120)[0]
        rows = read_metrics(run)
        generation = int(rows[-1]["generation"]) if rows else 0
        checkpoints = [int(path.stem.rpartition("-")[2]) for path in list_checkpoints(run)]
        code = 75 if kind == "make" and "Error 75" in output else process.returncode
        is_finished = (run / "finished.yaml").exists()
        is_right = is_finished or (code == 75 and generation == max(checkpoints, default=0))
        return {
            "moment": round(moment, 2),
            "seconds": round(time.monotonic() - began, 2),
            "code": code,
            "generation": generation,
            "checkpoint": max(checkpoints, default=None),
            "finished": is_finished,
            "right": is_right,
            "output": "" if is_right else output[-500:],
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=50, help="of each kind")
    parser.add_argument("--kinds", default="make,long")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found, draw = {}, random.Random(options.seed)
    for kind in options.kinds.split(","):
        moments = [draw.uniform(1.0, LATEST[kind]) for _ in range(options.trials)]
        with ThreadPoolExecutor(5 if kind == "long" else 1) as pool:  # those that sleep can go side by side
            results = list(pool.map(lambda moment, kind=kind: trial(kind, moment), moments))
        right = sum(bool(result["right"]) for result in results)
        begun = sum(bool(result["generation"]) for result in results)
        print(f"{kind}: {right} of {len(results)} right, {begun} of them in a generation or later", flush=True)
        for result in results:
            if not result["right"]:
                print(result, flush=True)
        found[kind] = {"trials": len(results), "right": right, "results": results}
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    sys.exit(any(kind["right"] < kind["trials"] for kind in found.values()))


if __name__ == "__main__":
    main()
