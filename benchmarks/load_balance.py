"""Busy share of 64 ranks whose episodes sleep: a shared work counter beside a division of the work beforehand.

    mpirun --map-by slot:oversubscribe -n 64 python -m mpi4py benchmarks/load_balance.py [--members 10] [--json FILE]

The loop of `mpies train` as it is, on an environment that sleeps (sleeping.py) instead of computing, so that many
ranks fit on few cores.  There are three cases: episodes with a coefficient of variation of .5, of 1, and one rank that
is four times slower.  In each case, generations whose members are taken from the counter and generations in which each
rank has an equal share take turns.  Then as many generations in a row are played for each share of overlap.

The busy share is the time slept by all ranks over ranks x wall time of the generations.  Beside it is what `mpies
simulate` predicts, and how much of the sleep came from waking too late, which tells whether the cores were free.
"""

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import sleeping
from made_up import equal_shares

from mpies.comm import Communicator, connect
from mpies.config.loading import validate_config
from mpies.envs.base import VectorEnv
from mpies.envs.gymnasium_env import GymnasiumEnv
from mpies.launch.forecast.bench import barrier, play_generation
from mpies.launch.forecast.constants import Machine, Workload
from mpies.launch.forecast.simulate import predict
from mpies.training.overlap import FIRST as FIRST_EARLY
from mpies.training.trainer import Trainer, make_trainer

CASES: dict[str, dict[str, Any]] = {
    "CV 0.5": {"variation": 0.5},
    "CV 1": {"variation": 1.0},
    "one rank 4 times slower": {"slow": 1},
}
OVERLAPS = 0.25, 0.5, 1.0
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


def busy_share(trainer: Trainer, generations: int = 1) -> Share:
    """The Share of these generations."""
    comm = trainer.comm
    barrier(comm)
    before, late, began = sleeping.slept, sleeping.late, time.perf_counter()
    for _ in range(generations):
        play_generation(trainer)
    own = np.array([sleeping.slept - before, sleeping.late - late, time.perf_counter() - began])
    slept, late, seconds = comm.allgather(own)[0].reshape(-1, 3).T
    return float(slept.sum() / (comm.size * seconds.max())), float(late.sum() / slept.sum())


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
        result["predicted"] = predicted(comm.size, options, kwargs["variation"], trainer.task.env)
    return result


def predicted(ranks: int, options: argparse.Namespace, variation: float, env: VectorEnv) -> list[float]:
    """The busy shares that `mpies simulate` predicts: counter, static, and each share of overlap."""
    schedule = {key: getattr(env, key) for key in ("smallest", "largest", "low_water", "divisor")}
    episodes, seconds = options.members * ranks, options.step * options.mean
    workload = Workload(parameters=16, rows=1, episodes=episodes, seconds=seconds, variation=variation, **schedule)
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
    parser.add_argument("--slots", type=int, help="episodes side by side on a rank; default the environment's own")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.slots:
        GymnasiumEnv.slots = GymnasiumEnv.largest = options.slots
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
