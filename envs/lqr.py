"""A linear system with quadratic cost: the unstable one of Dean et al. (2017), on which ARS was tried (Mania 2018).

Its optimum is known: the Riccati equation gives the best linear policy and what it costs.
"""

import gymnasium
import numpy as np

A = np.array([[1.01, 0.01, 0.0], [0.01, 1.01, 0.01], [0.0, 0.01, 1.01]])
B = np.eye(3)
Q, R = 1e-3 * np.eye(3), np.eye(3)


class LQR(gymnasium.Env):
    """x' = A x + B u + w with w normal, `noise` its deviation; the reward is -(x'Qx + u'Ru).  x starts normal."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = gymnasium.spaces.Box(-1e3, 1e3, (3,), np.float32)

    def __init__(self, noise=1.0):
        self._noise = noise

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._x = self.np_random.standard_normal(3)
        return np.float32(self._x), {}

    def step(self, action):
        x, u = self._x, np.asarray(action, np.float64)
        self._x = A @ x + B @ u + self._noise * self.np_random.standard_normal(3)
        return np.float32(self._x), -float(x @ Q @ x + u @ R @ u), False, False, {}
