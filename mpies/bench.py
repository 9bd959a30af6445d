"""The constants of the machine that this runs on, or of the ranks of an allocation: what `scaling` predicts from."""

import contextlib
import datetime
import platform
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

from mpies import config as configs
from mpies import store
from mpies.launch import do_together
from mpies.rollouts import ROLLOUT
from mpies.scaling import Collective, Constants, Machine, Work, update_phases
from mpies.task import Task
from mpies.train import Trainer
from solvers.moments import Weights, moments, no_square, split

STREAM = (1 << 18, 64)  # coordinates and rows of the streaming measurement: 64 MB, more than most caches
SMALL, LARGE = 8, 1 << 22  # bytes of a collective
FEW, MANY = 64, 4096  # episodes of a generation without playing
SHORT, LONG = 16, 1 << 20  # parameters of one
PLAYING = 0.05  # seconds that it takes all the same, in which rank 0 writes the generation before


class NoSignals:
    """No signal ever comes."""

    raised = None

    def expired(self, grace):
        return False


class NoProgress:
    """Nobody watches."""

    def show(self, row, evaluation):
        pass


class MadeUpPlayer:
    """Rows after a nap instead of rollouts: each rank an equal part, a rollout's return a function of its number."""

    def __init__(self, comm):
        self.comm = comm

    def play(self, session, *_):
        time.sleep(PLAYING)
        self.comm.node_barrier()  # what a nap takes longer is no work
        mine = session.todo[self.comm.rank :: self.comm.size]
        rows = np.zeros(len(mine), ROLLOUT)
        rows["rollout"], rows["steps"] = mine, 1
        rows["total"] = -(mine * 2654435761 % 2**32).astype(np.float64)  # a permutation: no two are equal
        session.rows = rows

    def drop(self):
        pass


def meet(comm):
    """Wait until all ranks are here."""
    comm.allgather(np.zeros(0, "i8"))


def timed(comm, work):
    """Seconds from a common start until all ranks have done `work`, the waiting for each other not counted."""
    meet(comm)
    began = time.perf_counter()
    work()
    seconds = np.array([time.perf_counter() - began])
    return float(comm.allgather(seconds)[0].max())


def median_of(repeats, measure):
    measure()  # pages and caches are there from now on
    return statistics.median(measure() for _ in range(repeats))


def streaming(comm, ranks, repeats):
    """Bytes of noise per second that the first `ranks` ranks of a node sum, the others waiting."""
    dimension, rows = STREAM
    bounds = split(dimension, ranks)
    table = np.zeros(0, np.float32)
    if comm.node_rank < ranks:
        start, stop = bounds[comm.node_rank : comm.node_rank + 2]
        table = np.ones((rows, stop - start), np.float32).ravel()
        indices, weights = np.arange(rows) * (stop - start), Weights(np.ones((1, rows), np.float32), no_square(rows))

    def work():
        if len(table):
            moments(table, indices, weights, 0, stop - start)

    return 4 * dimension * rows / median_of(repeats, lambda: timed(comm, work))


def collective(comm, verb, repeats):
    """The Collective of verb(size), whose cost is that of all ranks having done it."""
    if comm.size == 1:
        return Collective()
    seconds = {}
    for size in (SMALL, LARGE):

        def both(size=size):
            verb(size)
            meet(comm)

        together = median_of(repeats, lambda: timed(comm, both))
        seconds[size] = together - median_of(repeats, lambda: timed(comm, lambda: meet(comm)))
    levels = (comm.size - 1).bit_length()
    slope = max(seconds[LARGE] - seconds[SMALL], 1e-9) / (LARGE - SMALL)
    return Collective(latency=max(seconds[SMALL], 1e-9) / levels, bandwidth=1 / slope)


