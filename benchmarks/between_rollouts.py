"""Everything between rollouts in one generation, against the time that reading the noise alone would take.

    mpirun -n 2 python -m mpi4py benchmarks/between_rollouts.py [--dimension 166673] [--pairs 720] [--repeats 9]
    mpirun -n 2 python -m mpi4py benchmarks/between_rollouts.py --all [--repeats 5]
    OMP_NUM_THREADS=1 mpirun -n 2 python -m mpi4py benchmarks/between_rollouts.py --low-rank [--pairs 720] [--repeats 5]

The loop of `mpies train` (`Trainer.run_generation` with OpenAI-ES), in which playing is replaced by returns
made up at once.  Its time on rank 0 is split into phases, each without the phases inside it.  In turn with it, all
ranks at once copy the same tiles of the same noise rows from the shared table into a buffer that stays in
the cache: bytes of noise read / that rate is the least that any implementation needs.
Prints medians over the repeats and the ratios; --json FILE keeps them.  Writing the members, which belongs to the
rollouts, and a checkpoint, which is not written every generation, stand beside the total and not in it.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from operator import truediv
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from made_up import MadeUpPlayer

from mpies.comm import Communicator, connect
from mpies.config.loading import validate_config
from mpies.launch.forecast.bench import barrier, temporary_run
from mpies.runs.writer import RunWriter
from mpies.solvers.moments import TILE
from mpies.training.trainer import Trainer, make_trainer

REQUIRED = 1.5
REQUIRED_SUMS = 1.25
SUMS = ("moments", "broadcast", "gather of blocks")
BESIDE = ("playing", "sampling members", "checkpoint")
PERCEPTRONS = (256, 822)  # hidden units: 166,673 and 1,000,391 parameters
ALL = [(d, n) for d in (2804, 166_673, 1_000_000) for n in (256, 1440, 10_000)]  # parameters, members

Seconds = dict[str, float]  # by phase


class Stopwatch:
    """Seconds by phase, each without the phases inside it."""

    def __init__(self) -> None:
        self.seconds: Seconds = {}
        self._inner: list[float] = []  # of each phase that is running, the seconds of those inside it
        self._watched: list[tuple[object, str]] = []

    def watch(self, owner: object, name: str, phase: str) -> None:
        """Count the calls of owner.name as `phase` from now on."""
        function: Callable[..., Any] = getattr(owner, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            self._inner.append(0.0)
            began = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                spent = time.perf_counter() - began
                self.seconds[phase] = self.seconds.get(phase, 0.0) + spent - self._inner.pop()
                if self._inner:
                    self._inner[-1] += spent

        setattr(owner, name, call)
        self._watched.append((owner, name))

    def take(self) -> Seconds:
        """The seconds since the last time."""
        taken, self.seconds = self.seconds, {}
        return taken

    def stop(self) -> None:
        """Leave what was watched as it was."""
        for owner, name in self._watched:
            delattr(owner, name)


def watch_phases(trainer: Trainer, run: RunWriter) -> Stopwatch:
    """A Stopwatch on this rank's generations."""
    stopwatch, comm, solver = Stopwatch(), trainer.comm, trainer.updater.solver
    phases = [
        (trainer, "run_generation", "the rest"),
        (trainer.task.player, "play", "playing"),
        (trainer.task.player, "write_members", "sampling members"),
        (trainer.evaluator, "evaluate", "seeds, indices, results"),
        (solver, "compute_weights", "weights"),
        (comm, "broadcast", "broadcast"),
        (comm, "allgather", "allgather of results"),
        (comm, "gather_blocks", "gather of blocks"),
        (solver, "moments", "moments"),
    ]
    if learner := trainer.learner:
        phases += [
            (solver, "ask", "ask"),
            (learner, "tell", "tell"),
            (learner, "snapshot", "snapshot"),
            (run, "flush", "waiting for the disk"),
            (run, "checkpoint", "checkpoint"),
        ]
    for owner, name, phase in phases:
        stopwatch.watch(owner, name, phase)
    return stopwatch


def read_rows(table: npt.NDArray[np.float32], indices: list[int], start: int, stop: int) -> None:
    """Read what the moments read, in the same order, and do nothing with it."""
    buffer = np.empty(min(TILE, stop - start), table.dtype)
    for low in range(start, stop, TILE):
        high = min(low + TILE, stop)
        part = buffer[: high - low]
        for index in indices:
            np.copyto(part, table[index + low : index + high])


