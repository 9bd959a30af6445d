"""Steps per second of whole generations, beside the libraries that one would use instead, on the same cores.

    make benchmark-peers                                   (builds their environment first)
    python benchmarks/against_peers.py LunarLander-v3 BipedalWalker-v3 [--repeats 3] [--json FILE]

In turn, several times: `mpies train --ranks 2`, as the README has it, then each peer of peers/contestant.py, with the
same environment, 40-40 tanh network, population, number of generations and of processes.  Prints steps of the
environment per second, as the median over the repeats, without the first generation.  Beside it: ours divided by the
peer's.  Nothing else may run on the machine; its load before the first run is printed.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from mpies.runs.formats.metrics import read_metrics

PEERS = Path(__file__).parent / "peers"
NAMES = ("evotorch", "evotorch-distributed", "pycma", "pycma-diagonal", "nevergrad", "evosax")

CONFIG = """
environment: {{id: {environment}}}
policy: {{hidden: [40, 40]}}
solver: {{kind: {solver}, population: {population}, {keys}}}
overlap: {overlap}
evaluation: {{every: 0, episodes: 1}}
stop: {{generations: {generations}}}
"""
OURS = {  # solver, its keys, generations that overlap
    "mpies openai_es": ("openai_es", "sigma: 0.1", 0),
    "mpies overlap": ("openai_es", "sigma: 0.1", 1),
    "mpies pgpe": ("pgpe", "", 0),
    "mpies cma_es": ("cma_es", "", 0),
}


def rate(seconds: Sequence[float], steps: Sequence[float], first: int = 1) -> float:
    """Steps per second of the generations from the second on; from the first where it plays some of the second."""
    return sum(steps[first:]) / sum(seconds[first:])


def play_ours(name: str, environment: str, options: argparse.Namespace) -> float:
    """Steps per second of `mpies train`.  name: a key of OURS."""
    solver, keys, overlap = OURS[name]
    with tempfile.TemporaryDirectory() as folder:
        config, out = Path(folder) / "config.yaml", Path(folder) / "run"
        values = vars(options) | {"environment": environment, "solver": solver, "keys": keys, "overlap": overlap}
        config.write_text(CONFIG.format(**values))
        command = [sys.executable, "-m", "mpies", "train", str(config), "--ranks", str(options.processes)]
        command += ["--out", str(out)]
        subprocess.run(command, check=True, capture_output=True, stdin=subprocess.DEVNULL)
        rows = read_metrics(out)
    totals = [(float(row["seconds"]), float(row["steps"])) for row in rows]
    before = [(0.0, 0.0), *totals]
    pairs = [(now[0] - then[0], now[1] - then[1]) for then, now in zip(before, totals, strict=False)]
    return rate(*zip(*pairs, strict=True), first=0 if overlap else 1)


def play_peer(name: str, environment: str, options: argparse.Namespace) -> float:
    """Steps per second of a peer.  name: one of NAMES."""
    command = [options.python, PEERS / "contestant.py", name, environment, "--population", options.population]
    command += ["--workers", options.processes, "--generations", options.generations]
    # One thread of arithmetic per process, as our ranks have.
    single = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL")}
    pipes = {"capture_output": True, "text": True, "stdin": subprocess.DEVNULL}
    done = subprocess.run(list(map(str, command)), env=os.environ | single, **pipes)
    if done.returncode:
        sys.exit(f"{name} on {environment} ended with code {done.returncode}:\n{done.stderr[-2000:]}")
    results = json.loads(done.stdout.splitlines()[-1])
    return rate(results["seconds"], results["steps"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("environments", nargs="+")
    parser.add_argument(
        "--ours", default="mpies openai_es,mpies overlap,mpies cma_es", help="the first is what peers are compared with"
    )
    parser.add_argument("--peers", default=",".join(NAMES))
    parser.add_argument("--python", default=PEERS / ".venv/bin/python", help="of the peers' environment")
    parser.add_argument("--population", type=int, default=64)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--generations", type=int, default=6)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json")
    options = parser.parse_args()
    if not Path(options.python).exists():
        sys.exit(f"{options.python} does not exist: run make benchmark-peers, or name it with --python")
    ours, peers = options.ours.split(","), [name for name in options.peers.split(",") if name]
    results = {}
    print(f"load of the machine before: {os.getloadavg()[0]:.1f}", flush=True)
    for environment in options.environments:
        rates = {name: [] for name in [*ours, *peers]}
        for _ in range(options.repeats):
            for name in rates:
                play = play_ours if name in OURS else play_peer
                rates[name].append(play(name, environment, options))
        median = {name: statistics.median(values) for name, values in rates.items()}
        results[environment] = {"median": median, "all": rates}
        print(f"{environment}, population {options.population}, {options.processes} processes")
        for name, value in median.items():
            print(
                f"  {name:<22} {value:>10,.0f} steps/s   ours is {median[ours[0]] / value:6.2f} times that", flush=True
            )
        if options.json:  # after each: all of them take long
            kept = {key: str(value) if isinstance(value, Path) else value for key, value in vars(options).items()}
            Path(options.json).write_text(json.dumps({"options": kept, "environments": results}, indent=1))


if __name__ == "__main__":
    main()
