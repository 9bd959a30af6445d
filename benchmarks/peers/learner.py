"""One peer trains on one task until it reaches a score: a line of JSON with the seconds and steps that it took.

    python learner.py ppo LunarLander-v3 --seed 1 --target 200 --limit 600

Every peer trains as its own documentation shows, with settings from the sources in `learner_settings.py`.  The clock
begins with the first step of training; building environments, imports and evaluations do not count.  The score is the
mean return of the deterministic policy over 100 held-out episodes, in environments as gymnasium makes them.
"""

import argparse
import contextlib
import json
import math
import os
import time

import numpy as np
from contestant import Player, play, pool_map
from learner_settings import ENVIRONMENTS, EVOSAX, PYCMA, SB3, evotorch_settings

EPISODES = 100
FIRST = 10  # episodes after which an evaluation ends if the target is out of reach


class Solved(Exception):
    """The target was reached, or the time is up."""


class Judge:
    """Evaluates policies now and then, with the clock stopped, and ends the training at the target.

    steps: of training so far.  target: mean return over 100 episodes, and again over 100 fresh ones.
    limit: seconds of training.
    """

    def __init__(self, environment, seed, target, limit):
        self.name, self.target, self.limit = environment, target, limit
        self.random = np.random.default_rng([seed, 10**6])
        self.environments, self.score, self.is_solved = [], math.nan, False
        self.steps, self.seconds, self.evaluated, self.began = 0, 0.0, 0.0, time.perf_counter()

    @property
    def elapsed(self):
        return self.seconds + time.perf_counter() - self.began

    def start(self):
        """Begin the clock."""
        self.began = time.perf_counter()

    def look(self, act, steps):
        """Evaluate if half a second and a twentieth of the time have passed since it was done last.

        act: from observations (m, o) to m actions.  Raises Solved at the target, or when the time is up.
        """
        self.steps, now = steps, self.elapsed
        is_late = now >= self.limit
        if not is_late and now < self.evaluated + max(0.5, 0.05 * now):
            return
        self.seconds = self.evaluated = now
        self.score = self.evaluate(act)
        if self.score >= self.target:
            self.score = self.evaluate(act)
            self.is_solved = self.score >= self.target
        if self.is_solved or is_late:
            raise Solved
        self.began = time.perf_counter()

    def evaluate(self, act):
        """Mean return over fresh episodes: 100, or 10 if the target lies far above these."""
        returns = self.play(act, FIRST)
        error = 3 * np.std(returns) / math.sqrt(FIRST)
        if np.mean(returns) + error >= self.target:
            returns += self.play(act, EPISODES - FIRST)
        return float(np.mean(returns))

    def play(self, act, count):
        """Returns of fresh episodes, which are played side by side."""
        import gymnasium

        while len(self.environments) < count:
            self.environments.append(gymnasium.make(self.name, **ENVIRONMENTS.get(self.name, {})))
        seeds = self.random.integers(2**31, size=count).tolist()
        pairs = zip(self.environments, seeds, strict=False)
        alive = {k: environment.reset(seed=seed)[0] for k, (environment, seed) in enumerate(pairs)}
        totals = [0.0] * count
        while alive:
            places = list(alive)
            actions = act(np.stack([alive[k] for k in places]))
            for k, action in zip(places, actions, strict=True):
                observation, reward, terminated, truncated, _ = self.environments[k].step(action)
                totals[k] += float(reward)
                if terminated or truncated:
                    del alive[k]
                else:
                    alive[k] = observation
        return totals


def learn_sb3(algorithm, options, judge):
    """Stable-Baselines3 with the settings of RL Baselines3 Zoo."""
    import stable_baselines3
    import torch
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import VecNormalize

    torch.set_num_threads(options.workers if algorithm == "sac" else 1)  # PPO's networks are too small to share
    settings = dict(SB3[algorithm][options.environment])
    instances, is_normalized = settings.pop("n_envs", 1), settings.pop("normalize", False)
    total = settings.pop("n_timesteps")
    is_scheduled = any(callable(value) for value in settings.values())
    arguments = ENVIRONMENTS.get(options.environment)
    environment = make_vec_env(options.environment, instances, seed=options.seed, env_kwargs=arguments)
    if is_normalized:
        environment = VecNormalize(environment, gamma=settings.get("gamma", 0.99))
    model = getattr(stable_baselines3, algorithm.upper())(
        "MlpPolicy", environment, seed=options.seed, device="cpu", **settings
    )

    def act(observations):
        if is_normalized:
            observations = environment.normalize_obs(observations)
        return model.predict(observations, deterministic=True)[0]

    class Looking(BaseCallback):
        def __init__(self):
            super().__init__()
            self.updates = 0

        def _on_training_start(self):
            judge.start()

        def _on_step(self):
            if model._n_updates != self.updates or judge.elapsed >= judge.limit:
                self.updates = model._n_updates
                judge.look(act, model.num_timesteps)
            return True

    # Without a schedule the zoo's number of steps is no end: it may go on until the time is up.
    model.learn(total if is_scheduled else 10**9, callback=Looking())
    judge.limit = 0  # the schedule is at its end
    judge.look(act, model.num_timesteps)


