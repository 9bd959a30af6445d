"""Swing a pole up and hold it there, with a force on the cart: the parameters of Deisenroth and Rasmussen (2011).

The start, the reward and the limits are those under which estool's results were published (Ha 2017).
"""

import math

import gymnasium
import numpy as np

GRAVITY, CART, POLE, LENGTH, FRICTION = 9.82, 0.5, 0.5, 0.6, 0.1  # m/s2, kg, kg, m, N s/m
FORCE, SECONDS, EDGE = 10.0, 0.01, 2.4  # N at action 1, of a step, m to either side


class CartPoleSwingUp(gymnasium.Env):
    """Observations: position, velocity, cosine and sine of the angle (0 is up), angular velocity."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (5,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._state = tuple(self.np_random.normal((0.0, 0.0, math.pi, 0.0), 0.2).tolist())
        return self._observe(), {}

    def step(self, action):
        x, speed, angle, turning = self._state
        force = FORCE * min(max(float(action[0]), -1.0), 1.0)
        sine, cosine = math.sin(angle), math.cos(angle)
        mass = 4 * (CART + POLE) - 3 * POLE * cosine**2
        pull = POLE * LENGTH * turning**2 * sine
        faster = (-2 * pull + 3 * POLE * GRAVITY * sine * cosine + 4 * force - 4 * FRICTION * speed) / mass
        turn = -3 * pull * cosine + 6 * (CART + POLE) * GRAVITY * sine + 6 * (force - FRICTION * speed) * cosine
        x, angle = x + speed * SECONDS, angle + turning * SECONDS
        speed, turning = speed + faster * SECONDS, turning + turn / (LENGTH * mass) * SECONDS
        self._state = x, speed, angle, turning
        reward = (math.cos(angle) + 1) / 2 * math.cos(x / EDGE * math.pi / 2)
        return self._observe(), reward, abs(x) > EDGE, False, {}

    def _observe(self):
        x, speed, angle, turning = self._state
        return np.array([x, speed, math.cos(angle), math.sin(angle), turning], np.float32)
