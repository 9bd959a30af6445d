"""Whole generations against the bare stepping loop of the same backend.

    mpirun --bind-to none -n 2 python -m mpi4py benchmarks/rollouts.py CONFIG [--repeats 9] [KEY=VALUE ...]

In one run and in turn, several times: (a) a whole generation as `mpies train` makes it (broadcast, rollouts,
gather, update, row of metrics.csv; no evaluation), and (b) the bare loop: the actions of the same episodes, recorded
before, stepped by the same backend on the same number of processes, each with the episodes it had played.
The bare loop builds and resets environments as well: (c) is its steps alone, the limit of what can be reached.
With overlap=1 several generations in a row are measured, beside the bare loops of as many before them.
Before them, in a generation of its own: the share of rank 0's processor time that building and resetting take.
The ranks stay on cores as those of `mpies train` do.
Prints steps per second of all three, the ratio of (a) to (b) and this share, medians over the repeats, and the share of
the first generation that was measured; --json FILE keeps them.  --between 0 measures from the first generation on.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mpies.comm import Communicator, connect
from mpies.comm.cores import hold_core
from mpies.config.loading import load_config
from mpies.envs.base import EpisodeBatch, VectorEnv
from mpies.launch.forecast.bench import barrier, temporary_run
from mpies.training.trainer import Trainer, make_trainer

IN_A_ROW = 5  # generations, where they overlap
# Nothing is evaluated, nothing is saved and nothing ends while it is measured.
ENDLESS = ["evaluation.every=0", "checkpoint.every=1000000", "stop.generations=1000000", "stop.target=null"]

Episode = tuple[int, list[npt.NDArray[Any]]]  # seed and actions


def record_episodes(env: VectorEnv, play: Callable[[], object]) -> list[Episode]:
    """The episodes of this rank in what `play` plays; recording takes time."""
    episodes: list[Episode] = []
    open_batch = env.open

    def open_and_record(seeds: list[int], is_training: bool = False) -> EpisodeBatch:
        batch = open_batch(seeds, is_training)
        actions_of: list[list[npt.NDArray[Any]]] = [[] for _ in seeds]
        send = batch.send

        def record_and_send(places: npt.NDArray[np.int32], actions: npt.NDArray[Any]) -> None:
            for place, action in zip(places.tolist(), actions, strict=True):
                actions_of[place].append(np.array(action))
            send(places, actions)

        batch.send, batch.calls = record_and_send, None  # the compiled loop would not call `send`
        episodes.extend(zip(seeds, actions_of, strict=True))
        return batch

    env.open = open_and_record
    try:
        play()
    finally:
        del env.open
    return episodes


def play_next_generation(trainer: Trainer) -> None:
    """Play the coming generation without taking its step; it is played again."""
    parts, _ = trainer.updater.next_parts()
    trainer.evaluator.evaluate(parts, trainer.updater.generation)
    trainer.evaluator.queues.clear()


def calls_of(episodes: list[Episode]) -> list[tuple[npt.NDArray[np.int32], npt.NDArray[Any]]]:
    """The calls of a loop that steps all episodes side by side: (places, actions) until the last is over."""
    longest = max(len(actions) for _, actions in episodes)
    in_flight = [[i for i, (_, actions) in enumerate(episodes) if len(actions) > t] for t in range(longest)]
    return [(np.array(p, np.int32), np.stack([episodes[i][1][t] for i in p])) for t, p in enumerate(in_flight)]


def bare_speeds(comm: Communicator, env: VectorEnv, episodes: list[Episode], generations: int) -> tuple[float, float]:
    """Steps per second of all processes that step their recorded episodes, each generation's side by side.

    Returns that of the whole loop, and that of its steps alone: without the seconds in which a process builds, resets
    and closes environments.
    """
    bounds = [len(episodes) * place // generations for place in range(generations + 1)]
    parts = [episodes[start:stop] for start, stop in pairwise(bounds) if stop > start]
    loops = [([seed for seed, _ in part], calls_of(part)) for part in parts]
    barrier(comm)
    began, stepping = time.perf_counter(), 0.0
    for seeds, calls in loops:
        batch = env.open(seeds)
        opened = time.perf_counter()
        for places, actions in calls:
            batch.send(places, actions)
            batch.receive()
        stepping += time.perf_counter() - opened
        batch.close()
    barrier(comm)
    seconds = time.perf_counter() - began
    own = sum(len(actions) for _, actions in episodes)
    of_all = comm.allgather(np.array([own, own / stepping if own else 0.0]))[0]
    steps, alone = np.reshape(of_all, (-1, 2)).sum(axis=0)
    return float(steps / seconds), float(alone)


def whole_speed(trainer: Trainer, generations: int) -> float:
    """Steps per second of all ranks in whole generations, on rank 0; 0 on the others."""
    learner = trainer.learner
    before, began = learner.clock.steps if learner else 0, time.perf_counter()
    for _ in range(generations):
        trainer.run_generation()
    barrier(trainer.comm)
    return (learner.clock.steps - before) / (time.perf_counter() - began) if learner else 0.0


def opening_share(trainer: Trainer) -> float:
    """The share of this rank's processor time that building and resetting take in the coming generation.

    Processor time, as EnvPool builds with several threads.  Environments of numbered episodes are built again to repeat
    them, so it is measured in a generation that is played once.
    """
    env, opening = trainer.task.env, 0.0
    open_batch = env.open

    def open_and_time(seeds: list[int], is_training: bool = False) -> EpisodeBatch:
        nonlocal opening
        began = time.process_time()
        batch = open_batch(seeds, is_training)
        opening += time.process_time() - began
        return batch

    env.open = open_and_time
    began = time.process_time()
    try:
        trainer.run_generation()
    finally:
        del env.open
    return opening / (time.process_time() - began)


def measure(trainer: Trainer, repeats: int, between: int) -> tuple[list[float], list[tuple[float, float]], list[float]]:
    """For each repeat: steps per second of whole generations (on rank 0), `bare_speeds`, and `opening_share`."""
    shares: list[float] = []
    env, whole, bare, overlap = trainer.task.env, [], [], trainer.config.overlap
    generations = IN_A_ROW if overlap else 1
    for _ in range(repeats):
        for _ in range(between):
            trainer.run_generation()
        shares.append(opening_share(trainer))
        if overlap:
            episodes = record_episodes(env, lambda: [trainer.run_generation() for _ in range(generations)])
        else:  # the very episodes that are measured
            episodes = record_episodes(env, lambda: play_next_generation(trainer))
        bare.append(bare_speeds(trainer.comm, env, episodes, generations))
        whole.append(whole_speed(trainer, generations))
    return whole, bare, shares


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("config")
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--between", type=int, default=4, help="generations made between two measurements")
    parser.add_argument("--json", type=Path)
    options = parser.parse_intermixed_args()
    comm = connect()
    config = load_config(options.config, [*options.overrides, *ENDLESS])
    with hold_core(comm, config.bind_ranks), temporary_run(config, comm) as run:
        trainer = make_trainer(config, comm, run)
        trainer.restore()
        whole, both, shares = measure(trainer, options.repeats, options.between)
    if comm.is_root:
        bare, alone = zip(*both, strict=True)
        ratios = [one / other for one, other in zip(whole, bare, strict=True)]
        results = {
            "environment": config.environment.id,
            "backend": type(trainer.task.env).__name__,
            "ranks": comm.size,
            "population": config.solver.population,
            "overlap": config.overlap,
            "steps_per_second": statistics.median(whole),
            "bare_steps_per_second": statistics.median(bare),
            "steps_alone_per_second": statistics.median(alone),
            "opening_share": statistics.median(shares),
            "first_opening_share": shares[0],
            "ratio": statistics.median(ratios),
            "ratios": ratios,
        }
        print(
            f"{results['environment']} {results['backend']} {comm.size} ranks: whole generations "
            f"{results['steps_per_second']:,.0f} steps/s, bare loop {results['bare_steps_per_second']:,.0f}, "
            f"ratio {results['ratio']:.3f} (min {min(ratios):.3f}, max {max(ratios):.3f}, {options.repeats} repeats); "
            f"steps alone {results['steps_alone_per_second']:,.0f}, building and resetting take "
            f"{results['opening_share']:.1%} of a generation ({shares[0]:.1%} of the first measured)"
        )
        if options.json:
            options.json.write_text(json.dumps(results, indent=1))
    comm.finalize(0)


if __name__ == "__main__":
    main()
