"""What a solver is: propose a distribution, weigh the members' fitness, be told the moments.

    proposal = solver.ask()                                   rank 0
    payload = solver.write(proposal, indices, member, out)    whichever rank plays that member
    weights = solver.weigh(results, proposal)                 every rank, the same everywhere
    sums = solver.moments(indices, weights, 0, dimension)     every rank its own coordinates
    solver.tell(proposal, results, sums)                      rank 0

A solver on the noise table never sees its members' parameters: they are rows of the table, and all that
depends on them arrives as moments and as a few numbers per member, the payload.  A solver of whole
candidates puts their rows into the proposal and asks for no moments.  Fitness is maximised.

A new solver is an Options class and begin, propose, weigh and update; docs/solvers.md has one of 30 lines.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, fields
from typing import ClassVar

import numpy as np

from solvers.directions import Directions, recall
from solvers.moments import Weights


@dataclass(frozen=True)
class Proposal:
    """What rank 0 sends: vectors to every rank, and at times rows, once to each node's shared memory.

    mean: (d,) float32, what is evaluated and saved.  rows: (r, d) float32; None where the solver has none
    or those sent before still hold.  Subclasses add vectors of their own.
    """

    mean: np.ndarray
    rows: np.ndarray | None = field(default=None, kw_only=True)

    def vectors(self):
        """All but the rows, in the order the class takes them."""
        return [getattr(self, entry.name) for entry in fields(self) if entry.name != "rows"]


@dataclass(frozen=True)
class Gaussian(Proposal):
    """Members are x = mean + scale * z, elementwise.  scale: (1,) or (d,) float32."""

    scale: np.ndarray


@dataclass(frozen=True)
class Results:
    """What a generation found, in member order, the same on every rank.

    returns: (n,) float64 mean undiscounted return of a member's episodes; NaN when it failed.
    sign_returns: (n,) float64 likewise for the signs of the rewards; 0 where options.fitness does not ask.
    steps: (n,) int64 environment steps of all of a member's episodes.
    payload: (n, q) float64, what `Solver.write` said about the member.
    behaviours: (n, b) float64, how its episodes ended; b = 0 unless the solver asks.
    Raises ValueError when the shapes do not belong together.
    """

    returns: np.ndarray
    sign_returns: np.ndarray
    steps: np.ndarray
    payload: np.ndarray
    behaviours: np.ndarray

    def __post_init__(self):
        if self.returns.ndim != 1:
            raise ValueError(f"returns must be a vector, one per member, but have shape {self.returns.shape}")
        for entry in fields(self):
            shape = getattr(self, entry.name).shape
            if shape[:1] != self.returns.shape or len(shape) != (2 if entry.name in ("payload", "behaviours") else 1):
                raise ValueError(f"{entry.name} has shape {shape}, but there are {len(self.returns)} returns")

    @classmethod
    def of(cls, returns, payload=None, behaviours=None):
        """Results of one step each, for who has returns and perhaps a payload only."""
        returns = np.asarray(returns, np.float64)
        empty = np.zeros((*returns.shape[:1], 0))
        return cls(
            returns,
            np.sign(returns),
            np.ones(returns.shape, np.int64),
            empty if payload is None else np.asarray(payload, np.float64),
            empty if behaviours is None else np.asarray(behaviours, np.float64),
        )


@dataclass
class Solver(ABC):
    """Base of the solvers.

    options: the subclass's Options.  dimension: d.  seed: the run's.  dtype: of the state; the loop uses
    float32, float64 is for comparisons with other implementations.  directions: how members' are cut from the
    noise table; by default they are its rows.
    """

    options: object
    dimension: int
    seed: int = 0
    dtype: type = np.float32
    directions: Directions | None = None

    remembers: ClassVar[tuple] = ("mean",)  # attributes that make the state: arrays, numbers, optimisers
    payload_size: ClassVar[int] = 0  # q
    rows: ClassVar[int] = 0  # r, rows in shared memory
    wants_behaviour: ClassVar[bool] = False
    Proposal: ClassVar[type] = Gaussian

    def __post_init__(self):
        self.directions = self.directions or Directions(self.dimension)

    def start(self, mean):
        """Begin at `mean` (d,)."""
        mean = np.array(mean, self.dtype)
        if mean.shape != (self.dimension,):
            raise ValueError(f"the mean must have shape ({self.dimension},), but has {mean.shape}")
        self.mean, self.generation, self._asked = mean, 0, None
        self.begin()

    def ask(self):
        """The Proposal of the next generation; the same one until `tell`."""
        if not hasattr(self, "mean"):
            raise RuntimeError("ask before start: call start(mean) or restore(state) first")
        if self._asked is None:
            self._asked = self.propose()
        return self._asked

    def write(self, proposal, indices, member, out):
        """Write the parameters of a member into `out` (d,); returns its payload, a sequence of q floats.

        indices: (k,) of the noise rows of this member's population.  Needs `table`, the noise table.
        """
        options = self.options
        if options.plays_mean:
            if member == 0:
                out[:] = proposal.mean
                return (0.0,) * self.payload_size
            member -= 1
        row, second = divmod(member, 2) if options.antithetic else (member, 0)
        sign = -1 if second else 1
        if self.directions.has_products:
            self.directions.sample(self.table, indices[row], proposal.mean, sign * proposal.scale, out)
            return (0.0,) * self.payload_size
        return self.sample(proposal, self.noise(indices[row]), sign, out)

    def noise(self, index):
        """The noise row (d,) at an index of the table, which must not be written to."""
        return self.table[index : index + self.dimension]

    def sample(self, proposal, noise, sign, out):
        """Write the member with this noise row (d,) and sign (+1 or -1) into `out`; returns its payload."""
        np.multiply(noise, proposal.scale if sign > 0 else -proposal.scale, out=out)
        np.add(out, proposal.mean, out=out)
        return (0.0,) * self.payload_size

    def moments(self, indices, weights, start, stop):
        """The moments (a + c, stop - start) of the directions at these indices, over some coordinates."""
        return self.directions.moments(self.table, indices, weights, start, stop)

    def tell(self, proposal, results, sums):
        """Take the step.  sums: (a + c, d), the moments for the weights of `weigh`."""
        if getattr(self, "_asked", None) is None:
            raise RuntimeError("tell before ask: a solver is told about what it proposed")
        members = self.options.members(self.dimension)
        if len(results.returns) % members or not len(results.returns):
            raise ValueError(f"there must be {members} returns, one per member, but there are {len(results.returns)}")
        if sums.ndim != 2 or sums.shape[1] != self.dimension:
            raise ValueError(f"sums must have shape (moments, {self.dimension}), but have {sums.shape}")
        self._asked = None
        self.update(proposal, results, sums)
        self.generation += 1

    def state(self):
        """Everything that the next generation depends on: names to arrays."""
        state = {"generation": np.int64(self.generation)} | self.directions.state()
        for name in self.remembers:
            value = getattr(self, name)
            if hasattr(value, "state"):
                state |= {f"{name}/{key}": part for key, part in value.state().items()}
            else:
                state[name] = np.array(value)
        return state

    def restore(self, state):
        """Continue from what `state` returned, bit for bit."""
        self.start(state["mean"])
        self.directions = recall(self.dimension, state)
        self.generation = int(state["generation"])
        for name in self.remembers:
            value, prefix = getattr(self, name), f"{name}/"
            if hasattr(value, "restore"):
                value.restore({key[len(prefix) :]: part for key, part in state.items() if key.startswith(prefix)})
            else:
                found = np.array(state[name])
                setattr(self, name, found if found.ndim else found.item())

    @abstractmethod
    def begin(self):
        """Set the state, besides `mean` and `generation`, that the first generation starts from."""

    @abstractmethod
    def propose(self):
        """The Proposal of generation number `generation`.  Must not change the state."""

    def weigh(self, results, proposal):
        """moments.Weights for these Results; a pure function of its arguments, the options and d."""
        return Weights(np.zeros((0, 0), self.dtype), np.zeros((0, 0), self.dtype))

    @abstractmethod
    def update(self, proposal, results, sums):
        """Take the step: `tell` behind its checks."""

    def report(self):
        """Numbers worth a column in the metrics: names to floats."""
        return {}
