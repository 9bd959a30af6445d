"""gymnasium's MuJoCo tasks, version 5, as classes of MujocoTask.

Observations, rewards, ends, infos, keyword arguments and the distribution of first states are those of
gymnasium.envs.mujoco; for a seed, an episode begins in the same state.  The models are files of gymnasium's.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import numpy as np

from mpies.envs.mujoco_env import Array, MujocoTask, Simulations, Streams

Outcome = tuple[Array, Array, dict[str, Array]]


def _sum_squares(values: Array) -> Array:
    """The sum of squares (n,) of the numbers of each row (n, ...)."""
    sums: Array = np.square(values).reshape(len(values), -1).sum(axis=1)
    return sums


def _norm(values: Array) -> Array:
    """The length (n,) of each row (n, m)."""
    return np.sqrt(_sum_squares(values))


def _between(low: float, values: Array, high: float) -> Array:
    """Whether values are between two bounds, without the bounds."""
    return (low < values) & (values < high)


class GymnasiumTask(MujocoTask):
    """A task of gymnasium's with the id NAME-v5.  Its keyword arguments, with their defaults, become attributes.

    noise_is_normal: whether the noise of the first speeds is normal; else it is uniform.
    """

    noise_is_normal = False

    def __init__(self, **kwargs: Any) -> None:
        import gymnasium
        from gymnasium.envs.mujoco.mujoco_env import MujocoEnv, expand_model_path
        from gymnasium.envs.registration import load_env_creator

        spec = gymnasium.spec(f"{type(self).__name__}-v5")
        given = inspect.signature(load_env_creator(str(spec.entry_point))).bind(**kwargs)
        inspect.signature(MujocoEnv).bind("", 1, None, **given.arguments.get("kwargs", {}))  # those of pictures
        given.apply_defaults()
        self.options = given.arguments
        self.frame_skip, self.max_steps = self.options["frame_skip"], spec.max_episode_steps
        self.model = expand_model_path(self.options["xml_file"])

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["options"][name]
        except KeyError:
            raise AttributeError(name) from None

    def reset(self, sim: Simulations, random: Streams) -> None:
        scale, model = self.reset_noise_scale, sim.model
        sim.qpos = model.qpos0 + random.uniform(-scale, scale, model.nq)
        if self.noise_is_normal:
            sim.qvel = scale * random.standard_normal(model.nv)
        else:
            sim.qvel = random.uniform(-scale, scale, model.nv)


class _Runner(GymnasiumTask):
    """A task whose reward is the speed forward, less a cost of control, and a bonus where it ends with a fall.

    axes: of the plane in which it moves, 1 or 2.  skipped: positions that are not observed.
    fastest: bound on the speeds that are observed.
    """

    axes = 1
    skipped = 1
    fastest = np.inf

    def locate(self, sim: Simulations) -> Array:
        """Where it is (n, axes)."""
        return sim.qpos[:, : self.axes]

    def is_healthy(self, sim: Simulations) -> Array | None:
        """Whether it has not fallen (n,); None where the task knows no fall."""
        return None

    def costs(self, sim: Simulations, actions: Array) -> dict[str, Array]:
        """Names in the info, and what is subtracted from the reward (n,)."""
        return {"reward_ctrl": self.ctrl_cost_weight * _sum_squares(actions)}

    def extra(self, sim: Simulations) -> Iterator[Array]:
        """What is observed besides positions and speeds, each (n, m)."""
        yield from ()

    def tell(self, sim: Simulations) -> dict[str, Array]:
        """What else is in the info."""
        return {}

    def before_step(self, sim: Simulations) -> None:
        sim.place = self.locate(sim)

    def observe(self, sim: Simulations) -> Array:
        skipped = self.skipped if self.exclude_current_positions_from_observation else 0
        speeds = sim.qvel if self.fastest == np.inf else np.clip(sim.qvel, -self.fastest, self.fastest)
        return np.concatenate([sim.qpos[:, skipped:], speeds, *self.extra(sim)], axis=1)

    def outcome(self, sim: Simulations, actions: Array) -> Outcome:
        qpos, healthy, costs = sim.qpos, self.is_healthy(sim), self.costs(sim, actions)
        speed = (self.locate(sim) - sim.place) / sim.dt
        info = {"x_position": qpos[:, 0], "x_velocity": speed[:, 0], **self.tell(sim)}
        if self.axes == 2:
            info |= {"y_position": qpos[:, 1], "y_velocity": speed[:, 1], "distance_from_origin": _norm(qpos[:, :2])}
        info["reward_forward"] = self.forward_reward_weight * speed[:, 0]
        rewards, over = info["reward_forward"], np.zeros(len(sim), bool)
        if healthy is not None:
            info["reward_survive"] = healthy * self.healthy_reward
            rewards = rewards + info["reward_survive"]
            over = ~healthy & self.terminate_when_unhealthy
        rewards = rewards - sum(costs.values())
        return rewards, over, {**info, **{name: -cost for name, cost in costs.items()}}


class HalfCheetah(_Runner):
    noise_is_normal = True


class Swimmer(_Runner):
    axes = skipped = 2


class Walker2d(_Runner):
    fastest = 10.0

    def is_healthy(self, sim: Simulations) -> Array:
        height, angle = sim.qpos[:, 1], sim.qpos[:, 2]
        low, high = self.healthy_angle_range
        return _between(self.healthy_z_range[0], height, self.healthy_z_range[1]) & _between(low, angle, high)

    def tell(self, sim: Simulations) -> dict[str, Array]:
        return {"z_distance_from_origin": sim.qpos[:, 1] - sim.model.qpos0[1]}


class Hopper(Walker2d):
    def is_healthy(self, sim: Simulations) -> Array:
        state = np.concatenate([sim.qpos[:, 2:], sim.qvel], axis=1)
        low, high = self.healthy_state_range
        return super().is_healthy(sim) & _between(low, state, high).all(axis=1)


class Ant(_Runner):
    axes = skipped = 2
    noise_is_normal = has_contact_forces = True

    def locate(self, sim: Simulations) -> Array:
        return sim.xpos[:, sim.model.body(self.main_body).id, :2]

    def is_healthy(self, sim: Simulations) -> Array:
        low, high = self.healthy_z_range
        state = np.concatenate([sim.qpos, sim.qvel], axis=1)
        return np.isfinite(state).all(axis=1) & (low <= state[:, 2]) & (state[:, 2] <= high)

    def costs(self, sim: Simulations, actions: Array) -> dict[str, Array]:
        forces = np.clip(sim.cfrc_ext, *self.contact_force_range)
        return {**super().costs(sim, actions), "reward_contact": self.contact_cost_weight * _sum_squares(forces)}

    def extra(self, sim: Simulations) -> Iterator[Array]:
        if self.include_cfrc_ext_in_observation:
            yield np.clip(sim.cfrc_ext[:, 1:], *self.contact_force_range).reshape(len(sim), -1)


class Humanoid(_Runner):
    axes = skipped = 2
    has_contact_forces = True

    def locate(self, sim: Simulations) -> Array:
        """The centre of mass."""
        masses = sim.model.body_mass
        centre: Array = (masses[:, None] * sim.xipos).sum(axis=1) / masses.sum()
        return centre[:, :2]

    def is_healthy(self, sim: Simulations) -> Array | None:
        return _between(self.healthy_z_range[0], sim.qpos[:, 2], self.healthy_z_range[1])

    def costs(self, sim: Simulations, actions: Array) -> dict[str, Array]:
        contact = np.clip(self.contact_cost_weight * _sum_squares(sim.cfrc_ext), *self.contact_cost_range)
        return {"reward_ctrl": self.ctrl_cost_weight * _sum_squares(sim.ctrl), "reward_contact": contact}

    def extra(self, sim: Simulations) -> Iterator[Array]:
        for name, first in (("cinert", 1), ("cvel", 1), ("qfrc_actuator", 6), ("cfrc_ext", 1)):
            if self.options[f"include_{name}_in_observation"]:
                yield getattr(sim, name)[:, first:].reshape(len(sim), -1)

    def tell(self, sim: Simulations) -> dict[str, Array]:
        return {"tendon_length": sim.ten_length, "tendon_velocity": sim.ten_velocity}


class HumanoidStandup(Humanoid):
    def before_step(self, sim: Simulations) -> None:
        """Nothing: only the height counts."""

    def outcome(self, sim: Simulations, actions: Array) -> Outcome:
        qpos = sim.qpos
        rise = qpos[:, 2] / sim.model.opt.timestep
        control = self.ctrl_cost_weight * _sum_squares(sim.ctrl)
        impact = np.clip(self.impact_cost_weight * _sum_squares(sim.cfrc_ext), *self.impact_cost_range)
        info = {"x_position": qpos[:, 0], "y_position": qpos[:, 1], **self.tell(sim), "reward_linup": rise}
        info |= {"reward_quadctrl": -control, "reward_impact": -impact}
        info["z_distance_from_origin"] = qpos[:, 2] - sim.model.qpos0[2]
        return rise - control - impact + 1, np.zeros(len(sim), bool), info


class InvertedPendulum(GymnasiumTask):
    def outcome(self, sim: Simulations, actions: Array) -> Outcome:
        state = self.observe(sim)
        over = ~np.isfinite(state).all(axis=1) | (np.abs(state[:, 1]) > 0.2)
        return (~over).astype(float), over, {"reward_survive": (~over).astype(float)}


class InvertedDoublePendulum(GymnasiumTask):
    noise_is_normal = True

    def observe(self, sim: Simulations) -> Array:
        angles = sim.qpos[:, 1:]
        forces = np.clip(sim.qfrc_constraint, -10, 10)[:, :1]
        speeds = np.clip(sim.qvel, -10, 10)
        return np.concatenate([sim.qpos[:, :1], np.sin(angles), np.cos(angles), speeds, forces], axis=1)

    def outcome(self, sim: Simulations, actions: Array) -> Outcome:
        x, _, height = sim.site_xpos[:, 0].T
        _, first, second = sim.qvel.T
        over = height <= 1
        survive = self.healthy_reward * ~over
        distance = 0.01 * x**2 + (height - 2) ** 2
        speed = 1e-3 * first**2 + 5e-3 * second**2
        info = {"reward_survive": survive, "distance_penalty": -distance, "velocity_penalty": -speed}
        return survive - distance - speed, over, info


def _draw_far(random: Streams, low: Array, high: Array, least: float, most: float) -> Array:
    """Points (n, 2) between two corners, drawn until their length is between `least` and `most`."""
    points = []
    for generator in random:
        point = generator.uniform(low, high)
        while not least < np.linalg.norm(point) < most:
            point = generator.uniform(low, high)
        points.append(point)
    return np.array(points)


class Reacher(GymnasiumTask):
    def reset(self, sim: Simulations, random: Streams) -> None:
        qpos = random.uniform(-0.1, 0.1, sim.model.nq) + sim.model.qpos0
        qpos[:, -2:] = _draw_far(random, np.full(2, -0.2), np.full(2, 0.2), -1, 0.2)
        qvel = random.uniform(-0.005, 0.005, sim.model.nv)
        qvel[:, -2:] = 0
        sim.qpos, sim.qvel = qpos, qvel

    def observe(self, sim: Simulations) -> Array:
        qpos = sim.qpos
        angles = qpos[:, :2]
        return np.concatenate(
            [np.cos(angles), np.sin(angles), qpos[:, 2:], sim.qvel[:, :2], self._distance(sim)[:, :2]], axis=1
        )

    def _distance(self, sim: Simulations) -> Array:
        return sim.xpos[:, sim.model.body("fingertip").id] - sim.xpos[:, sim.model.body("target").id]

    def outcome(self, sim: Simulations, actions: Array) -> Outcome:
        distance = -_norm(self._distance(sim)) * self.reward_dist_weight
        control = -_sum_squares(actions) * self.reward_control_weight
        return distance + control, np.zeros(len(sim), bool), {"reward_dist": distance, "reward_ctrl": control}


class Pusher(GymnasiumTask):
    def reset(self, sim: Simulations, random: Streams) -> None:
        qpos = np.repeat(sim.model.qpos0[None], len(sim), axis=0)
        qpos[:, -4:-2] = _draw_far(random, np.array([-0.3, -0.2]), np.array([0.0, 0.2]), 0.17, np.inf)
        qpos[:, -2:] = 0
        qvel = random.uniform(-0.005, 0.005, sim.model.nv)
        qvel[:, -4:] = 0
        sim.qpos, sim.qvel = qpos, qvel

    def _places(self, sim: Simulations) -> tuple[Array, Array, Array]:
        return tuple(sim.xpos[:, sim.model.body(name).id] for name in ("tips_arm", "object", "goal"))  # type: ignore[return-value]

    def observe(self, sim: Simulations) -> Array:
        return np.concatenate([sim.qpos[:, :7], sim.qvel[:, :7], *self._places(sim)], axis=1)

    def outcome(self, sim: Simulations, actions: Array) -> Outcome:
        arm, thing, goal = self._places(sim)
        near = -_norm(thing - arm) * self.reward_near_weight
        distance = -_norm(thing - goal) * self.reward_dist_weight
        control = -_sum_squares(actions) * self.reward_control_weight
        info = {"reward_dist": distance, "reward_ctrl": control, "reward_near": near}
        return distance + control + near, np.zeros(len(sim), bool), info


TASKS: dict[str, type[GymnasiumTask]] = {
    f"{task.__name__}-v5": task
    for task in (
        *(HalfCheetah, Swimmer, Walker2d, Hopper, Ant, Humanoid, HumanoidStandup),
        *(InvertedPendulum, InvertedDoublePendulum, Reacher, Pusher),
    )
}
