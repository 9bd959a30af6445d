"""Everything between rollouts in one generation, against the time that reading the noise alone would take.

    mpirun -n 2 python -m mpi4py benchmarks/between_rollouts.py [--dimension 166673] [--pairs 720] [--repeats 9]
    mpirun -n 2 python -m mpi4py benchmarks/between_rollouts.py --all [--repeats 5]
    OMP_NUM_THREADS=1 mpirun -n 2 python -m mpi4py benchmarks/between_rollouts.py --low-rank [--pairs 720] [--repeats 5]

The loop of `mpies train` as it is (`Trainer.advance` with OpenAI-ES), only that playing is replaced by returns
made up at once.  Its time on rank 0 is split into phases, each without the phases inside it.  In turn with it, all
ranks at once copy the same tiles of the same noise rows from the shared table into a scratch that stays in
the cache: bytes of noise read / that rate is the least that any implementation needs.
Prints medians over the repeats and the ratios; --json FILE keeps them.  Sampling the members, which belongs to the
rollouts, and a checkpoint, which is not written every generation, stand beside the total and not in it.
"""

from mpies.config.loading import validate_config
import argparse
import json
import statistics
import time
from operator import truediv
from pathlib import Path

import numpy as np

from mpies.training import trainer
from mpies.scaling.bench import MadeUpPlayer, NoProgress, NoSignals, meet, passing_run
from mpies.comm import connect
from mpies.solvers.moments import TILE

REQUIRED = 1.5
REQUIRED_SUMS = 1.25
SUMS = ("moments", "broadcast", "gather of blocks")
BESIDE = ("playing", "sampling members", "checkpoint")
PERCEPTRONS = (256, 822)  # hidden units: 166,673 and 1,000,391 parameters
ALL = [(d, n) for d in (2804, 166_673, 1_000_000) for n in (256, 1440, 10_000)]  # parameters, members


class WritingPlayer(MadeUpPlayer):
    """Made-up returns, but every member is written, as it must be before it can be played."""

    def __init__(self, comm, dimension):
        super().__init__(comm)
        self.out = np.empty(dimension, np.float32)

    def play(self, session, *others):
        super().play(session, *others)
        self.write_members(session.work, session.rows["rollout"].tolist())

    def write_members(self, work, rollouts):
        for rollout in rollouts:
            work.write(rollout, self.out)


class Stopwatch:
    """Seconds by phase, each without the phases inside it."""

    def __init__(self):
        self.seconds, self.running = {}, []

    def watch(self, owner, name, phase):
        """Count the calls of owner.name as `phase` from now on."""
        function = getattr(owner, name)

        def call(*args, **kwargs):
            self.running.append(0.0)  # spent in phases inside this one
            start = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                spent = time.perf_counter() - start
                self.seconds[phase] = self.seconds.get(phase, 0.0) + spent - self.running.pop()
                if self.running:
                    self.running[-1] += spent

        setattr(owner, name, call)

    def take(self):
        """The seconds since the last time, by phase."""
        taken, self.seconds = self.seconds, {}
        return taken


def watch_phases(trainer, run):
    """A Stopwatch on this rank's generations."""
    watch = Stopwatch()
    watch.watch(trainer, "advance", "the rest")
    watch.watch(trainer.task.player, "play", "playing")
    watch.watch(trainer.task.player, "write_members", "sampling members")
    watch.watch(trainer, "play_generation", "seeds, indices, results")
    watch.watch(trainer.solver, "weigh", "weigh")
    watch.watch(trainer.comm, "broadcast", "broadcast")
    watch.watch(trainer.comm, "allgather", "allgather of results")
    watch.watch(trainer.comm, "gather_blocks", "gather of blocks")
    watch.watch(trainer.solver, "moments", "moments")
    if trainer.learner:
        watch.watch(trainer.solver, "ask", "ask")
        watch.watch(trainer.learner, "update", "tell")
        watch.watch(trainer.learner, "record", "row")
        watch.watch(run, "settle", "waiting for the disk")
        watch.watch(run, "checkpoint", "checkpoint")
    return watch


def stream(table, indices, start, stop):
    """Read what the moments kernel reads, in its order, and do nothing with it."""
    scratch = np.empty(min(TILE, stop - start), table.dtype)
    for low in range(start, stop, TILE):
        high = min(low + TILE, stop)
        part = scratch[: high - low]
        for index in indices:
            np.copyto(part, table[index + low : index + high])