def collectives(comm, repeats):
    """The Collectives of a generation, by their names in Machine."""

    def broadcast(size):
        comm.broadcast([np.zeros(size, np.uint8)])

    def allgather(size):
        comm.allgather(np.zeros(size // 8 // comm.size, "i8"))

    def gather(size):
        bounds = split(size // 4, comm.size)
        comm.gather_blocks(np.zeros((1, np.diff(bounds)[comm.rank]), np.float32), bounds)

    verbs = {"broadcast": broadcast, "allgather": allgather, "gather": gather}
    return {name: collective(comm, verb, repeats) for name, verb in verbs.items()}


@contextlib.contextmanager
def passing_run(trainer):
    """A run that the trainer has opened, gone afterwards."""
    root, config = trainer.comm.rank == 0, trainer.config
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run"
        run = store.open_run(path, config, "auto") if root else store.Run(path, config)
        trainer.open(run)
        yield run
        if root:
            run.settle()
            run.close()


def loop_seconds(comm, dimension, episodes, repeats):
    """Seconds of a generation of the real loop in which nothing is played."""
    values = {
        "environment": {"id": "function:sphere", "dimension": dimension},
        "solver": {"population": episodes},
        "noise": {"size": 2 * dimension},
        "evaluation": {"every": 0},
        "checkpoint": {"every": 10**6},
        "stop": {"generations": 10**6},
    }
    config = configs.validate(values, "bench")
    trainer = Trainer(config, comm, NoSignals())
    trainer.build_table()
    trainer.task.player = MadeUpPlayer(comm)
    with passing_run(trainer) as run:
        seconds = median_of(repeats, lambda: timed(comm, lambda: trainer.advance(run, NoProgress()))) - PLAYING
    return seconds


def measure_machine(comm, repeats):
    """The Machine that these ranks are on."""
    machine = Machine(
        cores=comm.node_size,
        core_streaming=streaming(comm, 1, repeats),
        node_streaming=streaming(comm, comm.node_size, repeats),
        **collectives(comm, repeats),
    )

    def beyond(dimension, episodes):
        """Seconds of a generation that the formulas do not yet explain."""
        work = Work(parameters=dimension, rows=episodes // 2, episodes=episodes, seconds=1)
        explained = sum(update_phases(machine, work, comm.size).values())
        return loop_seconds(comm, dimension, episodes, repeats) - explained

    least, many, large = beyond(SHORT, FEW), beyond(SHORT, MANY), beyond(LONG, FEW)
    episode = max(0.0, many - least) / (MANY - FEW)
    return machine.model_copy(
        update={
            "episode": episode,
            "parameter": max(0.0, large - least) / (LONG - SHORT),
            "generation": max(0.0, least - episode * FEW),
        }
    )


def measure_task(comm, config, name, generations):
    """The Work of a config, from its first generations."""
    trainer = Trainer(config, comm, NoSignals())
    trainer.build_table()
    player = trainer.task.player
    play, lengths, spent = player.play, [], [0.0]

    def watched(session, *others):
        began = time.perf_counter()
        play(session, *others)
        spent[0] += time.perf_counter() - began
        lengths.append(session.found()["steps"])

    player.play = watched
    with passing_run(trainer):
        for _ in range(generations):
            trainer.make_generation()
    steps = comm.allgather(np.concatenate(lengths))[0]
    step = float(comm.allgather(np.array(spent))[0].sum() / steps.sum())
    limit = _longest(config)
    world = trainer.task.world
    rules = "lanes", "smallest", "largest", "low_water", "divisor"
    lanes = {key: getattr(world, key) for key in rules if hasattr(world, key)}
    return Work(
        name=f"{name} ({config.environment.id})",
        environment=config.environment.id,
        parameters=trainer.task.dimension,
        rows=max(1, config.solver.noise_rows(trainer.task.dimension)),
        episodes=len(steps) // generations,
        seconds=step * float(steps.mean()),
        variation=float(steps.std() / steps.mean()),
        longest=limit and limit * step,
        step=step,
        **lanes,
    )


def _longest(config):
    """Steps of the longest episode that there can be; None where it is not known."""
    section = config.environment
    if section.function is not None:
        return 1
    from gymnasium import registry

    spec = registry.get(section.id)
    return section.max_steps or (spec and spec.max_episode_steps)


def bench(comm, path, overrides, out, repeats, generations):
    """Measure, print and write the Constants; every rank calls this.  Returns the exit code."""
    config = do_together(comm, lambda: configs.load(path, overrides) if path else None)
    if config:
        do_together(comm, lambda: Task(config))  # says what is wrong before anything is measured
    machine = measure_machine(comm, repeats)
    work = measure_task(comm, config, Path(path).stem, generations) if config else None
    measured = {
        "ranks": comm.size,
        "nodes": comm.nodes,
        "processor": _processor(),
        "when": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        **store.versions(),
    }
    constants = Constants(machine=machine, task=work, measured=measured)
    if comm.rank == 0:
        print(describe(constants), flush=True)
    do_together(comm, lambda: _write(constants, out) if out and comm.rank == 0 else None)
    return comm.leave(0)


def _write(constants, out):
    text = configs.as_yaml(constants.model_dump(mode="json", exclude_none=True))
    try:
        store.write_atomically(out, text.encode())
    except OSError as error:
        raise configs.ConfigError(f"--out {out}: cannot be written ({error.strerror}); take another file") from None


def describe(constants):
    """The Constants as a table for people."""
    machine, work, measured = constants.machine, constants.task, constants.measured
    lines = [
        f"{measured['ranks']} ranks on {measured['nodes']} nodes, {measured['processor']}",
        f"{'noise summed by one core':<28} {machine.core_streaming / 1e9:10.2f} GB/s",
        f"{'by all ranks of a node':<28} {machine.node_streaming / 1e9:10.2f} GB/s",
    ]
    for name in ("broadcast", "allgather", "gather"):
        found = getattr(machine, name)
        lines.append(f"{name:<28} {1e6 * found.latency:10.1f} us a level {found.bandwidth / 1e9:10.2f} GB/s")
    lines.append(f"{'a generation besides':<28} {1e3 * machine.generation:10.2f} ms")
    lines.append(f"{'and per episode':<28} {1e6 * machine.episode:10.2f} us")
    lines.append(f"{'and per parameter':<28} {1e9 * machine.parameter:10.2f} ns")
    if work:
        lines.append(f"{work.name}: {work.parameters:,} parameters, {work.episodes:,} episodes a generation")
        lines.append(f"{'a step of one rank':<28} {1e6 * work.step:10.1f} us")
        lines.append(f"{'an episode':<28} {1e3 * work.seconds:10.2f} ms")
        lines.append(f"{'its coefficient of variation':<28} {work.variation:10.2f}")
    return "\n".join(lines)


def _processor():
    for line in Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else ():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
