"""Everything between rollouts in one generation, against the time that reading the noise alone would take.

    mpirun -n 2 python benchmarks/between_rollouts.py [--dimension 166673] [--pairs 720] [--repeats 9]

The loop of `mpies train` as it is (`Trainer.advance` with OpenAI-ES), only that playing is replaced by returns
made up at once.  Its time on rank 0 is split into phases, each without the phases inside it.  In turn with it, all
ranks at once copy the same tiles of the same noise rows from the shared table into a scratch that stays in
the cache: bytes of noise read / that rate is the least that any implementation needs.
Prints medians over the repeats and the ratio; --json FILE keeps them.
"""

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

from mpies import config as configs
from mpies import store, train
from mpies.communicator import connect
from mpies.rollouts import ROLLOUT, observation_record
from solvers.moments import TILE

REQUIRED = 1.5


class NoSignals:
    raised = None

    def expired(self, grace):
        return False


class NoProgress:
    def show(self, row, evaluation):
        pass


PLAYING = 0.05  # seconds, in which rank 0 writes the generation before


class MadeUpPlayer:
    """Rows after a nap instead of rollouts: each rank an equal part, a rollout's return a function of its number."""

    def __init__(self, comm):
        self.comm = comm

    def play(self, work, todo, *_):
        time.sleep(PLAYING)
        self.comm.node_barrier()  # what a nap takes longer is no work
        mine = todo[self.comm.rank :: self.comm.size]
        rows = np.zeros(len(mine), ROLLOUT)
        rows["rollout"], rows["steps"] = mine, 1
        rows["total"] = -(mine * 2654435761 % 2**32).astype(np.float64)  # a permutation: no two are equal
        return rows, np.zeros(0, observation_record(0)), {}


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
    watch.watch(trainer, "play_generation", "seeds, indices, results")
    watch.watch(trainer.solver, "weigh", "weigh")
    watch.watch(trainer.comm, "broadcast", "broadcast")
    watch.watch(trainer.comm, "allgather", "allgather of results")
    watch.watch(trainer.comm, "gather_blocks", "gather of blocks")
    watch.watch(train, "moments", "moments")
    if trainer.learner:
        watch.watch(trainer.solver, "ask", "ask")
        watch.watch(trainer.learner, "update", "tell")
        watch.watch(trainer.learner, "record", "row")
        watch.watch(run, "settle", "waiting for the disk")
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
    comm, dimension = trainer.comm, trainer.task.dimension
    start, stop = (dimension * (comm.rank + i) // comm.size for i in (0, 1))
    indices = trainer.indices(0).tolist()
    meet(comm)
    began = time.perf_counter()
    stream(trainer.table, indices, start, stop)
    meet(comm)
    return time.perf_counter() - began


def meet(comm):
    comm.allgather(np.zeros(0, "i8"))


def write_config(folder, options):
    path = Path(folder) / "sphere.yaml"
    path.write_text(
        f"environment: {{id: function:sphere, dimension: {options.dimension}}}\n"
        f"solver: {{population: {2 * options.pairs}}}\n"
        "evaluation: {every: 0}\n"
        "checkpoint: {every: 1000000}\n"
        "stop: {generations: 1000000}\n"
    )
    return path


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dimension", type=int, default=166_673, help="parameters; Humanoid's 256-256 by default")
    parser.add_argument("--pairs", type=int, default=720, help="noise rows of a generation")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--json")
    options = parser.parse_args()
    comm = connect()
    with tempfile.TemporaryDirectory() as folder:  # each rank has its own; only rank 0's is written to
        config = configs.load(write_config(folder, options))
        trainer = train.Trainer(config, comm, NoSignals())
        trainer.build_table()
        trainer.task.player = MadeUpPlayer(comm)
        path = Path(folder) / "run"
        run = store.open_run(path, config, "auto") if comm.rank == 0 else store.Run(path, config)
        trainer.open(run)
        trainer.advance(run, NoProgress())  # pages, caches and buffers are there from now on
        watch = watch_phases(trainer, run)
        generations, streams = [], []
        for _ in range(options.repeats):
            streams.append(streaming_seconds(trainer))
            watch.take()
            trainer.advance(run, NoProgress())
            generations.append(watch.take())
            meet(comm)
        if comm.rank == 0:
            run.close()
            show(options, comm.size, generations, streams)
    comm.leave(0)


def show(options, ranks, generations, streams):
    phases = sorted({phase for found in generations for phase in found} - {"playing"})
    median = {phase: statistics.median(found.get(phase, 0.0) for found in generations) for phase in phases}
    totals = [sum(seconds for phase, seconds in found.items() if phase != "playing") for found in generations]
    ratios = [total / least for total, least in zip(totals, streams, strict=True)]
    read = 4 * options.dimension * options.pairs
    print(f"d = {options.dimension:,}, {options.pairs} pairs, {ranks} ranks, medians of {len(totals)} generations")
    for phase, seconds in sorted(median.items(), key=lambda item: -item[1]):
        print(f"  {phase:<26} {1000 * seconds:9.2f} ms")
    rate = read / statistics.median(streams)
    print(f"  {'all between rollouts':<26} {1000 * statistics.median(totals):9.2f} ms")
    print(f"  {'reading alone':<26} {1000 * statistics.median(streams):9.2f} ms ", end="")
    print(f"({read / 1e6:,.0f} MB at {rate / 1e9:.1f} GB/s)")
    print(
        f"  ratio {statistics.median(ratios):.3f} (min {min(ratios):.3f}, max {max(ratios):.3f}), {REQUIRED} wanted; ",
        end="",
    )
    print(f"fastest against fastest {min(totals) / min(streams):.3f}")
    if options.json:
        found = {
            "dimension": options.dimension,
            "pairs": options.pairs,
            "ranks": ranks,
            "seconds": median,
            "between_seconds": statistics.median(totals),
            "streaming_seconds": statistics.median(streams),
            "bytes_per_second": rate,
            "ratio": statistics.median(ratios),
            "ratio_of_fastest": min(totals) / min(streams),
            "ratios": ratios,
        }
        Path(options.json).write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
