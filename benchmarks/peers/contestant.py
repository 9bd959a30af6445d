"""One peer on one task, timed from inside: a line of JSON with the seconds and steps of each generation.

    python contestant.py evotorch LunarLander-v3 --hidden 40,40 --population 64 --workers 2 --generations 6

Every peer is used as its own documentation shows for several processes, with the same network, population and number
of processes.  The first generation, in which processes and environments start, is the caller's to leave out, and so is
OMP_NUM_THREADS=1, which the ranks of the other side have too.
"""

import argparse
import itertools
import json
import os
import time

import numpy as np

PLAYER = None  # of a pool's process


class Player:
    """Plays episodes of a gymnasium environment with a tanh network."""

    def __init__(self, environment, hidden):
        import gymnasium

        self.environment = gymnasium.make(environment)
        action = self.environment.action_space
        self.discrete = hasattr(action, "n")
        sizes = [self.environment.observation_space.shape[0], *hidden, action.n if self.discrete else action.shape[0]]
        self.shapes = [(one + 1, other) for one, other in itertools.pairwise(sizes)]
        self.size = sum(one * other for one, other in self.shapes)
        if not self.discrete:
            self.low, self.high = action.low, action.high

    def play(self, parameters, seed):
        """Return and steps of one episode."""
        layers = np.split(np.asarray(parameters, np.float32), np.cumsum([a * b for a, b in self.shapes])[:-1])
        layers = [layer.reshape(shape) for layer, shape in zip(layers, self.shapes, strict=True)]
        observation, _ = self.environment.reset(seed=seed)
        total, steps, over = 0.0, 0, False
        while not over:
            x = observation
            for number, layer in enumerate(layers):
                x = x @ layer[:-1] + layer[-1]
                if number < len(layers) - 1:
                    x = np.tanh(x)
            action = int(np.argmax(x)) if self.discrete else np.clip(x, self.low, self.high)
            observation, reward, terminated, truncated, _ = self.environment.step(action)
            total, steps, over = total + float(reward), steps + 1, terminated or truncated
        return total, steps


def start_player(environment, hidden):
    global PLAYER
    PLAYER = Player(environment, hidden)


def play(job):
    return PLAYER.play(*job)


def generations_of(options, ask, tell, mapped):
    """Seconds and steps of each generation of a solver that is asked and told, played by a parallel map."""
    for generation in range(options.generations):
        began = time.perf_counter()
        candidates = ask()
        jobs = [(candidate, options.population * generation + k) for k, candidate in enumerate(candidates)]
        returns, steps = zip(*mapped(play, jobs), strict=True)
        tell(candidates, -np.array(returns))
        yield time.perf_counter() - began, sum(steps)


def pool_map(options):
    import multiprocessing

    context = multiprocessing.get_context("spawn")
    pool = context.Pool(options.workers, start_player, (options.environment, options.hidden))
    return lambda function, jobs: pool.map(function, jobs, chunksize=1)


def run_evotorch(options, distributed):
    import ray
    import torch
    from evotorch.algorithms import PGPE
    from evotorch.neuroevolution import GymNE

    torch.set_num_threads(1)
    ray.init(num_cpus=options.workers, include_dashboard=False, log_to_driver=False)
    sizes = ["obs_length", *map(str, options.hidden), "act_length"]
    layers = [f"Linear({one}, {other})" for one, other in itertools.pairwise(sizes)]
    problem = GymNE(
        options.environment,
        " >> Tanh() >> ".join(layers),
        observation_normalization=True,
        num_actors=options.workers,
    )
    searcher = PGPE(
        problem,
        popsize=options.population,
        center_learning_rate=0.01,
        stdev_learning_rate=0.1,
        stdev_init=0.1,
        distributed=distributed,
    )
    before = 0
    for _ in range(options.generations):
        began = time.perf_counter()
        searcher.step()
        seconds = time.perf_counter() - began
        yield seconds, problem.interaction_count - before
        before = problem.interaction_count
    ray.shutdown()


def run_pycma(options, **settings):
    import cma

    size = Player(options.environment, options.hidden).size
    start = {"popsize": options.population, "seed": 1, "verbose": -9, **settings}
    solver = cma.CMAEvolutionStrategy(np.zeros(size), 0.1, start)
    yield from generations_of(options, solver.ask, lambda x, y: solver.tell(x, y.tolist()), pool_map(options))


def run_nevergrad(options):
    import concurrent.futures
    import multiprocessing

    import nevergrad

    size = Player(options.environment, options.hidden).size
    solver = nevergrad.optimizers.DiagonalCMA(
        nevergrad.p.Array(init=np.zeros(size)).set_mutation(sigma=0.1),
        budget=options.population * options.generations,
        num_workers=options.population,
    )
    asked = []

    def ask():
        asked[:] = [solver.ask() for _ in range(options.population)]
        return [candidate.value for candidate in asked]

    def tell(_, losses):
        for candidate, loss in zip(asked, losses, strict=True):
            solver.tell(candidate, float(loss))

    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(
        options.workers, context, start_player, (options.environment, options.hidden)
    ) as executor:
        yield from generations_of(options, ask, tell, executor.map)


def run_evosax(options):
    import jax
    from evosax.algorithms import Open_ES

    size = Player(options.environment, options.hidden).size
    solver = Open_ES(population_size=options.population, solution=jax.numpy.zeros(size))
    parameters = solver.default_params
    keys = iter(jax.random.split(jax.random.key(1), 2 * options.generations + 1))
    state = solver.init(next(keys), jax.numpy.zeros(size), parameters)

    def ask():
        nonlocal state
        candidates, state = solver.ask(next(keys), state, parameters)
        return np.asarray(candidates)

    def tell(candidates, losses):
        nonlocal state
        state, _ = solver.tell(next(keys), jax.numpy.asarray(candidates), jax.numpy.asarray(losses), state, parameters)

    yield from generations_of(options, ask, tell, pool_map(options))


CONTESTANTS = {
    "evotorch": lambda options: run_evotorch(options, distributed=False),
    "evotorch-distributed": lambda options: run_evotorch(options, distributed=True),
    "pycma": run_pycma,
    "pycma-diagonal": lambda options: run_pycma(options, CMA_diagonal=True),
    "nevergrad": run_nevergrad,
    "evosax": run_evosax,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("contestant", choices=CONTESTANTS)
    parser.add_argument("environment")
    parser.add_argument("--hidden", type=lambda text: [int(part) for part in text.split(",")], default=[40, 40])
    parser.add_argument("--population", type=int, default=64)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--generations", type=int, default=6)
    options = parser.parse_args()
    found = list(CONTESTANTS[options.contestant](options))
    print(
        json.dumps({"seconds": [seconds for seconds, _ in found], "steps": [steps for _, steps in found]}), flush=True
    )
    os._exit(0)  # pools and actors need no farewell


if __name__ == "__main__":
    main()
