"""Busy share of 64 ranks whose episodes sleep: a shared work counter beside a division of the work beforehand.

    mpirun --map-by slot:oversubscribe -n 64 python -m mpi4py benchmarks/load_balance.py [--members 10] [--json FILE]

The loop of `mpies train` as it is, on an environment that sleeps (sleeping.py) instead of computing, so that many
ranks fit on few cores.  There are three cases: episodes with a coefficient of variation of .5, of 1, and one rank that
is four times slower.  In each case, generations whose members are taken from the counter and generations in which each
rank has an equal share take turns.  Then as many generations in a row are played for each share of overlap.

With --nodes 3, the ranks are those of so many nodes, of which the last one is as fast as the others, half as fast, and
a quarter.  Shares of the nodes go by their ranks, as without a measurement, or by the speeds that they have shown.
Work and capacity of a slow node count as that part of a node's.

    mpirun --map-by slot:oversubscribe -n 12 python -m mpi4py benchmarks/load_balance.py --nodes 3 --members 40
        --step 0.2 --mean 3 --generations 2

The busy share is the time slept by all ranks over ranks x wall time of the generations.  Beside it is what `mpies
simulate` predicts, and how much of the sleep came from waking too late, which tells whether the cores were free.
"""

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import sleeping
from made_up import equal_shares, make_nodes

from mpies.comm import Communicator, connect
from mpies.config.loading import validate_config
from mpies.envs.gymnasium_env import GymnasiumEnv
from mpies.launch.forecast.bench import barrier
from mpies.launch.forecast.constants import Machine, Workload
from mpies.launch.forecast.simulate import predict
from mpies.training.evaluation.overlap import FIRST as FIRST_EARLY
from mpies.training.trainer import Trainer, make_trainer

CASES: dict[str, dict[str, Any]] = {
    "CV 0.5": {"variation": 0.5},
    "CV 1": {"variation": 1.0},
    "one rank 4 times slower": {"slow": [1]},
}
OVERLAPS = 0.25, 0.5, 1.0
SLOWNESS = 1, 2, 4  # of the last node
NODE_WAYS = {"by ranks": 0.0, "by speed": 0.0, "by speed, overlap 0.5": 0.5}
Share = tuple[float, float]  # busy, and of the sleep what was too long


def start_trainer(
    comm: Communicator, members: int, step: float, mean: float, overlap: float = 0.0, **kwargs: Any
) -> Trainer:
    """A Trainer at the beginning of a run.  members: of a rank.  step: seconds.  mean: steps of an episode."""
    values = {
        "environment": {
            "id": "sleeping:Sleeping-v0",
            "backend": "gymnasium",
            "kwargs": {"step": step, "mean": mean, **kwargs},
        },
        "policy": {"hidden": [4]},
        "solver": {"population": members * comm.size},
        "noise": {"size": 100_000},
        "overlap": overlap,
    }
    trainer = make_trainer(validate_config(values, "load_balance"), comm)
    trainer.restore()
    return trainer


def play_generation(trainer: Trainer) -> None:
    """Play a generation and take its step; nothing is evaluated or recorded."""
    parts, upcoming = trainer.updater.next_parts()
    population = trainer.evaluator.evaluate(parts, trainer.updater.generation, prefetch=upcoming)
    trainer.updater.apply(parts, population)


def busy_share(trainer: Trainer, generations: int = 1, speed: float = 1.0) -> Share:
    """The Share of these generations.  speed: of this rank."""
    comm = trainer.comm
    barrier(comm)
    before, late, began = sleeping.slept, sleeping.late, time.perf_counter()
    for _ in range(generations):
        play_generation(trainer)
    own = np.array([sleeping.slept - before, sleeping.late - late, time.perf_counter() - began, speed])
    slept, late, seconds, speeds = comm.allgather(own)[0].reshape(-1, 4).T
    return float(slept @ speeds / (speeds.sum() * seconds.max())), float(late.sum() / slept.sum())


def measure(comm: Communicator, options: argparse.Namespace, kwargs: dict[str, Any]) -> dict[str, Any]:
    """The busy shares of a case."""
    trainer = start_trainer(comm, options.members, options.step, options.mean, **kwargs)
    counter, shares = comm.work_counter, dict[str, list[Share]](counter=[], static=[])
    for _ in range(options.generations):
        shares["counter"].append(busy_share(trainer))
        comm.work_counter = equal_shares(comm)
        shares["static"].append(busy_share(trainer))
        comm.work_counter = counter
    for overlap in OVERLAPS:
        trainer = start_trainer(comm, options.members, options.step, options.mean, overlap, **kwargs)
        for _ in range(FIRST_EARLY):
            play_generation(trainer)  # from here on the next one is under way
        shares[f"overlap {overlap:g}"] = [busy_share(trainer, options.generations)]
    result: dict[str, Any] = {way: statistics.median(busy for busy, _ in values) for way, values in shares.items()}
    result["late"] = statistics.median(late for values in shares.values() for _, late in values)
    result["all"] = shares
    if "variation" in kwargs:
        result["predicted"] = predicted(comm.size, find_workload(comm, options, kwargs["variation"], trainer))
    return result


