"""A robot of one's own: a quadruped learns to walk forward, on floors and with loads that differ.

    python examples/robots/quadruped.py                    a few generations, to see that it works
    mpies train examples/robots/quadruped.yaml --ranks 2   until it walks

docs/robots.md explains it step by step.
"""

from pathlib import Path

import numpy as np
import yaml

import mpies
from mpies.envs import MujocoTask

HOME = np.tile([0.0, 0.7, -1.4], 4)  # angles of roll, hip and knee of each leg when it stands


class Quadruped(MujocoTask):
    model = "quadruped.xml"
    keyframe = "home"
    frame_skip, max_steps = 4, 500  # 50 steps a second, for 10 seconds
    low, high = -np.ones(12), np.ones(12)

    def randomize(self, sim, random):
        friction = np.repeat(sim.model.geom_friction[None], len(sim), axis=0)
        friction[:, :, 0] *= random.uniform(0.6, 1.4, 1)
        sim.vary("geom_friction", friction)
        mass = np.repeat(sim.model.body_mass[None], len(sim), axis=0)
        mass[:, sim.model.body("trunk").id] += random.uniform(-1, 1)
        sim.vary("body_mass", mass)

    def reset(self, sim, random):
        sim.phase = random.uniform(0, 2 * np.pi)

    def control(self, sim, actions):
        return HOME + 0.4 * np.clip(actions, -1, 1)

    def before_step(self, sim):
        sim.place = sim.qpos[:, :2]

    def observe(self, sim):
        phase = sim.phase[:, None] + 2 * np.pi * 2 * sim.time[:, None]  # a clock of two steps a second
        clock = [np.sin(phase), np.cos(phase)]
        return np.concatenate(
            [sim.sensor("up"), sim.sensor("gyro"), sim.qpos[:, 7:] - HOME, sim.qvel[:, 6:], *clock], 1
        )

    def outcome(self, sim, actions):
        speed = (sim.qpos[:, :2] - sim.place) / sim.dt
        # Standing is worth nothing: only progress is, up to 0.6 m/s.  A fall costs more than a dive forward brings.
        reward = np.minimum(speed[:, 0], 0.6) - 0.2 * np.abs(speed[:, 1]) - 0.002 * np.square(actions).sum(axis=1)
        fallen = (sim.sensor("up")[:, 2] < 0.6) | (sim.qpos[:, 2] < 0.15)
        return reward - 20 * fallen, fallen, {"speed": speed[:, 0]}


def main(out="runs/quadruped-example"):
    folder = Path(__file__).parent
    config = yaml.safe_load((folder / "quadruped.yaml").read_text())
    config["environment"]["id"] = f"{folder}/quadruped.py:Quadruped"
    settings = ["environment.max_steps=100", "solver.population=16", "noise.size=100000"]  # for a few seconds
    run = mpies.train(config, *settings, generations=3, out=out)
    print(f"3 generations, mean return of the members: {run.metrics['return_mean'][-1]:.2f}")


if __name__ == "__main__":
    main()
