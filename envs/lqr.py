"""A linear system with quadratic cost: the unstable one of Dean et al. (2017), used to test ARS (Mania et al. 2018).

Its optimum is known: the Riccati equation gives the best linear policy and its cost.
"""

from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt

A = np.array([[1.01, 0.01, 0.0], [0.01, 1.01, 0.01], [0.0, 0.01, 1.01]])
B = np.eye(3)
Q, R = 1e-3 * np.eye(3), np.eye(3)


class LQR(gymnasium.Env[Any, Any]):
    """State x (3,), action u (3,): x' = A x + B u + w, with reward -(x'Qx + u'Ru) of the state before the step.

    The state is the observation; it starts standard normal.  An episode has no end of its own.
    noise: the standard deviation of the normals w.
    """

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = gymnasium.spaces.Box(-1e3, 1e3, (3,), np.float32)

    def __init__(self, noise: float = 1.0) -> None:
        self._noise = noise

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[npt.NDArray[np.float32], dict[str, Any]]:
        super().reset(seed=seed)
        self._x = self.np_random.standard_normal(3)
        return self._x.astype(np.float32), {}

    def step(self, action: npt.ArrayLike) -> tuple[npt.NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        x, u = self._x, np.asarray(action, np.float64)
        self._x = A @ x + B @ u + self._noise * self.np_random.standard_normal(3)
        return self._x.astype(np.float32), -float(x @ Q @ x + u @ R @ u), False, False, {}