def measure_nodes(comm: Communicator, options: argparse.Namespace, slowness: int) -> dict[str, Any]:
    """The Shares where the last node is so many times slower, and the busy shares that `mpies simulate` predicts."""
    slow = [rank for rank, node in enumerate(comm.node_of) if node == comm.nodes - 1]
    speeds = *[1.0] * (comm.nodes - 1), 1 / slowness
    result: dict[str, Any] = {}
    for way, overlap in NODE_WAYS.items():
        sizes = options.members, options.step, options.mean, overlap
        trainer = start_trainer(comm, *sizes, variation=0.5, slow=slow, slowness=slowness)
        if way == "by ranks":
            trainer.evaluator.queues.speeds.shares = lambda total: None
        for _ in range(0 if way == "by ranks" else FIRST_EARLY if overlap else 1):
            play_generation(trainer)  # from here on speeds are known, and with overlap the next one is under way
        busy, late = busy_share(trainer, options.generations, speeds[comm.node])
        machine, workload = Machine(cores=comm.node_size, speeds=speeds), find_workload(comm, options, 0.5, trainer)
        expected = predict(machine, workload, comm.size, overlap).efficiency
        if way == "by ranks":  # while the last node plays its part, each of the others plays as much
            expected = len(speeds) / (slowness * sum(speeds))
        result[way] = {"busy": busy, "late": late, "expected": expected}
    return result


def find_workload(comm: Communicator, options: argparse.Namespace, variation: float, trainer: Trainer) -> Workload:
    """The Workload of these episodes."""
    keys = "smallest", "largest", "low_water", "divisor"
    schedule = {key: getattr(trainer.task.env, key) for key in keys}
    episodes, seconds = options.members * comm.size, options.step * options.mean
    return Workload(parameters=16, rows=1, episodes=episodes, seconds=seconds, variation=variation, **schedule)


def predicted(ranks: int, workload: Workload) -> list[float]:
    """The busy shares that `mpies simulate` predicts: counter, static, and each share of overlap."""
    # Ranks on nodes of their own share no counter, as with equal shares.
    ways = [(ranks, 0.0), (1, 0.0), *((ranks, share) for share in OVERLAPS)]
    return [predict(Machine(cores=cores), workload, ranks, share).efficiency for cores, share in ways]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--members", type=int, default=10, help="of a rank")
    parser.add_argument("--generations", type=int, default=5, help="of each kind")
    parser.add_argument("--step", type=float, default=0.02, help="seconds")
    parser.add_argument("--mean", type=float, default=25, help="steps of an episode")
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--nodes", type=int, help="compare shares of so many nodes")
    parser.add_argument("--slots", type=int, help="episodes side by side on a rank; default the environment's own")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.slots:
        GymnasiumEnv.slots = GymnasiumEnv.largest = options.slots
    if options.nodes:
        comm = make_nodes(options.nodes)
        slow = {f"last node {slowness} times slower": measure_nodes(comm, options, slowness) for slowness in SLOWNESS}
        if comm.is_root:
            for case, ways in slow.items():
                for way, row in ways.items():
                    figures = "  ".join(f"{name} {value:.3f}" for name, value in row.items())
                    print(f"{case:<28} {way:<24} {figures}")
            if options.json:
                kept = {"ranks": comm.size, "nodes": options.nodes, "members": options.members, "busy": slow}
                options.json.write_text(json.dumps(kept, indent=1))
        sys.exit(comm.finalize(0))
    comm = connect()
    results = {case: measure(comm, options, CASES[case]) for case in options.cases.split(",")}
    if comm.is_root:
        print(f"{comm.size} ranks, {options.members} members each, episodes of {options.step * options.mean:g} s")
        ways = "counter", "static", *(f"overlap {share:g}" for share in OVERLAPS)
        print(f"{'':<26}" + "".join(f" {way:>12}" for way in (*ways, "late")) + f"   simulated: {', '.join(ways)}")
        for case, row in results.items():
            numbers = " ".join(f"{row[name]:>12.3f}" for name in (*ways, "late"))
            simulated = ", ".join(f"{share:.3f}" for share in row.get("predicted", ()))
            print(f"{case:<26} {numbers}   {simulated}".rstrip())
        if options.json:
            kept = {"ranks": comm.size, "members": options.members, "busy": results}
            options.json.write_text(json.dumps(kept, indent=1))
    comm.finalize(0)


if __name__ == "__main__":
    main()
