"""The abstract environment: a VectorEnv opens batches of seeded episodes, an EpisodeBatch steps them side by side."""

import json
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from mpies.core.errors import EnvironmentProblem

SEED_BITS = 32  # of a number in VectorEnv.open, above them the number of an episode


@dataclass(frozen=True)
class Discrete:
    """Actions 0 .. count-1."""

    count: int


@dataclass(frozen=True)
class Continuous:
    """Actions in a box.  low, high: (a,) float32; infinite where there is no bound."""

    low: npt.NDArray[np.float32]
    high: npt.NDArray[np.float32]


@dataclass(frozen=True)
class Binary:
    """A part of an action: so many numbers that are 0 or 1."""

    count: int


@dataclass(frozen=True)
class Composite:
    """Actions of several parts: vectors (a,) float32 of the parts' numbers, one part after the other.

    A Discrete part is one number, from 0 to count - 1; a Continuous or Binary part is as many as it has.
    """

    parts: tuple[Discrete | Continuous | Binary, ...]

    @property
    def low(self) -> npt.NDArray[np.float32]:
        """The smallest value of each number, (a,)."""
        return np.concatenate([bounds_of(part)[0] for part in self.parts])

    @property
    def high(self) -> npt.NDArray[np.float32]:
        """The largest value of each number, (a,)."""
        return np.concatenate([bounds_of(part)[1] for part in self.parts])


Action = Discrete | Continuous | Composite


def bounds_of(part: Discrete | Continuous | Binary) -> npt.NDArray[np.float32]:
    """The smallest and the largest values (2, a) of the numbers of a part."""
    if isinstance(part, Continuous):
        return np.stack([part.low, part.high])
    if isinstance(part, Discrete):
        return np.array([[0], [part.count - 1]], np.float32)
    return np.stack([np.zeros(part.count, np.float32), np.ones(part.count, np.float32)])


def draw_actions(action: Action, count: int, random: np.random.Generator) -> npt.NDArray[Any]:
    """`count` random actions, (count,) int32 if discrete, else (count, a) float32; uniform, and between the bounds.

    A number without bounds is between -10 and 10, and one with a single bound within 20 of it.
    """
    if isinstance(action, Discrete):
        return random.integers(action.count, size=count).astype(np.int32)
    if isinstance(action, Continuous):
        low, high = action.low, action.high
        low = np.where(np.isfinite(low), low, np.where(np.isfinite(high), high - 20, -10))
        high = np.where(np.isfinite(high), high, low + 20)
        return random.uniform(low, high, (count, len(low))).astype(np.float32)
    columns: list[npt.NDArray[Any]] = []
    for part in action.parts:
        if isinstance(part, Binary):
            columns.append(random.integers(2, size=(count, part.count)))
        else:
            columns.append(draw_actions(part, count, random).reshape(count, -1))
    return np.concatenate(columns, axis=1, dtype=np.float32)


@dataclass(frozen=True)
class Interface:
    """What a policy must know of an environment.

    observation_size: o; an observation is a vector of so many numbers.
    shape: of observations that are images with values 0 .. 255, such as (4, 84, 84) for four grey frames; its product
    is observation_size.  None for other observations.
    observation_space, action_space: the environment's own, of gymnasium, before `environment.hide`; None where nobody
    asks for them.  mpies.envs.spaces translates between their form and vectors.
    """

    observation_size: int
    action: Action
    shape: tuple[int, ...] | None = None
    observation_space: Any = field(default=None, compare=False, repr=False)
    action_space: Any = field(default=None, compare=False, repr=False)

    def pack(self) -> npt.NDArray[np.uint8]:
        """All but the environment's own spaces, as bytes for a policy file."""
        action = self.action
        parts = [
            [part.low.tolist(), part.high.tolist()]
            if isinstance(part, Continuous)
            else [type(part).__name__, part.count]
            for part in (action.parts if isinstance(action, Composite) else (action,))
        ]
        values = [self.observation_size, self.shape, isinstance(action, Composite), parts]
        return np.frombuffer(json.dumps(values).encode(), np.uint8)

    @classmethod
    def unpack(cls, content: npt.NDArray[np.uint8]) -> "Interface":
        """What `pack` was called for.  Raises ValueError, TypeError or KeyError where that is damaged."""
        size, shape, is_composite, listed = json.loads(content.tobytes())
        if shape and math.prod(shape) != size:
            raise ValueError(f"images of shape {shape} are not {size} numbers")
        parts: list[Any] = [
            {"Discrete": Discrete, "Binary": Binary}[first](int(second))
            if isinstance(first, str)
            else Continuous(np.array(first, np.float32), np.array(second, np.float32))
            for first, second in listed
        ]
        return cls(int(size), Composite(tuple(parts)) if is_composite else parts[0], tuple(shape) if shape else None)


@dataclass(frozen=True)
class Calls:
    """The functions by which the compiled loop steps a batch without running Python code of this package.

    send: starts a step; takes the list [places, places, actions].
    receive: finishes the step; returns a list of arrays.
    at: the positions in that list of the observations, rewards, ends (bool) and places, in this order.
    action_type: the dtype that `send` expects of the actions.
    shown: bool, one for each number of an observation that `receive` returns, whether the policy sees it; None for all.
    """

    send: Callable[[list[npt.NDArray[Any]]], Any]
    receive: Callable[[], list[npt.NDArray[Any]]]
    at: tuple[int, int, int, int]
    action_type: np.dtype[Any]
    shown: npt.NDArray[np.bool_] | None = None


