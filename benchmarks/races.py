"""Races over the episodes of a member: how many episodes CMA-ES needs until a task is solved, with and without.

    OMP_NUM_THREADS=1 python benchmarks/races.py [TASK ...] [--seeds 10] [--json FILE]

A race (Heidrich-Meisner & Igel 2009) plays a member again only while the interval of its mean return straddles the
cut of the selection; all begin with three episodes, and none plays more than the limit.  Beside it: the same CMA-ES
(pycma) with a fixed number of episodes for each member.  The tasks are simulators in NumPy, which play all episodes
at once.  Solved is a mean return of CMA's mean over 200 fresh episodes at the target, looked at after every
generation; these episodes do not count.  Seeds decide everything, so a second call gives the same figures.
"""

import argparse
import json
import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import cma
import numpy as np
import numpy.typing as npt
from scipy import stats

Floats = npt.NDArray[np.float64]
FIRST, MOST, FEW = 3, 30, 5  # episodes of a member: at first, at most, and of a cheap fixed number
CONFIDENCE = 0.95
QUANTILES = stats.t.ppf(0.5 + CONFIDENCE / 2, np.maximum(np.arange(MOST + 1) - 1, 1))  # by the number of episodes


@dataclass(frozen=True)
class Task:
    """play: (members (n, d), rng) to returns (n,), an episode each.  limit: of generations."""

    dimension: int
    population: int
    sigma: float
    target: float
    limit: int
    play: Callable[[Floats, np.random.Generator], Floats]


def play_noisy_sphere(members: Floats, rng: np.random.Generator) -> Floats:
    """Minus the squared distance to 3, with noise of deviation 3."""
    returns: Floats = -np.square(members - 3).sum(1) + 3 * rng.standard_normal(len(members))
    return returns


def play_regulator(members: Floats, rng: np.random.Generator) -> Floats:
    """A linear-quadratic regulator of four states and two controls: x' = A x + B u + noise, from a random start."""
    fixed = np.random.default_rng(4)
    a = np.eye(4) + 0.1 * fixed.standard_normal((4, 4))
    b = 0.3 * fixed.standard_normal((4, 2))
    gains = members.reshape(-1, 2, 4)
    x, cost = rng.standard_normal((len(members), 4)), np.zeros(len(members))
    for _ in range(50):
        u = np.einsum("nij,nj->ni", gains, x)
        cost += np.square(x).sum(1) + 0.1 * np.square(u).sum(1)
        x = np.clip(x @ a.T + u @ b.T + 0.05 * rng.standard_normal(x.shape), -10, 10)
    return -cost


def play_pendulum(members: Floats, rng: np.random.Generator) -> Floats:
    """gymnasium's Pendulum-v1 (equations of its documentation), by a 3-8-1 tanh network of 41 parameters."""
    count = len(members)
    first, second = members[:, :32].reshape(count, 8, 4), members[:, 32:]
    angle, speed = rng.uniform(-math.pi, math.pi, count), rng.uniform(-1, 1, count)
    total = np.zeros(count)
    for _ in range(200):
        seen = np.stack([np.cos(angle), np.sin(angle), speed / 8, np.ones(count)], 1)
        hidden = np.tanh(np.einsum("nij,nj->ni", first, seen))
        torque = np.clip(2 * (np.einsum("ni,ni->n", second[:, :8], hidden) + second[:, 8]), -2, 2)
        wrapped = (angle + math.pi) % (2 * math.pi) - math.pi
        total -= wrapped**2 + 0.1 * speed**2 + 0.001 * torque**2
        speed = np.clip(speed + (15 * np.sin(angle) + 3 * torque) * 0.05, -8, 8)
        angle = angle + speed * 0.05
    return total


TASKS = {
    "noisy_sphere": Task(10, 20, 0.5, -0.5, 300, play_noisy_sphere),
    "regulator": Task(8, 20, 0.3, -385.0, 300, play_regulator),
    "pendulum": Task(41, 50, 0.5, -250.0, 200, play_pendulum),
}
WAYS = (f"race up to {MOST}", f"{MOST} each", f"{FEW} each", "1 each")


def play_fixed(task: Task, members: Floats, episodes: int, rng: np.random.Generator) -> tuple[Floats, int]:
    """Mean returns (n,), and how many episodes they took."""
    returns = task.play(np.repeat(members, episodes, 0), rng).reshape(len(members), episodes)
    return returns.mean(1), returns.size


def play_race(task: Task, members: Floats, rng: np.random.Generator) -> tuple[Floats, int]:
    """Mean returns (n,) of a race for the better half, and how many episodes it took.

    A member is selected for good when its interval lies above those of as many others as are not selected, and out
    for good when it lies below those of as many as are.
    """
    count, half = len(members), len(members) // 2
    returns = np.full((count, MOST), np.nan)
    returns[:, :FIRST] = task.play(np.repeat(members, FIRST, 0), rng).reshape(count, FIRST)
    played, racing = np.full(count, FIRST), np.ones(count, bool)
    while racing.any():
        means, deviations = np.nanmean(returns, 1), np.nanstd(returns, 1, ddof=1)
        widths = QUANTILES[played] * deviations / np.sqrt(played)
        low, high = means - widths, means + widths
        above = (low[:, None] > high[None]).sum(1)  # how many others each is surely better than
        below = (high[:, None] < low[None]).sum(1)
        decided = (above >= count - half) | (below >= half)
        racing = ~decided & (played < MOST)
        returns[racing, played[racing]] = task.play(members[racing], rng)
        played[racing] += 1
    return np.nanmean(returns, 1), int(played.sum())


def train(task: Task, way: str, seed: int) -> dict[str, Any]:
    """The figures of one run."""
    rng, judge = np.random.default_rng([seed, 1]), np.random.default_rng([seed, 2])
    options = {"popsize": task.population, "seed": seed, "verbose": -9, "maxiter": 10**6, "tolfun": 0, "tolx": 0}
    search = cma.CMAEvolutionStrategy(np.zeros(task.dimension), task.sigma, options)
    episodes = 0
    for generation in range(1, task.limit + 1):
        members = np.array(search.ask())
        if way.startswith("race"):
            returns, played = play_race(task, members, rng)
        else:
            returns, played = play_fixed(task, members, int(way.split()[0]), rng)
        search.tell(list(members), (-returns).tolist())
        episodes += played
        if task.play(np.repeat(search.mean[None], 200, 0), judge).mean() >= task.target:
            return {"solved": True, "generations": generation, "episodes": episodes}
    return {"solved": False, "generations": task.limit, "episodes": episodes}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tasks", nargs="*", metavar="TASK", help=", ".join(TASKS))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--json")
    options = parser.parse_args()
    rows = []
    for name in options.tasks or TASKS:
        by_way: dict[str, list[dict[str, Any]]] = {way: [] for way in WAYS}
        for seed in range(1, options.seeds + 1):
            for way in WAYS:
                by_way[way].append(train(TASKS[name], way, seed))
                rows.append({"task": name, "way": way, "seed": seed, **by_way[way][-1]})
        for way, runs in by_way.items():
            episodes = [run["episodes"] for run in runs]
            pairs = zip(episodes, by_way[f"{MOST} each"], strict=True)
            ratio = statistics.geometric_mean(one / fixed["episodes"] for one, fixed in pairs)
            print(
                f"{name:<13} {way:<15} {sum(run['solved'] for run in runs):>2} of {len(runs)} solved, "
                f"episodes: median {statistics.median(episodes):>9,.0f}; over {MOST} each, seed by seed: {ratio:.2f}",
                flush=True,
            )
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rows, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
