"""Busy share of 64 ranks whose episodes sleep: tickets beside a static split.

    mpirun -n 64 python -m mpi4py benchmarks/load_balance.py [--members 10] [--generations 5] [--json FILE]

The loop of `mpies train` as it is, on an environment that sleeps (sleeping.py) instead of computing, so that many
ranks fit on few cores.  For episodes of coefficient of variation .5 and 1, and with one rank four times slower: in
turn, generations with tickets and generations in which each rank has its own equal share; then as many generations
in a row with `overlap: 1`.  The busy share is the time slept by all ranks over ranks x wall time of the generations;
beside it what `mpies simulate` would say, and how much of the sleep came from waking too late,
which tells whether the cores were free.
"""

from mpies.config.loading import validate_config
import argparse
import json
import statistics
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

import sleeping

from mpies.envs.gymnasium_env import GymnasiumEnv
from mpies.scaling.bench import NoSignals, meet
from mpies.comm.work_counter import WorkCounter
from mpies.comm import connect
from mpies.training.learner import Learner
from mpies.scaling.model import Machine, Workload, predict
from mpies.training.trainer import Trainer

CASES = {"CV 0.5": {"variation": 0.5}, "CV 1": {"variation": 1.0}, "one rank 4 times slower": {"slow": 1}}


def make_trainer(comm, members, step, mean, overlap=0, **kwargs):
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
    trainer = Trainer(validate_config(values, "load_balance"), comm, NoSignals())
    trainer.build_table()
    if comm.rank == 0:
        trainer.learner = Learner(trainer.solver, trainer.task)
        trainer.learner.begin(None)
    return trainer


def static_tickets(comm):
    """As Communicator.tickets, but each rank has an equal share that no other may take."""

    def tickets(total):
        start, stop = (total * (comm.rank + i) // comm.size for i in (0, 1))
        taken = 0

        def draw(count):
            nonlocal taken
            taken += count
            return taken - count

        return WorkCounter(start, stop, draw)

    return tickets


def busy_share(comm, trainer, generations=1):
    """Of these generations: seconds slept by all ranks over ranks x seconds, and how much of the sleep was too long."""
    meet(comm)
    before, late, began = sleeping.slept, sleeping.late, time.perf_counter()
    for _ in range(generations):
        trainer.make_generation()
    mine = np.array([sleeping.slept - before, sleeping.late - late, time.perf_counter() - began])
    slept, late, seconds = comm.allgather(mine)[0].reshape(-1, 3).T
    return float(slept.sum() / (comm.size * seconds.max())), float(late.sum() / slept.sum())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--members", type=int, default=10, help="of a rank")
    parser.add_argument("--generations", type=int, default=5, help="of each kind")
    parser.add_argument("--step", type=float, default=0.02, help="seconds")
    parser.add_argument("--mean", type=float, default=25, help="steps of an episode")
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--lanes", type=int, help="episodes side by side on a rank; default the environment's own")
    parser.add_argument("--json")
    options = parser.parse_args()
    if options.slots:
        GymnasiumEnv.slots = GymnasiumEnv.largest = options.slots
    comm = connect()
    dealt, found = comm.tickets, {}
    for case in options.cases.split(","):
        kwargs = CASES[case]
        trainer = make_trainer(comm, options.members, options.step, options.mean, **kwargs)
        shares = {"tickets": [], "static": []}
        for _ in range(options.generations):
            for kind, tickets in (("tickets", dealt), ("static", static_tickets(comm))):
                comm.tickets = tickets
                shares[kind].append(busy_share(comm, trainer))
        comm.tickets = dealt
        trainer = make_trainer(comm, options.members, options.step, options.mean, overlap=1, **kwargs)
        trainer.make_generation()  # from here on the next one is under way
        shares["overlap"] = [busy_share(comm, trainer, options.generations)]
        found[case] = {kind: statistics.median(busy for busy, _ in values) for kind, values in shares.items()}
        found[case]["late"] = statistics.median(late for values in shares.values() for _, late in values)
        found[case]["all"] = shares
        if "variation" in kwargs:
            found[case]["predicted"] = predicted(comm.size, options, kwargs["variation"], trainer.task.env)
    if comm.rank == 0:
        print(f"{comm.size} ranks, {options.members} members each, episodes of {options.step * options.mean:g} s")
        print(f"{'':<26} {'tickets':>8} {'static':>8} {'overlap':>8} {'late':>8}   simulated: tickets, static, overlap")
        for case, row in found.items():
            print(
                f"{case:<26} {row['tickets']:>8.3f} {row['static']:>8.3f} {row['overlap']:>8.3f} {row['late']:>8.3f}",
                end="",
            )
            print("   {:.3f}, {:.3f}, {:.3f}".format(*row["predicted"]) if "predicted" in row else "")
        if options.json:
            kept = {"ranks": comm.size, "members": options.members, "busy": found}
            Path(options.json).write_text(json.dumps(kept, indent=1))
    comm.leave(0)


def predicted(ranks, options, variation, env):
    """The busy shares that `mpies simulate` predicts: tickets, static, overlap."""
    slots = {key: getattr(env, key) for key in ("slots", "smallest", "largest", "low_water", "divisor")}
    episodes, seconds = options.members * ranks, options.step * options.mean
    work = Workload(parameters=16, rows=1, episodes=episodes, seconds=seconds, variation=variation, **slots)
    ways = {}, {"static": True}, {"overlap": 1}
    return [predict(Machine(cores=ranks), work, ranks, **way).efficiency for way in ways]


if __name__ == "__main__":
    main()
