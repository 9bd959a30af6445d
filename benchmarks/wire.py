"""Bytes that a generation puts on the wire, read from the interfaces of nodes, beside what it has to send.

    python benchmarks/wire.py [--nodes 4] [--ranks 4] [--json FILE]      (as root)

Real `mpies train` on nodes that are network namespaces (namespaces.py).  Two runs that differ in their number of
generations alone; the difference of what all interfaces sent, headers included, over the difference in generations.
Beside it the payload: the proposal to each node but the first, the blocks of the update from each, and every
member's row to each.
"""

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

from mpies.rollouts.batch import rollout_record

sys.path.insert(0, str(Path(__file__).parent))
from namespaces import Nodes

CASES = [(2804, 256), (2804, 1440), (2804, 10_000), (166_673, 256), (166_673, 1440), (1_000_000, 1440)]

CONFIG = """
environment: {{id: function:sphere, dimension: {dimension}}}
solver: {{population: {members}}}
noise: {{size: {size}}}
evaluation: {{every: 0}}
checkpoint: {{every: 1000000}}
"""


def train(nodes: Nodes, ranks: int, config: Path, generations: int) -> int:
    """Bytes sent by all nodes in a run."""
    before = sum(nodes.sent())
    arguments = ["train", config, "--out", f"{config.stem}-{generations}", f"stop.generations={generations}"]
    done = nodes.run(ranks, [sys.executable, "-m", "mpies", *arguments], PYTHONPATH=Path(__file__).parent.parent)
    if done.returncode:
        sys.exit(f"mpies train on {ranks} ranks: code {done.returncode}\n{done.stderr}")
    return sum(nodes.sent()) - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--few", type=int, default=2, help="generations of the short run")
    parser.add_argument("--many", type=int, default=12, help="generations of the long one")
    parser.add_argument("--json", type=os.path.abspath)
    options = parser.parse_args()
    rows = []
    print(f"{options.ranks} ranks on {options.nodes} nodes, bytes of a generation, all nodes together")
    print(f"{'parameters':>10} {'members':>8} {'on the wire':>14} {'payload':>14} {'ratio':>7}")
    with tempfile.TemporaryDirectory() as folder, Nodes(options.nodes) as nodes:
        os.chdir(folder)
        for dimension, members in CASES:
            config = Path(folder) / f"sphere-{dimension}-{members}.yaml"
            size = max(1_000_000, 2 * dimension)
            config.write_text(CONFIG.format(dimension=dimension, members=members, size=size))
            few, many = (train(nodes, options.ranks, config, count) for count in (options.few, options.many))
            wire = (many - few) / (options.many - options.few)
            others = options.nodes - 1
            payload = others * 4 * dimension + 4 * dimension * others / options.nodes
            payload += others * members * rollout_record().itemsize
            rows.append({"parameters": dimension, "members": members, "wire": wire, "payload": payload})
            print(f"{dimension:>10,} {members:>8,} {wire:>14,.0f} {payload:>14,.0f} {wire / payload:>7.2f}", flush=True)
    if options.json:
        Path(options.json).write_text(json.dumps({"options": vars(options), "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