def streaming_seconds(trainer: Trainer) -> float:
    """Seconds in which all ranks together have read the noise rows of the coming generation."""
    comm, length = trainer.comm, trainer.task.directions.length
    start, stop = (length * (comm.rank + i) // comm.size for i in (0, 1))
    indices = trainer.updater.solver.population_indices(trainer.updater.generation, 0).tolist()
    barrier(comm)
    began = time.perf_counter()
    read_rows(trainer.updater.solver.table, indices, start, stop)
    barrier(comm)
    return time.perf_counter() - began


def perceptron(hidden: int, rank: int) -> dict[str, Any]:
    """Sections of a config: a policy with two layers of `hidden` units for Humanoid-v4, and noise of that rank."""
    return {
        "environment": {"id": "Humanoid-v4"},
        "policy": {"hidden": [hidden, hidden], "normalize_observations": False},
        "noise": {"kind": "low_rank", "rank": rank} if rank else {"kind": "full"},
    }


def measure(comm: Communicator, sections: dict[str, Any], pairs: int, repeats: int) -> dict[str, Any] | None:
    """The results for one size on rank 0; None elsewhere.  sections: of the config, what has parameters."""
    values = sections | {
        "solver": {"population": 2 * pairs},
        "evaluation": {"every": 0},
        "checkpoint": {"every": 10**6},
        "stop": {"generations": 10**6},
    }
    config = validate_config(values, "between_rollouts")
    with temporary_run(config, comm) as run:
        trainer = make_trainer(config, comm, run)
        dimension, length = trainer.task.dimension, trainer.task.directions.length
        trainer.task.player = MadeUpPlayer(comm, dimension)
        trainer.restore()
        trainer.run_generation()  # pages, caches and buffers are there from now on
        stopwatch = watch_phases(trainer, run)
        generations, streams = [], []
        for _ in range(repeats):
            streams.append(streaming_seconds(trainer))
            stopwatch.take()
            trainer.run_generation()
            generations.append(stopwatch.take())
            barrier(comm)
        for seconds in generations:  # afterwards: a checkpoint waits for the generation that is being written
            trainer.run_generation()
            if trainer.learner:
                run.flush()
                snapshot = trainer.learner.snapshot()
                stopwatch.take()
                run.checkpoint(snapshot)
                seconds["checkpoint"] = stopwatch.take()["checkpoint"]
        stopwatch.stop()
    if not comm.is_root:
        return None
    phases = sorted({phase for seconds in generations for phase in seconds})
    median = {phase: statistics.median(seconds.get(phase, 0.0) for seconds in generations) for phase in phases}
    totals = [sum(spent for phase, spent in seconds.items() if phase not in BESIDE) for seconds in generations]
    sums = [sum(seconds[phase] for phase in SUMS) for seconds in generations]
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dimension", type=int, default=166_673, help="parameters; Humanoid's 256-256 by default")
    parser.add_argument("--pairs", type=int, default=720, help="noise rows of a generation")
    parser.add_argument("--all", action="store_true", help="three dimensions and three populations")
    parser.add_argument("--low-rank", action="store_true", help="two perceptrons, with full noise and with low rank")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    comm = connect()
    sizes = [(d, n // 2) for d, n in ALL] if options.all else [(options.dimension, options.pairs)]
    cases = [({"environment": {"id": "function:sphere", "dimension": d}}, pairs) for d, pairs in sizes]
    if options.low_rank:
        cases = [(perceptron(hidden, rank), options.pairs) for hidden in PERCEPTRONS for rank in (0, 1)]
    rows = []
    for sections, pairs in cases:
        result = measure(comm, sections, pairs, options.repeats)
        if result:
            rows.append(result)
            show(result)
    if options.json and comm.is_root:
        options.json.write_text(json.dumps(rows if len(rows) > 1 else rows[0], indent=1))
    comm.finalize(0)


def show(result: dict[str, Any]) -> None:
    ratios, seconds = result["ratios"], result["seconds"]
    print(f"d = {result['dimension']:,}, {result['normals']:,} normals a member, {result['pairs']:,} pairs, ", end="")
    print(f"{result['ranks']} ranks, ", end="")
    print(f"medians of {len(ratios)} generations")
    for phase, spent in sorted(seconds.items(), key=lambda item: -item[1]):
        if phase not in BESIDE:
            print(f"  {phase:<26} {1000 * spent:9.2f} ms")
    fastest = f"(fastest {1000 * result['fastest_seconds']:.2f} ms)"
    print(f"  {'all between rollouts':<26} {1000 * result['between_seconds']:9.2f} ms {fastest}")
    read = 4 * result["normals"] * result["pairs"]
    print(f"  {'reading alone':<26} {1000 * result['streaming_seconds']:9.2f} ms ", end="")
    print(f"({read / 1e6:,.0f} MB at {result['bytes_per_second'] / 1e9:.1f} GB/s)")
    for phase in BESIDE[1:]:
        print(f"  beside: {phase:<18} {1000 * seconds.get(phase, 0.0):9.2f} ms")
    print(f"  ratio {result['ratio']:.3f} (min {min(ratios):.3f}, max {max(ratios):.3f}), {REQUIRED} wanted; ", end="")
    print(f"moments, broadcast and gather {result['ratio_of_sums']:.3f}, {REQUIRED_SUMS} wanted; ", end="")
    print(f"fastest against fastest {result['ratio_of_fastest']:.3f}", flush=True)


if __name__ == "__main__":
    main()
