"""Measure the constants that `mpies simulate` predicts from, on one rank or on all ranks of an allocation."""

import contextlib
import datetime
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mpies.comm import Communicator
from mpies.comm.together import do_together
from mpies.config.loading import load_config, validate_config
from mpies.config.schema import Config
from mpies.launch.forecast.constants import (
    Collective,
    Constants,
    Machine,
    Workload,
    make_workload,
    write_constants,
)
from mpies.launch.forecast.simulate import update_phases
from mpies.rollouts.queue import ALONE, PlayingRanks, Queues, RolloutQueue
from mpies.runs.directory import find_backend, open_run, with_backend
from mpies.runs.machine import find_processor, versions
from mpies.runs.writer import RunWriter
from mpies.solvers.moments import Weights, moments, no_square, split
from mpies.solvers.sampling.noise import LINE
from mpies.training.task import build_task
from mpies.training.trainer import make_trainer

STREAM = (1 << 18, 64)  # coordinates and rows of the streaming measurement: 64 MB, more than most caches
SMALL, LARGE = 8, 1 << 22  # bytes of a collective operation
FEW, MANY = 64, 4096  # episodes of a generation in which nothing is played
SHORT, LONG = 16, 1 << 20  # parameters of such a generation
NAP = 0.05  # seconds that an IdlePlayer sleeps; in this time rank 0 writes the generation before
UNLIMITED = 10**6  # generations

Step = Callable[[], object]


class IdlePlayer:
    """The Player with which `mpies bench` measures what a generation takes besides playing.

    It sleeps for NAP seconds and plays nothing.  Then each rank reports an equal share of the rollouts as finished;
    the return of a rollout is a function of its number.  comm: of this rank.
    """

    def __init__(self, comm: Communicator) -> None:
        self.comm, self.played = comm, 0

    def play(self, queues: Queues, prefetch: RolloutQueue | None = None, ranks: PlayingRanks = ALONE) -> None:
        time.sleep(NAP)
        self.comm.node_barrier()  # a rank that slept longer must not make the others wait in what is measured
        for queue in queues:
            rollouts = queue.pending[self.comm.rank :: self.comm.size]
            # Multiplication by an odd number is a permutation modulo 2**32, so no two returns are equal.
            queue.results["total"][rollouts] = -(rollouts * 2654435761 % 2**32).astype(np.float64)
            queue.results["steps"][rollouts] = 1
            queue.is_finished[rollouts] = True

    def drop(self) -> None:
        """Nothing is ever unfinished."""


def barrier(comm: Communicator) -> None:
    """Wait for all ranks."""
    comm.allgather(np.zeros(0, np.int64))


def timed(comm: Communicator, step: Step) -> float:
    """Seconds from a common start until the slowest rank has done `step`."""
    barrier(comm)
    began = time.perf_counter()
    step()
    seconds = np.array([time.perf_counter() - began])
    return float(comm.allgather(seconds)[0].max())


def median_of(repeats: int, measure: Callable[[], float]) -> float:
    """The median of this many measurements; one before them fills pages and caches."""
    measure()
    return statistics.median(measure() for _ in range(repeats))


def measure_streaming(comm: Communicator, ranks: int, repeats: int) -> float:
    """Bytes of noise per second that the first `ranks` ranks of a node sum together while the others wait."""
    dimension, rows = STREAM
    bounds = split(dimension, ranks)
    width = int(np.diff(bounds)[comm.node_rank]) if comm.node_rank < ranks else 0  # coordinates of this rank
    table = np.ones(rows * width, np.float32)
    indices = np.arange(rows) * width
    weights = Weights(np.ones((1, rows), np.float32), no_square(rows))

    def step() -> None:
        if width:
            moments(table, indices, weights, 0, width)

    return 4 * dimension * rows / median_of(repeats, lambda: timed(comm, step))


def measure_network(comm: Communicator, repeats: int) -> Collective:
    """The Collective of a broadcast, which has taken its time when all ranks have it; gathering takes about as long."""
    if comm.size == 1:
        return Collective()

    def seconds(size: int) -> float:
        def broadcast_and_barrier() -> None:
            comm.broadcast([np.zeros(size, np.uint8)])
            barrier(comm)

        both = median_of(repeats, lambda: timed(comm, broadcast_and_barrier))
        return both - median_of(repeats, lambda: timed(comm, lambda: barrier(comm)))

    small, large = seconds(SMALL), seconds(LARGE)
    levels = (comm.size - 1).bit_length()
    slope = max(large - small, 1e-9) / (LARGE - SMALL)
    return Collective(latency=max(small, 1e-9) / levels, bandwidth=1 / slope)


