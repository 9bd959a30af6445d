"""Filling the noise table, against how fast the cores draw normals.

    mpirun -n 2 python -m mpi4py benchmarks/noise_fill.py [--size 25000000] [--repeats 5]

In one run and in turn, several times: (a) `Updater.build_table` into fresh shared memory, and (b) all ranks at once
draw as many normals each into a small buffer that stays in the cache.  The ratio is (a) over size / (ranks x one
core's normals per second).  Beside it, what explains the difference: writing zeros to fresh shared memory of that
size (page faults), and filling a table whose pages are there already.  Medians; --json FILE keeps them.
"""

import argparse
import json
import statistics
import time
from pathlib import Path

import numpy as np

from mpies.comm import Communicator, connect
from mpies.config.loading import validate_config
from mpies.core.streams import NOISE_TABLE, stream
from mpies.launch.bench import barrier, timed
from mpies.solvers.sampling import noise
from mpies.training.update import Updater, make_solver

BUFFER = 1 << 14  # normals: 64 kB, stays in a core's own cache
REQUIRED = 1.15
DIMENSION = 100  # parameters; the time to fill the table does not depend on them


def draw(count: int, rank: int) -> float:
    """Draw `count` normals into a small buffer.  Returns normals per second of this core."""
    random = stream(1, NOISE_TABLE, rank)
    buffer = np.empty(BUFFER, np.float32)
    random.standard_normal(out=buffer, dtype=np.float32)
    began = time.perf_counter()
    for _ in range(-(-count // BUFFER)):
        random.standard_normal(out=buffer, dtype=np.float32)
    return -(-count // BUFFER) * BUFFER / (time.perf_counter() - began)


def measure(comm: Communicator, updater: Updater) -> dict[str, float]:
    """Seconds of each part, and the normals per second of one core (mean over the ranks), of one repeat."""
    size, seed = updater.config.noise.size, updater.config.seed
    blocks = range(comm.node_rank, noise.blocks(size), comm.node_size)  # those of this rank
    result = {"build": timed(comm, updater.build_table)}
    table = updater.solver.table

    def refill() -> None:
        for block in blocks:
            noise.fill(table, seed, block)

    result["refill"] = timed(comm, refill)
    free(comm, updater)
    fresh = comm.allocate_shared(size, np.float32)

    def touch() -> None:
        for block in blocks:
            fresh[block * noise.BLOCK : (block + 1) * noise.BLOCK] = 0

    result["touch"] = timed(comm, touch)
    free(comm, updater)
    rates, _ = comm.allgather(np.array([draw(size // comm.size, comm.rank)]))
    return result | {"rate": float(rates.mean())}


def free(comm: Communicator, updater: Updater) -> None:
    """Free all shared memory, so that the next repeat begins with fresh pages."""
    barrier(comm)
    updater.solver.table = np.zeros(0, np.float32)
    comm.free()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=25_000_000, help="normals in the table")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    comm = connect()
    values = {"environment": {"id": "function:sphere", "dimension": DIMENSION}, "noise": {"size": options.size}}
    config = validate_config(values, "noise_fill")
    updater = Updater(config, make_solver(config, DIMENSION), comm)
    parts = [measure(comm, updater) for _ in range(options.repeats)]
    if comm.is_root:
        least = [options.size / (comm.size * part["rate"]) for part in parts]
        ratios = [part["build"] / one for part, one in zip(parts, least, strict=True)]
        result = {
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
        print(f"  build the table          {result['build_seconds']:8.3f} s")
        print(f"  fill it again, warm      {result['refill_seconds']:8.3f} s")
        print(f"  first touch alone        {result['first_touch_seconds']:8.3f} s")
        print(f"  drawing alone            {result['least_seconds']:8.3f} s ", end="")
        print(f"({result['normals_per_second'] / 1e6:.0f} million normals per second and core)")
        ends = f"(min {min(ratios):.3f}, max {max(ratios):.3f})"
        print(f"  ratio {result['ratio']:.3f} {ends}, {REQUIRED} wanted; ", end="")
        print(f"fastest against fastest {result['ratio_of_fastest']:.3f}")
        if options.json:
            options.json.write_text(json.dumps(result, indent=1))
    comm.finalize(0)


if __name__ == "__main__":
    main()
