"""Train on a custom environment: `python examples/custom_environment.py`.

An environment is a class with the interface of gymnasium.  The config names it as `path/to/file.py:Class`, and every
rank makes its own objects of it.  So a run does not depend on the process that started it.
"""

import gymnasium
import numpy as np

import mpies


class Room(gymnasium.Env):
    """Keep the temperature of a room at 0.  The observation is the temperature, the action the heating."""

    observation_space = gymnasium.spaces.Box(-99, 99, (1,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, seed=None, options=None):
        """Begin an episode.  All its chance comes from the seed: so any member can be played again."""
        self.degrees = np.random.default_rng(seed).uniform(-5, 5, 1)
        return np.float32(self.degrees), {}

    def step(self, heating):
        self.degrees = 0.99 * self.degrees + heating
        return np.float32(self.degrees), -float(self.degrees[0] ** 2), False, False, {}


def main(out="runs/room"):
    run = mpies.train(
        {
            "environment": {"id": f"{__file__}:Room", "max_steps": 50},
            "policy": {"hidden": []},  # linear
            "solver": {"population": 32, "sigma": 0.3, "optimizer": {"kind": "adam", "learning_rate": 0.2}},
            "noise": {"size": 100_000},
            "stop": {"generations": 15},
        },
        out=out,
    )
    returns = run.metrics["return_mean"]
    print(f"mean return of the members: {returns[0]:,.0f} in the first generation, {returns[-1]:,.0f} in the last")


if __name__ == "__main__":
    main()
