"""Whole generations against the bare stepping loop of the same backend.

    mpirun -n 2 python -m mpi4py benchmarks/rollouts.py benchmarks/rollouts.yaml [--repeats 9] [KEY=VALUE ...]

In one run and in turn, several times: (a) a whole generation as `mpies train` makes it (broadcast, rollouts,
gather, update, metrics row; no evaluation), and (b) the bare loop: the actions of the same episodes, recorded
beforehand, stepped by the same backend on the same number of processes, each with the episodes it had played.
With overlap=1 several generations in a row are measured, beside the bare loops of as many before them.
Prints steps per second of both and the ratio, medians over the repeats; --json FILE keeps them.
"""

from mpies.config.loading import load_config
from mpies.runs.writer import RunWriter
from mpies.runs.writer import open_run
import argparse
import json
import statistics
import tempfile
import time
from itertools import pairwise

import numpy as np

from mpies.scaling.bench import NoSignals, meet
from mpies.comm import connect
from mpies.training.trainer import Trainer

TOGETHER = 5  # generations in a row, where they overlap


def record_actions(trainer, play):
    """This rank's episodes in what `play()` plays, which is not timed: (seed, actions) pairs."""
    env, opened = trainer.task.env, []
    real_open = env.open

    def open_and_note(seeds, training=False):
        batch, actions_of = real_open(seeds, training), [[] for _ in seeds]
        real_send = batch.send

        def send(places, actions):
            for place, action in zip(places.tolist(), actions, strict=True):
                actions_of[place].append(np.array(action))
            real_send(places, actions)

        batch.send, batch.calls = send, None
        opened.extend(zip(seeds, actions_of, strict=True))
        return batch

    env.open = open_and_note
    try:
        play()
    finally:
        del env.open
    return opened


def calls_of(episodes):
    """The calls of a loop that steps all episodes side by side: (places, actions) until the last is over."""
    longest = max(len(actions) for _, actions in episodes)
    running = [[i for i, (_, actions) in enumerate(episodes) if len(actions) > t] for t in range(longest)]
    return [(np.array(p, np.int32), np.stack([episodes[i][1][t] for i in p])) for t, p in enumerate(running)]


def bare_speed(comm, env, episodes, generations):
    """Steps per second of all processes that step their recorded episodes, each generation's side by side."""
    bounds = [len(episodes) * place // generations for place in range(generations + 1)]
    parts = [episodes[start:stop] for start, stop in pairwise(bounds) if stop > start]
    loops = [([seed for seed, _ in part], calls_of(part)) for part in parts]
    meet(comm)
    start = time.perf_counter()
    for seeds, calls in loops:
        batch = env.open(seeds)
        for places, actions in calls:
            batch.send(places, actions)
            batch.receive()
        batch.close()
    meet(comm)
    seconds = time.perf_counter() - start
    steps = comm.allgather(np.array([sum(len(actions) for _, actions in episodes)]))[0].sum()
    return float(steps / seconds)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("config")
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--between", type=int, default=4, help="generations made between two measurements")
    parser.add_argument("--json")
    options = parser.parse_args()
    comm = connect()
    config = load_config(options.config, [*options.overrides, "checkpoint.every=1000000"])
    trainer = Trainer(config, comm, NoSignals())
    trainer.build_table()
    env, ours, bare, together = trainer.task.env, [], [], TOGETHER if config.overlap else 1
    with tempfile.TemporaryDirectory() as folder:
        run = open_run(folder, config, "auto") if comm.rank == 0 else RunWriter(folder, config)
        trainer.open(run)
        for _ in range(options.repeats):
            for _ in range(options.between):
                trainer.make_generation(run.settle)
            if config.overlap:
                episodes = record_actions(trainer, lambda: [trainer.make_generation() for _ in range(together)])
            else:  # the very episodes that are timed
                episodes = record_actions(
                    trainer, lambda: trainer.play_generation(*trainer.share_offers(trainer.learner))
                )
                trainer.sessions.clear()
            bare.append(bare_speed(comm, env, episodes, together))
            steps, start = 0.0, time.perf_counter()
            for _ in range(together):
                steps += trainer.make_generation(run.settle).steps.sum()
                if comm.rank == 0:
                    row = trainer.learner.record(None, comm.size)
                    run.record(trainer.learner, row, None, False, last=False)
            meet(comm)
            ours.append(steps / (time.perf_counter() - start))
        if comm.rank == 0:
            run.settle()  # the folder goes
    if comm.rank == 0:
        ratios = [one / other for one, other in zip(ours, bare, strict=True)]
        found = {
            "environment": config.environment.id,
            "backend": type(trainer.task.env).__name__,
            "ranks": comm.size,
            "population": config.solver.population,
            "overlap": config.overlap,
            "steps_per_second": statistics.median(ours),
            "bare_steps_per_second": statistics.median(bare),
            "ratio": statistics.median(ratios),
            "ratios": ratios,
        }
        print(
            f"{found['environment']} {found['backend']} {comm.size} ranks: whole generations "
            f"{found['steps_per_second']:,.0f} steps/s, bare loop {found['bare_steps_per_second']:,.0f}, "
            f"ratio {found['ratio']:.3f} (min {min(ratios):.3f}, max {max(ratios):.3f}, {options.repeats} repeats)"
        )
        if options.json:
            with open(options.json, "w") as file:
                json.dump(found, file, indent=1)
    comm.leave(0)


if __name__ == "__main__":
    main()
