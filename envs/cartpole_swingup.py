"""Swing a pole up and hold it there by a force on the cart: the system of Deisenroth and Rasmussen (2011).

Start, reward and limits are those under which estool's results were published (Ha 2017).
"""

import math
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt

GRAVITY, CART, POLE, LENGTH, FRICTION = 9.82, 0.5, 0.5, 0.6, 0.1  # m/s2, kg, kg, m, N s/m
MAX_FORCE, TIME_STEP, TRACK = 10.0, 0.01, 2.4  # N at action 1, s, m from the centre to either end
WIDTH, HEIGHT, SCALE = 600, 200, 100  # of a frame: pixels, pixels, pixels per metre
TRACK_COLOUR, CART_COLOUR, POLE_COLOUR = (128, 128, 128), (40, 40, 40), (202, 152, 101)  # red, green, blue


class CartPoleSwingUp(gymnasium.Env[Any, Any]):
    """Observations (5,): position, velocity, cosine and sine of the angle, angular velocity; m, rad and s.

    The angle is 0 when the pole points up.  Actions (1,): the force as a share of MAX_FORCE, -1 to 1.
    The reward of a step is 1 for an upright pole at the centre and less elsewhere.  An episode ends when the cart
    leaves the track.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": round(1 / TIME_STEP)}
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (5,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[npt.NDArray[np.float32], dict[str, Any]]:
        super().reset(seed=seed)
        self._state = tuple(self.np_random.normal((0.0, 0.0, math.pi, 0.0), 0.2).tolist())
        return self._observe(), {}

    def step(
        self, action: npt.NDArray[np.float32]
    ) -> tuple[npt.NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        x, velocity, angle, spin = self._state  # spin: angular velocity
        force = MAX_FORCE * min(max(float(action[0]), -1.0), 1.0)
        sine, cosine = math.sin(angle), math.cos(angle)
        # The equations of motion of the cart and a uniform pole.
        mass = 4 * (CART + POLE) - 3 * POLE * cosine**2
        pull = POLE * LENGTH * spin**2 * sine
        acceleration = (-2 * pull + 3 * POLE * GRAVITY * sine * cosine + 4 * force - 4 * FRICTION * velocity) / mass
        torque = -3 * pull * cosine + 6 * (CART + POLE) * GRAVITY * sine + 6 * (force - FRICTION * velocity) * cosine
        # Euler's method.
        x, angle = x + velocity * TIME_STEP, angle + spin * TIME_STEP
        velocity, spin = velocity + acceleration * TIME_STEP, spin + torque / (LENGTH * mass) * TIME_STEP
        self._state = x, velocity, angle, spin
        reward = (math.cos(angle) + 1) / 2 * math.cos(x / TRACK * math.pi / 2)
        return self._observe(), reward, abs(x) > TRACK, False, {}

    def _observe(self) -> npt.NDArray[np.float32]:
        x, velocity, angle, spin = self._state
        return np.array([x, velocity, math.cos(angle), math.sin(angle), spin], np.float32)

    def render(self) -> npt.NDArray[np.uint8]:
        """The track, the cart and the pole: a frame (HEIGHT, WIDTH, 3), whose centre is that of the track."""
        position, _, angle, _ = self._state
        rows, columns = np.indices((HEIGHT, WIDTH))
        x, y = (columns - WIDTH / 2) / SCALE - position, (HEIGHT / 2 - rows) / SCALE  # m from the cart, upwards
        share = np.clip((x * math.sin(angle) + y * math.cos(angle)) / LENGTH, 0, 1)  # of the pole, its nearest point
        distance = np.hypot(x - share * LENGTH * math.sin(angle), y - share * LENGTH * math.cos(angle))
        frame = np.full((HEIGHT, WIDTH, 3), 255, np.uint8)
        frame[(abs(y) < 0.01) & (abs(x + position) < TRACK)] = TRACK_COLOUR
        frame[(abs(x) < 0.2) & (abs(y) < 0.1)] = CART_COLOUR
        frame[distance < 0.04] = POLE_COLOUR
        return frame