def streaming_seconds(trainer):
    """Seconds in which all ranks together have read the noise rows of the coming generation."""
    comm, dimension = trainer.comm, trainer.task.directions.length
    start, stop = (dimension * (comm.rank + i) // comm.size for i in (0, 1))
    indices = trainer.indices(trainer.generation, 0).tolist()
    meet(comm)
    began = time.perf_counter()
    stream(trainer.table, indices, start, stop)
    meet(comm)
    return time.perf_counter() - began


def perceptron(hidden, rank):
    """Sections of a config: a policy with two layers of `hidden` units for Humanoid-v4, and noise of that rank."""
    return {
        "environment": {"id": "Humanoid-v4"},
        "policy": {"hidden": [hidden, hidden], "normalize_observations": False},
        "noise": {"kind": "low_rank", "rank": rank} if rank else {"kind": "full"},
    }


def measure(comm, sections, pairs, repeats):
    """What is found of one size: on rank 0 a dict, elsewhere None.  sections: of the config, what has parameters."""
    values = sections | {
        "solver": {"population": 2 * pairs},
        "evaluation": {"every": 0},
        "checkpoint": {"every": 10**6},
        "stop": {"generations": 10**6},
    }
    config = validate_config(values, "between_rollouts")
    trainer = trainer.Trainer(config, comm, NoSignals())
    trainer.build_table()
    dimension, length = trainer.task.dimension, trainer.task.directions.length
    trainer.task.player = WritingPlayer(comm, dimension)
    with passing_run(trainer) as run:
        trainer.advance(run, NoProgress())  # pages, caches and buffers are there from now on
        watch = watch_phases(trainer, run)
        generations, streams = [], []
        for _ in range(repeats):
            streams.append(streaming_seconds(trainer))
            watch.take()
            trainer.advance(run, NoProgress())
            generations.append(watch.take())
            meet(comm)
        for found in generations:  # apart: a checkpoint waits for the generation that is being written
            trainer.advance(run, NoProgress())
            if trainer.learner:
                run.settle()
                watch.take()
                run.checkpoint(trainer.learner)
                found |= watch.take()
    if comm.rank:
        return None
    phases = sorted({phase for found in generations for phase in found})
    median = {phase: statistics.median(found.get(phase, 0.0) for found in generations) for phase in phases}
    totals = [sum(seconds for phase, seconds in found.items() if phase not in BESIDE) for found in generations]
    sums = [sum(found[phase] for phase in SUMS) for found in generations]
    return {
        "dimension": dimension,
        "normals": length,
        "pairs": pairs,
        "ranks": comm.size,
        "seconds": median,
        "between_seconds": statistics.median(totals),
        "fastest_seconds": min(totals),
        "streaming_seconds": statistics.median(streams),
        "bytes_per_second": 4 * length * pairs / statistics.median(streams),
        "ratio": statistics.median(map(truediv, totals, streams)),
        "ratio_of_fastest": min(totals) / min(streams),
        "ratio_of_sums": statistics.median(map(truediv, sums, streams)),
        "ratios": list(map(truediv, totals, streams)),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dimension", type=int, default=166_673, help="parameters; Humanoid's 256-256 by default")
    parser.add_argument("--pairs", type=int, default=720, help="noise rows of a generation")
    parser.add_argument("--all", action="store_true", help="three dimensions and three populations")
    parser.add_argument("--low-rank", action="store_true", help="two perceptrons, with full noise and with low rank")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--json")
    options = parser.parse_args()
    comm = connect()
    sizes = [(d, n // 2) for d, n in ALL] if options.all else [(options.dimension, options.pairs)]
    cases = [({"environment": {"id": "function:sphere", "dimension": d}}, pairs) for d, pairs in sizes]
    if options.low_rank:
        cases = [(perceptron(hidden, rank), options.pairs) for hidden in PERCEPTRONS for rank in (0, 1)]
    rows = []
    for sections, pairs in cases:
        found = measure(comm, sections, pairs, options.repeats)
        if found:
            rows.append(found)
            show(found)
    if options.json and comm.rank == 0:
        Path(options.json).write_text(json.dumps(rows if len(rows) > 1 else rows[0], indent=1))
    comm.leave(0)


def show(found):
    ratios, seconds = found["ratios"], found["seconds"]
    print(f"d = {found['dimension']:,}, {found['normals']:,} normals a member, {found['pairs']:,} pairs, ", end="")
    print(f"{found['ranks']} ranks, ", end="")
    print(f"medians of {len(ratios)} generations")
    for phase, spent in sorted(seconds.items(), key=lambda item: -item[1]):
        if phase not in BESIDE:
            print(f"  {phase:<26} {1000 * spent:9.2f} ms")
    fastest = f"(fastest {1000 * found['fastest_seconds']:.2f} ms)"
    print(f"  {'all between rollouts':<26} {1000 * found['between_seconds']:9.2f} ms {fastest}")
    read = 4 * found["normals"] * found["pairs"]
    print(f"  {'reading alone':<26} {1000 * found['streaming_seconds']:9.2f} ms ", end="")
    print(f"({read / 1e6:,.0f} MB at {found['bytes_per_second'] / 1e9:.1f} GB/s)")
    for phase in BESIDE[1:]:
        print(f"  beside: {phase:<18} {1000 * seconds.get(phase, 0.0):9.2f} ms")
    print(f"  ratio {found['ratio']:.3f} (min {min(ratios):.3f}, max {max(ratios):.3f}), {REQUIRED} wanted; ", end="")
    print(f"moments, broadcast and gather {found['ratio_of_sums']:.3f}, {REQUIRED_SUMS} wanted; ", end="")
    print(f"fastest against fastest {found['ratio_of_fastest']:.3f}", flush=True)


if __name__ == "__main__":
    main()
