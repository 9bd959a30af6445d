"""What a solver is: it proposes a distribution, weights the members by their results, and takes a step.

    proposal = solver.ask()                                            on rank 0
    payload = solver.write(proposal, indices, member, out)             on the rank that evaluates the member
    moments = sum_moments(solver, proposal, results, indices, comm)    on every rank; see mpies.solvers.sum_moments
    solver.tell(proposal, results, moments)                            on rank 0

A solver on the noise table never sees the parameters of its members.  They are computed from rows of the table, and
whatever the step needs to know of them comes as moments, and as a few numbers per member: the payload.  A solver that
draws whole candidates puts them into the rows of its proposal and asks for no moments.  Fitness is maximised.

A new solver is an Options class and the methods begin, propose, compute_weights and update.  docs/solvers.md has an
example of 30 lines.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
import numpy.typing as npt

from mpies.core.arrays import Array, Float64s, FloatArray, Int64s
from mpies.solvers.moments import Weights
from mpies.solvers.options import Population
from mpies.solvers.sampling.directions import Directions
from mpies.solvers.sampling.noise import Filling, sample_indices


@dataclass(frozen=True)
class Proposal:
    """What rank 0 sends of a generation: vectors to every rank, and rows to the shared memory of every node.

    mean: (d,), around which members are drawn.  What is evaluated and saved is Solver.mean.
    rows: (r, d); None if the solver has none, or if the rows sent before are still valid.  The first proposal after
    `begin` or `restore` has them, since a process that goes on has none of those sent before.
    Subclasses add vectors of their own.
    """

    mean: FloatArray
    rows: FloatArray | None = field(default=None, kw_only=True)

    def vectors(self) -> list[Array]:
        """All fields but the rows, in the order of the constructor's arguments."""
        return [getattr(self, entry.name) for entry in fields(self) if entry.name != "rows"]


@dataclass(frozen=True)
class Gaussian(Proposal):
    """Members are x = mean + scale * z, elementwise, for noise z.  scale: (1,) or (d,)."""

    scale: FloatArray


@dataclass(frozen=True)
class Results:
    """The results of a generation in member order, the same on every rank.

    returns: (n,) undiscounted return of each member, the mean of its episodes; NaN if the member failed.
    sign_returns: (n,) the same for the signs of the rewards; 0 if the options' fitness does not need them.
    steps: (n,) environment steps of all episodes of each member.
    payload: (n, q) numbers that `Solver.write` returned for each member.
    behaviours: (n, b) how the episodes of each member ended; b is 0 unless the solver wants it.
    No solver can change them: they are recorded, and shared by ranks.  Raises ValueError if the shapes do not match.
    """

    returns: Float64s
    sign_returns: Float64s
    steps: Int64s
    payload: Float64s
    behaviours: Float64s

    def __post_init__(self) -> None:
        if self.returns.ndim != 1:
            raise ValueError(f"returns must be a vector, one per member, but have shape {self.returns.shape}")
        for entry in fields(self):
            shape = getattr(self, entry.name).shape
            if shape[:1] != self.returns.shape or len(shape) != (2 if entry.name in ("payload", "behaviours") else 1):
                raise ValueError(f"{entry.name} has shape {shape}, but there are {len(self.returns)} returns")
            view = getattr(self, entry.name).view()
            view.flags.writeable = False
            object.__setattr__(self, entry.name, view)

    @classmethod
    def of(
        cls, returns: npt.ArrayLike, payload: npt.ArrayLike | None = None, behaviours: npt.ArrayLike | None = None
    ) -> Self:
        """Results of members with these returns, of one environment step each."""
        returns = np.asarray(returns, np.float64)
        empty = np.zeros((*returns.shape[:1], 0))
        return cls(
            returns,
            np.sign(returns),
            np.ones(returns.shape, np.int64),
            empty if payload is None else np.asarray(payload, np.float64),
            empty if behaviours is None else np.asarray(behaviours, np.float64),
        )


OptionsT = TypeVar("OptionsT", bound=Population)
ProposalT = TypeVar("ProposalT", bound=Proposal)