@contextlib.contextmanager
def temporary_run(config: Config, comm: Communicator) -> Iterator[RunWriter]:
    """A run in a temporary directory, which is deleted afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run"
        run = open_run(path, config) if comm.is_root else RunWriter(path, config)
        yield run
        if comm.is_root:
            run.flush()
            run.close()


def loop_seconds(comm: Communicator, dimension: int, episodes: int, repeats: int) -> float:
    """Seconds of a generation of the training loop in which nothing is played."""
    values = {
        "environment": {"id": "function:sphere", "dimension": dimension},
        "solver": {"population": episodes},
        "noise": {"size": 2 * dimension + LINE * episodes},
        "evaluation": {"every": 0},
        "checkpoint": {"every": UNLIMITED},
        "stop": {"generations": UNLIMITED},
    }
    config = validate_config(values, "bench")
    with temporary_run(config, comm) as run:
        trainer = make_trainer(config, comm, run)
        trainer.task.player = IdlePlayer(comm)
        trainer.restore()
        return median_of(repeats, lambda: timed(comm, trainer.run_generation)) - NAP


def measure_machine(comm: Communicator, repeats: int) -> Machine:
    """The Machine that these ranks run on."""
    machine = Machine(
        cores=comm.node_size,
        core_streaming=measure_streaming(comm, 1, repeats),
        node_streaming=measure_streaming(comm, comm.node_size, repeats),
        network=measure_network(comm, repeats),
    )

    def unexplained(dimension: int, episodes: int) -> float:
        """Seconds of a generation that are not among the phases that the model knows so far."""
        workload = Workload(parameters=dimension, rows=episodes // 2, episodes=episodes, seconds=1)
        explained = sum(update_phases(machine, workload, comm.size).values())
        return loop_seconds(comm, dimension, episodes, repeats) - explained

    least, many, large = unexplained(SHORT, FEW), unexplained(SHORT, MANY), unexplained(LONG, FEW)
    episode = max(0.0, many - least) / (MANY - FEW)
    return machine.model_copy(
        update={
            "episode": episode,
            "parameter": max(0.0, large - least) / (LONG - SHORT),
            "generation": max(0.0, least - episode * FEW),
        }
    )


def measure_task(comm: Communicator, config: Config, name: str, generations: int) -> Workload:
    """The Workload of a config, from its first generations.  name: of the config, for people."""
    queues: list[RolloutQueue] = []  # all that were played
    trainer = make_trainer(config, comm, on_play=lambda key, played: queues.extend(played))
    trainer.restore()
    seconds = 0.0  # that the ranks played, added up
    with contextlib.closing(trainer.task):
        for _ in range(generations):  # nothing is evaluated or recorded
            parts, upcoming = trainer.updater.next_parts()
            population = trainer.evaluator.evaluate(parts, trainer.updater.generation, prefetch=upcoming)
            trainer.updater.apply(parts, population)
            seconds += float(population.busy.sum())
    steps = comm.allgather(np.concatenate([queue.finished()["steps"] for queue in queues]))[0]
    return make_workload(config, trainer.task, name, seconds / float(steps.sum()), steps)


def run_bench(
    comm: Communicator,
    path: str | None,
    overrides: Sequence[str],
    out: str | None,
    repeats: int,
    generations: int,
) -> int:
    """Measure the Constants, print them and write them to a file.  Every rank calls this.  Returns the exit code.

    path: of a config whose episodes are measured too, or None.  out: the file, or None for none.
    repeats: of each measurement.  generations: of the config that are played.
    Raises CollectiveError where the config or the file cannot be used.
    """
    config = do_together(comm, lambda: load_config(path, overrides) if path else None)
    if config:
        config = with_backend(config, find_backend(None, config))
        do_together(comm, lambda: build_task(config, comm).close())  # refuses at once what cannot run
    do_together(
        comm, lambda: write_constants(None, out) if out and comm.is_root else None
    )  # not after all measurements
    machine = measure_machine(comm, repeats)
    workload = measure_task(comm, config, Path(path).stem, generations) if config and path else None
    measured: dict[str, Any] = {
        "ranks": comm.size,
        "nodes": comm.nodes,
        "processor": find_processor(),
        "when": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        **versions(),
    }
    constants = Constants(machine=machine, task=workload, measured=measured)
    if comm.is_root:
        print(constants.as_text(), end="", flush=True)
    do_together(comm, lambda: write_constants(constants, out) if out and comm.is_root else None)
    return comm.finalize(0)
