"""What a world is: batches of episodes that start from seeds and are stepped side by side."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


class EnvironmentProblem(ValueError):
    """The user's environment cannot be used; the message says why and how to mend it."""


@dataclass(frozen=True)
class Discrete:
    """Actions 0 .. count-1."""

    count: int


@dataclass(frozen=True)
class Continuous:
    """Actions in a box.  low, high: (a,) float32."""

    low: np.ndarray
    high: np.ndarray


@dataclass(frozen=True)
class Interface:
    """What a policy must know: observations are (observation_size,) float32 vectors.

    shape: of an observation that is an image, its numbers 0 .. 255, such as (4, 84, 84) for four grey ones; its
    product is the observation_size.  None for plain vectors.
    """

    observation_size: int
    action: Discrete | Continuous
    shape: tuple | None = None


@dataclass(frozen=True)
class Calls:
    """How a compiled loop steps a batch by itself.

    send: begins a step, called with [places, places, actions].  receive: ends it, and returns a list of arrays.
    at: where in the list observations, rewards, ends and places are.  action_type: of the actions.
    """

    send: Callable
    receive: Callable
    at: tuple
    action_type: np.dtype


class Batch(ABC):
    """Episodes begun together.  Each is known by its place in the list of seeds.

    observations: (k, observation_size) after the reset.  `send` and `receive` are apart so that
    several batches can be under way at a time.  An episode that is over is not sent again.
    """

    observations: np.ndarray

    @abstractmethod
    def send(self, places, actions):
        """Start a step of the episodes `places` (m,) int32 with `actions` (m,) int32 or (m, a) float32."""

    @abstractmethod
    def receive(self):
        """The outcome of the last `send`, in its order: observations, rewards (m,), over (m,) bool.

        An episode whose environment raised is over with reward NaN, and `failures` has the message.
        """

    failures: dict  # place -> message
    behaviours: dict  # place -> (b,) what the newest step said of World.behaviour; empty where nobody asks
    calls: Calls | None = None  # of a batch that needs no more than them

    def close(self):  # noqa: B027 (most batches hold nothing)
        """Free what the batch holds."""


class World(ABC):
    """An environment, ready to open batches of episodes.

    interface: Interface.  backend: what runs it, for people.  What pays off on one rank: lanes, episodes side by
    side; smallest and largest, episodes opened at a time; low_water, the number of episodes under way at which
    more are opened; divisor, the part of a rank's fair share of what is left that is then taken.
    """

    interface: Interface
    backend: str
    lanes: int
    smallest: int
    largest: int
    low_water: int
    divisor: int = 1
    behaviour: tuple = ()  # names in the environment's info that together say how an episode goes
    timeout: float | None = None  # set where the world itself breaks off episodes that take too long

    @abstractmethod
    def open(self, seeds, training=False):
        """A Batch with one episode per seed.  An episode depends on its seed and the actions alone.

        training: whether rewards are changed as the task says of training (envs.tasks); most worlds do not ask.
        """

    def measure_behaviour(self, names):
        """Ask batches for the numbers in the info under these names from now on; returns how many they are.

        Raises EnvironmentProblem where the info of a first step lacks one of them.
        """
        action = self.interface.action
        self.behaviour = tuple(names)
        batch = self.open([0])
        if isinstance(action, Discrete):
            actions = np.zeros(1, np.int32)
        else:
            actions = np.clip(np.zeros((1, len(action.low)), np.float32), action.low, action.high)
        batch.send(np.zeros(1, np.int32), actions)
        batch.receive()
        batch.close()
        if batch.failures:
            raise EnvironmentProblem(f"environment.behaviour: {batch.failures[0]}")
        return len(batch.behaviours[0])

    def close(self):  # noqa: B027 (most worlds hold nothing)
        """Free everything."""