class Solver(ABC, Generic[OptionsT, ProposalT]):
    """Base of all solvers: Solver[its Options, its Proposal].

    options: its keys.  dimension: d.  seed: of the run.
    dtype: of the state.  A run uses float32; float64 is for comparison with other implementations.
    directions: how noise rows become directions; by default each row is a direction.

    mean: (d,) what is evaluated and saved.  generation: number of steps taken.
    """

    Options: ClassVar[type[Population]]
    Proposal: ClassVar[type[Any]] = Gaussian
    payload_size: ClassVar[int] = 0  # q: numbers that `write` returns
    wants_behaviour: ClassVar[bool] = False

    mean: FloatArray
    _filling: Filling | None  # of the noise table; None where it was whole
    generation: int

    def __init__(
        self,
        options: OptionsT,
        dimension: int,
        seed: int = 0,
        dtype: type[np.float32] | type[np.float64] = np.float32,
        directions: Directions | None = None,
    ) -> None:
        self.options, self.dimension, self.seed, self.dtype = options, dimension, seed, dtype
        self.directions = directions or Directions(dimension)
        self.table = np.zeros(0, dtype)
        self._asked: ProposalT | None = None

    @property
    def table(self) -> FloatArray:
        """(size,) the noise table, to be set before members are written or moments are summed.  Reading fills it."""
        if self._filling:
            self._filling.fill(0, len(self._table))
        return self._table

    @table.setter
    def table(self, table: FloatArray) -> None:
        self._table, self._filling = table, None

    def fill_later(self, filling: Filling) -> None:
        """Have this noise table, in which noise is filled when it is first read."""
        self._table, self._filling = filling.table, filling

    def _table_with(self, indices: npt.ArrayLike) -> FloatArray:
        """The noise table; the noise rows at these indices are filled in it."""
        if self._filling:
            self._filling.fill(indices, self.directions.length)
        return self._table

    @property
    def state_fields(self) -> tuple[str, ...]:
        """Names of the attributes that make up the state: arrays, numbers and optimizers.  May be a class attribute."""
        return ("mean",)

    @property
    def rows(self) -> int:
        """r: how many rows a proposal has.  May be a class attribute."""
        return 0

    def start(self, mean: npt.ArrayLike) -> None:
        """Begin at `mean` (d,).  Raises ValueError for another shape."""
        mean = np.array(mean, self.dtype)
        if mean.shape != (self.dimension,):
            raise ValueError(f"the mean must have shape ({self.dimension},), but has {mean.shape}")
        self.mean, self.generation, self._asked = mean, 0, None
        self.begin()

    def ask(self) -> ProposalT:
        """The proposal of the next generation; the same object until `tell`.  Raises RuntimeError before `start`."""
        if not hasattr(self, "mean"):
            raise RuntimeError("ask before start: call start(mean) or restore(state) first")
        if self._asked is None:
            self._asked = self.propose()
        return self._asked

    def population_indices(self, generation: int, batch: int) -> Int64s:
        """Noise indices (k,) of batch number `batch` of a generation: one per member, or per antithetic pair."""
        rows, length = self.options.noise_rows(self.dimension), self.directions.length
        return sample_indices(self.seed, generation, batch, rows, len(self._table), length)

    def write(self, proposal: ProposalT, indices: Int64s, member: int, out: FloatArray) -> Sequence[float]:
        """Write the parameters of a member into `out` (d,).  Returns its payload: q numbers.

        indices: (k,) noise indices of the population that the member belongs to.  member: its number there.
        """
        options = self.options
        if options.plays_mean:
            if member == 0:
                out[:] = proposal.mean
                return (0.0,) * self.payload_size
            member -= 1
        row, is_second = divmod(member, 2) if options.antithetic else (member, 0)
        sign = -1 if is_second else 1
        if self.directions.has_products and type(self).sample is Solver.sample:  # faster than by the direction
            scale = self._scale_of(proposal)
            self.directions.sample(self._table_with(indices[row]), indices[row], proposal.mean, sign * scale, out)
            return (0.0,) * self.payload_size
        noise = self.directions.row(self._table_with(indices[row]), indices[row])
        payload: Sequence[float] | None = self.sample(proposal, noise, sign, out)
        return () if payload is None else payload  # custom solvers without a payload may return nothing

    def noise(self, index: int) -> FloatArray:
        """The noise row (d,) at an index: a view into the table, not to be written to.

        Raises ValueError where noise rows are not the directions; `sample` gets those.
        """
        if self.directions.has_products:
            raise ValueError("noise(index) is a direction with noise.kind full only; sample gets those of low rank")
        return self._table_with(index)[index : index + self.dimension]

    def sample(self, proposal: ProposalT, noise: FloatArray, sign: int, out: FloatArray) -> Sequence[float]:
        """Write the member of this noise row (d,) and sign (1 or -1) into `out` (d,).  Returns its payload."""
        scale = self._scale_of(proposal)
        np.multiply(noise, scale if sign > 0 else -scale, out=out)
        np.add(out, proposal.mean, out=out)
        return (0.0,) * self.payload_size

    def _scale_of(self, proposal: ProposalT) -> FloatArray:
        if not isinstance(proposal, Gaussian):
            raise TypeError(f"{type(self).__name__} must define write: {type(proposal).__name__} is not a Gaussian")
        return proposal.scale

    def moments(self, indices: Int64s, weights: Weights, start: int, stop: int) -> FloatArray:
        """The moments (a + c, stop - start) of the directions at these indices, over the coordinates [start, stop)."""
        return self.directions.moments(self._table_with(indices), indices, weights, start, stop)

    def tell(self, proposal: ProposalT, results: Results, moments: FloatArray) -> None:
        """Take the step.  moments: (a + c, d), the sums for the weights of `compute_weights`.

        Raises RuntimeError before `ask`, and ValueError for a wrong number of returns or a wrong shape of the moments.
        """
        if self._asked is None:
            raise RuntimeError("tell before ask: call ask first, then tell the results of its proposal")
        members = self.options.members(self.dimension)
        if len(results.returns) % members or not len(results.returns):
            raise ValueError(f"there must be {members} returns, one per member, but there are {len(results.returns)}")
        if moments.ndim != 2 or moments.shape[1] != self.dimension:
            raise ValueError(f"the moments must have shape (orders, {self.dimension}), but have {moments.shape}")
        self._asked = None
        self.update(proposal, results, moments)
        self.generation += 1

    def state(self) -> dict[str, Any]:
        """Names to arrays, copies of all that later generations depend on."""
        state = {"generation": np.int64(self.generation)} | self.directions.state()
        for name in self.state_fields:
            value = getattr(self, name)
            if hasattr(value, "state"):
                state |= {f"{name}/{key}": np.array(part) for key, part in value.state().items()}
            else:
                state[name] = np.array(value)
        return state

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state` returned, bit for bit."""
        self.start(state["mean"])
        self.directions = Directions.of_state(self.dimension, state)
        self.generation = int(state["generation"])
        for name in self.state_fields:
            value, prefix = getattr(self, name), f"{name}/"
            if hasattr(value, "restore"):
                value.restore({key[len(prefix) :]: part for key, part in state.items() if key.startswith(prefix)})
            else:
                restored = np.array(state[name])
                setattr(self, name, restored if restored.ndim else restored.item())

    @abstractmethod
    def begin(self) -> None:
        """Set the state of the first generation, except `mean` and `generation`."""

    @abstractmethod
    def propose(self) -> ProposalT:
        """The proposal of generation number `generation`.  Must not change the state."""

    def predict_mean(self) -> FloatArray:
        """Where the mean (d,) is expected to be after the coming step.  By default where it is now.

        Members that begin before the step is known are sampled around it; see `overlap`.
        """
        return self.mean

    def compute_weights(self, results: Results, proposal: ProposalT) -> Weights:
        """The weights of the moments; by default none.  A pure function of its arguments, the options and d."""
        return Weights(np.zeros((0, 0), self.dtype), np.zeros((0, 0), self.dtype))

    @abstractmethod
    def update(self, proposal: ProposalT, results: Results, moments: FloatArray) -> None:
        """Take the step, with arguments that `tell` has checked."""

    def report(self) -> dict[str, float]:
        """Numbers for the metrics: names of columns to values."""
        return {}


AnySolver = Solver[Any, Any]