class EpisodeBatch(ABC):
    """Episodes that were opened together.  An episode's place is its index in the list of seeds.

    observations: (k, o) the first observation of each episode.
    failures: place to the message of what went wrong in that episode.
    behaviours: place to (b,) float64, the numbers that VectorEnv.measure_behaviour asked for, as of the newest step;
    empty if it was not called.
    calls: for the compiled loop; None if it cannot step this batch.

    `send` and `receive` are separate so that several batches can compute a step at the same time.
    """

    observations: npt.NDArray[Any]
    failures: dict[int, str]
    behaviours: dict[int, npt.NDArray[np.float64]]
    calls: Calls | None = None

    @abstractmethod
    def send(self, places: npt.NDArray[np.int32], actions: npt.NDArray[Any]) -> None:
        """Start a step of some episodes.  An episode that is over must not be sent again.

        places: (m,) of the episodes.  actions: (m,) int32 if discrete, (m, a) float32 if continuous or composite.
        """

    @abstractmethod
    def receive(self) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[np.bool_]]:
        """Finish the step that `send` started.  Returns observations (m, o), rewards (m,) and over (m,) bool.

        Row i belongs to places[i] of `send`.  The dtypes of observations and rewards are those of the backend.
        An episode whose environment raised an exception is over with reward NaN; its message is in `failures`.
        """

    def close(self) -> None:  # noqa: B027 (optional: not every batch holds resources)
        """Free the resources of the batch, whether or not its episodes are over."""


class VectorEnv(ABC):
    """An environment that plays many episodes at a time.

    A batch begins one episode for each seed.  Each step sends actions to the episodes that are not over, and receives
    what they return; there is no automatic reset.  An episode depends on its seed and its actions alone: not on the
    other episodes of the batch, nor on those played before.

    >>> from mpies.envs import make_env
    >>> env = make_env("gymnasium:CartPole-v1")
    >>> batch = env.open([1, 2, 3])
    >>> places, observations, returns = np.arange(3, dtype=np.int32), batch.observations, np.zeros(3)
    >>> while len(places):
    ...     batch.send(places, (observations[:, 2] > 0).astype(np.int32))  # push towards where the pole leans
    ...     observations, rewards, over = batch.receive()
    ...     returns[places] += rewards
    ...     places, observations = places[~over], observations[~over]
    >>> batch.close()
    >>> returns
    array([51., 35., 36.])

    interface: the sizes and bounds of observations and actions.
    backend: the name of the library that runs it, for messages.
    slots: how many episodes a rank should play side by side.
    smallest, largest: bounds on the number of episodes to open at a time.
    low_water: more episodes are opened once no more than this number is in flight on the rank.
    divisor: the number to open is the rank's fair share of the remaining episodes divided by this.
    behaviour: names of entries of the environment's info; set by `measure_behaviour`.
    behaviour_size: how many numbers they hold, 0 where that is not known.
    timeout: seconds after which the environment itself ends an episode as failed; None if it does not.
    clock: tells the seconds that count for the timeout; a pause of the whole job, say, need not.
    max_steps: after so many steps an episode is over, whatever the library itself says; None for its own limit.
    instances: how many environment objects may exist at a time; None for no limit.
    ignores_seed: whether two episodes with the same seed were seen to differ.
    numbers_episodes: whether `open` also takes seed + (k << SEED_BITS) for the k-th episode, k = 1, 2, ..., of an
    environment with that seed.  It is a function of (seed, k) and its actions, and faster to begin than with a new
    seed where k is larger than in the batches before.
    watch: called with the environment's object after each reset and step, to record or show it; None for nobody.
    Backends in compiled code have no such object and never call it.
    """

    interface: Interface
    backend: str
    slots: int
    smallest: int
    largest: int
    low_water: int
    divisor: int = 1
    behaviour: tuple[str, ...] = ()
    behaviour_size = 0
    timeout: float | None = None
    clock: Callable[[], float] = staticmethod(time.monotonic)
    max_steps: int | None = None
    instances: int | None = None
    numbers_episodes: bool = False
    ignores_seed: bool = False
    watch: Callable[[Any], None] | None = None

    @abstractmethod
    def open(self, seeds: Sequence[int], is_training: bool = False) -> EpisodeBatch:
        """Begin an episode for each of the seeds (k,).

        is_training: whether rewards are changed as TaskEnv describes; other environments ignore it.
        """

    def measure_behaviour(self, names: Sequence[str]) -> int:
        """Fill EpisodeBatch.behaviours with these entries of the info from now on.

        names: entries of the info that a step returns; their numbers are joined in this order.
        Returns b, how many numbers they hold.  Raises EnvironmentProblem if a first step lacks one of them.
        """
        action = self.interface.action
        self.behaviour = tuple(names)
        batch = self.open([0])
        if isinstance(action, Discrete):
            actions: npt.NDArray[Any] = np.zeros(1, np.int32)
        else:
            actions = np.clip(np.zeros((1, len(action.low)), np.float32), action.low, action.high)
        batch.send(np.zeros(1, np.int32), actions)
        batch.receive()
        batch.close()
        if batch.failures:
            raise EnvironmentProblem(f"environment.behaviour: {batch.failures[0]}")
        self.behaviour_size = len(batch.behaviours[0])
        return self.behaviour_size

    def try_out(self) -> None:  # noqa: B027 (optional: a library's own environments need no trial)
        """Play the beginning of an episode.  Raises EnvironmentProblem, in one line, where the environment is wrong."""

    def try_second(self) -> None:  # noqa: B027 (optional: a library's own environments need no trial)
        """Build a second object beside the first.  Raises EnvironmentProblem where the two are the same one."""

    def close(self) -> None:  # noqa: B027 (optional: not every environment holds resources)
        """Free the resources of the environment."""