def learn_evotorch(options, judge):
    """EvoTorch's PGPE with ClipUp, with the settings of its own example."""
    import ray
    import torch
    from evotorch.algorithms import PGPE
    from evotorch.neuroevolution import GymNE

    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    ray.init(num_cpus=options.workers, include_dashboard=False, log_to_driver=False)
    of_problem, of_search = evotorch_settings(options.environment)
    problem = GymNE(options.environment, num_actors=options.workers, **of_problem)
    searcher = PGPE(problem, optimizer="clipup", stdev_learning_rate=0.1, stdev_max_change=0.2, **of_search)
    discrete = hasattr(Player(options.environment, []).environment.action_space, "n")
    judge.start()
    while True:
        searcher.step()

        def act(observations):
            policy = problem.to_policy(searcher.status["center"])
            with torch.no_grad():
                outputs = policy(torch.as_tensor(observations, dtype=torch.float32)).numpy()
            return outputs.argmax(axis=1) if discrete else outputs

        judge.look(act, int(problem.status["total_interaction_count"]))


def perceptron(player, parameters):
    """The function `act` of a Player's network with these parameters."""
    splits = np.cumsum([a * b for a, b in player.shapes])[:-1]
    layers = np.split(np.asarray(parameters, np.float32), splits)
    layers = [layer.reshape(shape) for layer, shape in zip(layers, player.shapes, strict=True)]

    def act(observations):
        x = observations
        for number, layer in enumerate(layers):
            x = x @ layer[:-1] + layer[-1]
            if number < len(layers) - 1:
                x = np.tanh(x)
        return x.argmax(axis=1) if player.discrete else np.clip(x, player.low, player.high)

    return act


def learn_by_map(options, judge, ask, tell, mean):
    """A library that is asked for candidates and told their losses, beside a pool of processes that play."""
    player, mapped, steps = Player(options.environment, options.hidden), pool_map(options), 0
    mapped(abs, [0] * options.workers)  # the processes have started
    judge.start()
    for generation in range(10**9):
        candidates = ask()
        seeds = np.random.default_rng([options.seed, generation]).integers(2**31, size=len(candidates))
        jobs = list(zip(candidates, seeds.tolist(), strict=True))
        returns, lengths = zip(*mapped(play, jobs), strict=True)
        tell(candidates, -np.array(returns))
        steps += sum(lengths)
        judge.look(perceptron(player, mean()), steps)


def learn_pycma(options, judge):
    import cma

    options.hidden = []
    size = Player(options.environment, []).size
    solver = cma.CMAEvolutionStrategy(np.zeros(size), PYCMA["sigma"], {"seed": options.seed, "verbose": -9})
    learn_by_map(options, judge, solver.ask, lambda x, y: solver.tell(x, y.tolist()), lambda: solver.mean)


def learn_evosax(options, judge):
    import jax
    import optax
    from evosax.algorithms import Open_ES

    options.hidden = EVOSAX["hidden"]
    zeros = jax.numpy.zeros(Player(options.environment, options.hidden).size)
    solver = Open_ES(
        population_size=EVOSAX["population"],
        solution=zeros,
        optimizer=optax.adam(EVOSAX["learning_rate"]),
        std_schedule=optax.constant_schedule(EVOSAX["sigma"]),
    )
    parameters, key = solver.default_params, jax.random.key(options.seed)
    state = solver.init(key, zeros, parameters)

    def next_key():
        nonlocal key
        key, new = jax.random.split(key)
        return new

    def ask():
        nonlocal state
        candidates, state = solver.ask(next_key(), state, parameters)
        return np.asarray(candidates)

    def tell(candidates, losses):
        nonlocal state
        state, _ = solver.tell(next_key(), jax.numpy.asarray(candidates), jax.numpy.asarray(losses), state, parameters)

    tell(ask(), np.arange(EVOSAX["population"], dtype=float))  # compiled before the clock begins
    state = solver.init(key, zeros, parameters)
    learn_by_map(options, judge, ask, tell, lambda: np.asarray(solver.get_mean(state)))


LEARNERS = {
    "ppo": lambda options, judge: learn_sb3("ppo", options, judge),
    "sac": lambda options, judge: learn_sb3("sac", options, judge),
    "evotorch": learn_evotorch,
    "pycma": learn_pycma,
    "evosax": learn_evosax,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("learner", choices=LEARNERS)
    parser.add_argument("environment")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--target", type=float, required=True)
    parser.add_argument("--limit", type=float, default=600, help="seconds of training")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    judge = Judge(options.environment, options.seed, options.target, options.limit)
    with contextlib.suppress(Solved):
        LEARNERS[options.learner](options, judge)
    figures = {"solved": judge.is_solved, "seconds": judge.seconds, "steps": judge.steps, "score": judge.score}
    print(json.dumps(figures), flush=True)
    os._exit(0)  # pools and actors need no farewell


if __name__ == "__main__":
    main()
