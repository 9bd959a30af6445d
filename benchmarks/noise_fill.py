"""Filling the noise table, against how fast the cores draw normals.

    mpirun -n 2 python benchmarks/noise_fill.py [--size 25000000] [--repeats 5]

In one run and in turn, several times: (a) `Trainer.build_table` into fresh shared memory, and (b) all ranks at once
draw as many normals each into a small buffer that stays in the cache.  The ratio is (a) over size / (ranks x one
core's normals per second).  Beside it, what explains the difference: writing zeros to fresh shared memory of that
size (page faults), and filling a table whose pages are there already.  Medians; --json FILE keeps them.
"""

from mpies.config.loading import load_config
import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

from mpies.scaling.bench import meet
from mpies.comm import connect
from mpies.training.trainer import Trainer
from mpies.solvers import noise
from mpies.solvers.streams import NOISE_TABLE, stream

BUFFER = 1 << 14  # normals: 64 kB, stays in a core's own cache
REQUIRED = 1.15


def timed(comm, work):
    """Seconds from a common start until all ranks have done `work`."""
    meet(comm)
    start = time.perf_counter()
    work()
    meet(comm)
    return time.perf_counter() - start


def draw(count, rank):
    """Draw `count` normals into a small buffer; returns normals per second of this core."""
    random = stream(1, NOISE_TABLE, rank)
    buffer = np.empty(BUFFER, np.float32)
    random.standard_normal(out=buffer, dtype=np.float32)
    start = time.perf_counter()
    for _ in range(-(-count // BUFFER)):
        random.standard_normal(out=buffer, dtype=np.float32)
    return -(-count // BUFFER) * BUFFER / (time.perf_counter() - start)


def own_blocks(comm, size):
    return range(comm.node_rank, noise.blocks(size), comm.node_size)


def release(comm):
    """Give back the shared memory of the last repeat; a trainer keeps its own to the end."""
    for window in getattr(comm, "_windows", []):
        if window is not None:
            window.Free()
    getattr(comm, "_windows", []).clear()


def measure(comm, trainer, size, seed):
    """Seconds of each part, and the normals per second of one core (mean over the ranks), of one repeat."""
    found = {"build": timed(comm, trainer.build_table)}
    table = trainer.table

    def fill():
        for block in own_blocks(comm, size):
            noise.fill(table, seed, block)

    found["refill"] = timed(comm, fill)
    trainer.table = trainer.solver.table = table = None
    release(comm)
    fresh = comm.shared(size, np.float32)

    def touch():
        for block in own_blocks(comm, size):
            fresh[block * noise.BLOCK : (block + 1) * noise.BLOCK] = 0

    found["touch"] = timed(comm, touch)
    fresh = None
    release(comm)
    meet(comm)
    rates, _ = comm.allgather(np.array([draw(size // comm.size, comm.rank)]))
    return found | {"rate": float(rates.mean())}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=25_000_000, help="normals in the table")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json")
    options = parser.parse_args()
    comm = connect()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sphere.yaml"
        path.write_text(f"environment: {{id: function:sphere, dimension: 100}}\nnoise: {{size: {options.size}}}\n")
        config = load_config(path)
    trainer = Trainer(config, comm, None)
    parts = [measure(comm, trainer, options.size, config.seed) for _ in range(options.repeats)]
    if comm.rank == 0:
        least = [options.size / (comm.size * part["rate"]) for part in parts]
        ratios = [part["build"] / one for part, one in zip(parts, least, strict=True)]
        found = {
            "size": options.size,
            "ranks": comm.size,
            "normals_per_second": statistics.median(part["rate"] for part in parts),
            "build_seconds": statistics.median(part["build"] for part in parts),
            "least_seconds": statistics.median(least),
            "refill_seconds": statistics.median(part["refill"] for part in parts),
            "first_touch_seconds": statistics.median(part["touch"] for part in parts),
            "ratio": statistics.median(ratios),
            "ratio_of_fastest": min(part["build"] for part in parts) / min(least),
            "ratios": ratios,
        }
        print(f"{options.size:,} normals, {comm.size} ranks, medians of {options.repeats}")
        print(f"  build the table          {found['build_seconds']:8.3f} s")
        print(f"  fill it again, warm      {found['refill_seconds']:8.3f} s")
        print(f"  first touch alone        {found['first_touch_seconds']:8.3f} s")
        print(f"  drawing alone            {found['least_seconds']:8.3f} s ", end="")
        print(f"({found['normals_per_second'] / 1e6:.0f} million normals per second and core)")
        print(
            f"  ratio {found['ratio']:.3f} (min {min(ratios):.3f}, max {max(ratios):.3f}), {REQUIRED} wanted; ",
            end="",
        )
        print(f"fastest against fastest {found['ratio_of_fastest']:.3f}")
        if options.json:
            Path(options.json).write_text(json.dumps(found, indent=1))
    comm.leave(0)


if __name__ == "__main__":
    main()
