"""What `mpies simulate` predicts, beside what `mpies train` does on 1 to 64 ranks of nodes with a slow network.

    python benchmarks/validate_simulate.py [--ranks 1,4,16,64] [--delay 0.0002] [--json FILE]      (as root)

Nodes are network namespaces (namespaces.py), episodes sleep (sleeping.py).  `mpies bench` measures the constants on
16 ranks; from them, and the number of members, the efficiency of every number of ranks is predicted.  Measured is
metrics.csv: steps x seconds of a step over ranks x seconds of the generations after the first.
"""

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

from mpies.launch.forecast.constants import find_workload, read_constants
from mpies.launch.forecast.simulate import parse_ranks, predict
from mpies.runs.formats.metrics import read_metrics

sys.path.insert(0, str(Path(__file__).parent))
from namespaces import Nodes

WANTED = 0.10

CONFIG = """
environment:
  id: "sleeping:Sleeping-v0"
  backend: gymnasium
  kwargs: {{step: {step}, mean: {mean}, variation: {variation}}}
policy: {{hidden: [8]}}
solver: {{population: {population}}}
noise: {{size: 100000}}
evaluation: {{every: 0, episodes: 1}}
stop: {{generations: {generations}}}
"""


def mpies(nodes: Nodes, ranks: int, *arguments: object) -> str:
    """Standard output of mpies on so many ranks of the nodes."""
    done = nodes.run(
        ranks,
        [sys.executable, "-m", "mpies", *map(str, arguments)],
        PYTHONPATH=f"{Path(__file__).parent}:{Path(__file__).parent.parent}",
        GYM_IGNORE_DEPRECATION_WARNINGS="1",
    )
    if done.returncode:
        sys.exit(f"mpies {' '.join(map(str, arguments))} on {ranks} ranks: code {done.returncode}\n{done.stderr}")
    return done.stdout


def write_config(folder: Path, options: argparse.Namespace, ranks: int, generations: int) -> Path:
    """The path of a new config for so many ranks."""
    path = folder / f"sleeping-{ranks}.yaml"
    values = vars(options) | {"population": options.members * ranks, "generations": generations}
    path.write_text(CONFIG.format(**values))
    return path


def measured(run: Path, ranks: int, step: float) -> float:
    """Efficiency of the generations of a run after the first, for steps of so many seconds."""
    rows = read_metrics(run)
    first, last = rows[0], rows[-1]
    steps, seconds = (float(last[name]) - float(first[name]) for name in ("steps", "seconds"))
    return steps * step / (ranks * seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", default="1,4,16,64")
    parser.add_argument("--bench-ranks", type=int, default=16)
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--delay", type=float, default=2e-4, help="seconds from node to node")
    parser.add_argument("--members", type=int, default=10, help="of a rank")
    parser.add_argument("--step", type=float, default=0.1, help="seconds; short ones and 64 ranks fight for the cores")
    parser.add_argument("--mean", type=float, default=10, help="steps of an episode")
    parser.add_argument("--variation", type=float, default=0.5)
    parser.add_argument("--generations", type=int, default=6)
    parser.add_argument("--json", type=os.path.abspath)
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as temporary, Nodes(options.nodes, options.delay) as nodes:
        folder = Path(temporary)
        os.chdir(folder)
        config = write_config(folder, options, options.bench_ranks, options.generations)
        print(mpies(nodes, options.bench_ranks, "bench", config, "--out", "constants.yaml", "--repeats", 3))
        constants = read_constants("constants.yaml")
        print(f"{'ranks':>6} {'measured':>10} {'predicted':>10} {'apart':>8}")
        for ranks in parse_ranks(options.ranks):
            config = write_config(folder, options, ranks, options.generations)
            mpies(nodes, ranks, "train", config, "--out", f"run-{ranks}")
            workload = find_workload(str(config), (), constants)
            cores = -(-ranks // min(ranks, options.nodes))
            machine = constants.machine.model_copy(update={"cores": cores})
            predicted = predict(machine, workload, ranks).efficiency
            real = measured(folder / f"run-{ranks}", ranks, workload.step)
            apart = predicted / real - 1
            rows.append({"ranks": ranks, "measured": real, "predicted": predicted, "apart": apart})
            print(f"{ranks:>6} {real:>10.3f} {predicted:>10.3f} {apart:>+8.1%}", flush=True)
        kept = {"options": vars(options), "constants": constants.model_dump(mode="json"), "rows": rows}
    if options.json:
        Path(options.json).write_text(json.dumps(kept, indent=1))
    worst = max(abs(row["apart"]) for row in rows)
    print(f"at most {worst:.1%} apart, {WANTED:.0%} wanted")
    sys.exit(0 if worst <= WANTED else 1)


if __name__ == "__main__":
    main()
