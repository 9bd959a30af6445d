"""The user's own solver: what its methods raise, return and leave behind is checked and explained in one line."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from mpies.core.errors import SolverProblem
from mpies.core.text import describe_value
from mpies.solvers.adapters.problem import RAISED, count_bad, explain_raised, is_count, kind_of
from mpies.solvers.adapters.state_check import ONLY_RANK_0, StateCheck, explain_weights
from mpies.solvers.base import Gaussian, Proposal, Results, Solver
from mpies.solvers.external import ExternalSolver
from mpies.solvers.moments import Weights
from mpies.solvers.sampling.noise import FloatArray

CHECKED = 16  # steps at the start of a process that are all checked; later those whose number is a power of two
MOST_VECTORS = 13  # of a proposal: a broadcast takes 15, and two are not the solver's
# The methods that other ranks call, on a solver that was not started.
ON_EVERY_RANK = ("compute_weights", "write", "rows", "population_indices", "moments")


class OwnSolver(Solver[Any, Any]):
    """Comes before the user's class in the method resolution order: class Checked(OwnSolver, Mine).

    Raises SolverProblem for whatever the user's methods raise and for what they return or leave of a wrong type or
    shape.  On rank 0 some steps are repeated by a copy, to find out whether the state is complete.

    own_kind: `solver.kind`, path/to/file.py:Class.  own_file: absolute path of that file.
    Private names begin with two underscores: the user's class may have attributes such as _steps.
    """

    own_kind: ClassVar[str]
    own_file: ClassVar[str]
    __steps = 0  # that this object has taken since it was started or restored
    __is_checked = True  # False for a copy that checks another solver, and while a state is restored
    __has_written = False  # whether a member was written since the last step
    __predicted: FloatArray | None = None  # what predict_mean has returned since the last step

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        with self.__explaining("__init__"):
            super().__init__(*args, **kwargs)
        if not hasattr(self, "options"):
            raise self.__problem("__init__ must call super().__init__ with all the arguments that it was given")
        with self.__explaining("payload_size and wants_behaviour"):
            payload_size, wants_behaviour = self.payload_size, self.wants_behaviour
        if not is_count(payload_size):
            raise self.__problem(f"payload_size must be a whole number, but is {describe_value(payload_size)}")
        if not isinstance(wants_behaviour, bool):
            raise self.__problem(f"wants_behaviour must be True or False, but is {describe_value(wants_behaviour)}")

    @property
    def rows(self) -> int:
        with self.__explaining("rows"):
            rows = super().rows
        if not is_count(rows):
            raise self.__problem(f"rows must be a whole number, but is {describe_value(rows)}")
        return rows

    def population_indices(self, generation: int, batch: int) -> npt.NDArray[np.int64]:
        with self.__explaining("population_indices"):
            indices = super().population_indices(generation, batch)
        count, end = self.options.noise_rows(self.dimension), len(self.table) - self.directions.length
        wanted = f"population_indices must return {count} whole numbers, int64 of shape ({count},)"
        if not isinstance(indices, np.ndarray) or indices.shape != (count,) or indices.dtype != np.int64:
            raise self.__problem(f"{wanted}, but returned {describe_value(indices)}")
        if count and not 0 <= indices.min() <= indices.max() <= end:
            raise self.__problem(f"{wanted}, from 0 to {end}, but one is {indices[(indices < 0) | (indices > end)][0]}")
        return indices

    def moments(self, indices: npt.NDArray[np.int64], weights: Weights, start: int, stop: int) -> FloatArray:
        with self.__explaining("moments"):
            moments = super().moments(indices, weights, start, stop)
        is_array = isinstance(moments, np.ndarray) and moments.ndim == 2 and moments.dtype == self.dtype
        if not is_array or moments.shape[1] != stop - start:
            wanted = f"moments must return {np.dtype(self.dtype).name} of shape (orders, {stop - start})"
            raise self.__problem(f"{wanted}, a column for each coordinate, but returned {describe_value(moments)}")
        return moments

    def start(self, mean: npt.ArrayLike) -> None:
        with self.__explaining_own("start"):
            super().start(mean)

    def ask(self) -> Proposal:
        with self.__explaining_own("ask"):
            proposal: Proposal = super().ask()
        return proposal

    def begin(self) -> None:
        with self.__explaining("begin"):
            super().begin()  # type: ignore[safe-super]  # the user's
        self.__check_state("begin")

    def propose(self) -> Proposal:
        with self.__explaining("propose"):
            proposal: Proposal = super().propose()  # type: ignore[safe-super]  # the user's
        self.__check_proposal(proposal)
        return proposal

    def predict_mean(self) -> FloatArray:
        with self.__explaining("predict_mean"):
            mean = super().predict_mean()
        self.__check_vector("predict_mean must return a mean", mean, (self.dimension,))
        self.__predicted = mean
        return mean

    def write(
        self, proposal: Proposal, indices: npt.NDArray[np.int64], member: int, out: FloatArray
    ) -> Sequence[float]:
        try:
            payload = super().write(proposal, indices, member, out)
        except RAISED as error:  # not `__explaining`, which takes as long as writing a small member
            raise self.__raised("write", error) from error
        if payload is None and not self.payload_size:
            payload = ()
        self.__check_payload(payload)
        if not self.__has_written:
            self.__has_written = True
            if self.__is_started and self.__is_check_due:
                self.__check_member(proposal, indices, member, out, payload)
        return payload

    def compute_weights(self, results: Results, proposal: Proposal) -> Weights:
        results = results.read_only()
        with self.__explaining("compute_weights"):
            weights = super().compute_weights(results, proposal)
        self.__check_weights(weights, len(results.returns))
        is_due = self.__is_started and self.__is_check_due
        if is_due and (problem := explain_weights(self, weights, results, proposal, self.__make_copy)):
            raise self.__problem(problem)
        return weights

    def tell(self, proposal: Proposal, results: Results, moments: FloatArray) -> None:
        """Take the step, and check that a copy restored from the state takes the same one.

        The check is here and not in `update`, since a step is all that `Solver.tell` does: it forgets the proposal
        before `update`, which the check compares, and counts the generation, which is part of the state, after it.
        """
        check = None
        if self._asked is not None and self.__is_check_due:
            check = StateCheck(self, proposal, results, moments, self.__make_copy, self.__predicted)
        with self.__explaining_own("tell"):
            super().tell(proposal, results.read_only(), moments)
        self.__steps, self.__has_written, self.__predicted = self.__steps + 1, False, None
        if check and (problem := check.explain()):
            raise self.__problem(problem)

    def update(self, proposal: Proposal, results: Results, moments: FloatArray) -> None:
        try:
            returned: Any = super().update(proposal, results, moments)  # type: ignore[safe-super]
        except SolverProblem:
            raise
        except RAISED as error:
            hint = ""
            has_rows = self.options.noise_rows(self.dimension)
            if has_rows and not len(moments) and super(OwnSolver, type(self)).compute_weights is Solver.compute_weights:
                hint = "; the class has no compute_weights, so the moments that update gets are empty"
            raise self.__problem(explain_raised("update", error, self.own_file) + hint) from error
        if returned is not None:
            raise self.__problem(
                f"update must change self.mean and return None, but returned {describe_value(returned)}"
            )
        self.__check_state("update")

    def state(self) -> dict[str, Any]:
        with self.__explaining("state"):
            state: Any = super().state()
        wanted = "state must return a dict of names to numbers and arrays of numbers"
        if not isinstance(state, dict):
            raise self.__problem(f"{wanted}, but returned {describe_value(state)}")
        for name, value in state.items():
            if kind_of(value) not in "biuf":
                raise self.__problem(f"{wanted}, but {name} is {describe_value(value)}")
        return state

    def restore(self, state: Mapping[str, Any]) -> None:
        was_checked, self.__is_checked = self.__is_checked, False
        with self.__explaining("restore"):
            try:
                super().restore(state)
            except KeyError as error:
                raise self.__problem(
                    f"the state has no {error}; a run that began before the solver was changed cannot continue: "
                    "choose another --out, or remove it"
                ) from error
        self.__is_checked, self.__steps = was_checked, 0

    def report(self) -> dict[str, float]:
        with self.__explaining("report"):
            numbers = super().report()
        wanted = "report must return a dict of names to numbers"
        if not isinstance(numbers, dict):
            raise self.__problem(f"{wanted}, but returned {describe_value(numbers)}")
        for name, value in numbers.items():
            if not isinstance(name, str) or not name.isprintable() or not name or set(name) & set(',"'):
                raise self.__problem(f"{wanted}, but {name!r} cannot be the name of a column")
            if not isinstance(value, int | float | np.integer | np.floating):
                raise self.__problem(f"{wanted}, but {name} is {describe_value(value)}")
        return numbers

    # -- checks ------------------------------------------------------------------------------------------------------

    @property
    def __is_started(self) -> bool:
        return "mean" in vars(self)

    @property
    def __is_check_due(self) -> bool:
        """Whether the coming step is to be checked.  Restoring an ExternalSolver takes all earlier steps again."""
        if not self.__is_checked:
            return False
        number = self.generation + 1
        is_power_of_two = number & (number - 1) == 0
        return is_power_of_two or (self.__steps < CHECKED and not isinstance(self, ExternalSolver))

    def __make_copy(self) -> "OwnSolver":
        """A solver with the same options that was not started."""
        copied = type(self)(self.options, self.dimension, self.seed, self.dtype, self.directions)
        copied.table, copied.__is_checked = self.table, False
        return copied

    def __check_member(
        self,
        proposal: Proposal,
        indices: npt.NDArray[np.int64],
        member: int,
        out: FloatArray,
        payload: Sequence[float],
    ) -> None:
        """Raise SolverProblem where a rank without the state would write another member."""
        again = np.empty_like(out)
        numbers = self.__make_copy().write(proposal, indices, member, again)
        if again.tobytes() != out.tobytes() or np.array(numbers).tobytes() != np.array(payload).tobytes():
            raise self.__problem(
                "write or sample gives two results for the same arguments; they must be pure functions of these, the "
                "options, the dimension and the noise table: put what they need into the proposal"
            )

    def __check_payload(self, payload: Any) -> None:
        wanted = f"write and sample must return {self.payload_size} numbers (payload_size in the class), but returned"
        if not isinstance(payload, tuple | list | np.ndarray) or len(payload) != self.payload_size:
            raise self.__problem(f"{wanted} {describe_value(payload)}")
        if wrong := [number for number in payload if kind_of(number) not in "biuf" or np.ndim(number)]:
            raise self.__problem(f"{wanted} {describe_value(wrong[0])} among them")

    def __check_proposal(self, proposal: Any) -> None:
        expected, wanted = type(self).Proposal, f"propose must return a {type(self).Proposal.__name__}"
        if type(proposal) is not expected:
            hint = ""
            if isinstance(proposal, Proposal):
                hint = f"; or write Proposal = {type(proposal).__name__} into the class"
            raise self.__problem(f"{wanted}, but returned {describe_value(proposal)}{hint}")
        self.__check_vector("propose must return a mean", proposal.mean, (self.dimension,))
        if isinstance(proposal, Gaussian):
            is_one = self.directions.has_products and type(self).sample is Solver.sample
            shapes = [(1,)] if is_one else [(1,), (self.dimension,)]
            why = " of one number, since the noise is of low rank" if is_one else ""
            self.__check_vector(f"propose must return a scale{why}", proposal.scale, *shapes)
        for entry in fields(proposal):
            value = getattr(proposal, entry.name)
            if entry.name == "rows":
                if value is not None:
                    self.__check_rows(value)
            elif not isinstance(value, np.ndarray) or value.ndim != 1 or value.dtype.kind not in "biuf":
                raise self.__problem(f"{wanted} of vectors of numbers, but its {entry.name} is {describe_value(value)}")
            elif not value.dtype.isnative:  # a broadcast sends the bytes as they are
                raise self.__problem(
                    f"{wanted} of vectors in the byte order of this machine, but its {entry.name} has the other one; "
                    "convert it, for instance by astype(np.float32)"
                )
        if (count := len(proposal.vectors())) > MOST_VECTORS:
            raise self.__problem(f"{wanted} of at most {MOST_VECTORS} vectors, but it has {count}; join some of them")
        self.__check_fields(proposal)

    def __check_fields(self, proposal: Proposal) -> None:
        """Raise SolverProblem where other ranks cannot make the proposal again from its vectors."""
        name, vectors = type(proposal).__name__, proposal.vectors()
        try:
            again = type(proposal)(*vectors).vectors()
            pairs = zip(again, vectors, strict=True)
            is_same = all(one is other or np.array_equal(one, other, equal_nan=True) for one, other in pairs)
        except RAISED:
            is_same = False
        if not is_same:
            raise self.__problem(
                f"other ranks make a {name} from its vectors in the order of its fields, but that fails or gives other "
                "vectors; let the constructor take and keep them so, as @dataclass(frozen=True) without kw_only does"
            )

    def __check_rows(self, rows: Any) -> None:
        """Raise SolverProblem for rows that do not fit into the shared memory of a node."""
        is_exact = isinstance(self, ExternalSolver)
        count = f"{self.rows}" if is_exact else f"at most {self.rows} (rows in the class)"
        wanted = f"propose must return {count} rows of {self.dimension} numbers"
        if not isinstance(rows, np.ndarray) or rows.ndim != 2 or rows.shape[1] != self.dimension:
            raise self.__problem(f"{wanted}, but returned {describe_value(rows)}")
        if len(rows) > self.rows or (is_exact and len(rows) < self.rows):
            raise self.__problem(f"{wanted}, but returned {len(rows)}")
        if not np.isfinite(rows).all():
            raise self.__problem(f"{wanted}, but {count_bad(rows)} are NaN or infinite")

    def __check_weights(self, weights: Any, members: int) -> None:
        if not isinstance(weights, Weights):
            raise self.__problem(
                "compute_weights must return a Weights of mpies.solvers.moments, but returned "
                + describe_value(weights)
            )
        batch = self.options.members(self.dimension)
        rows = self.options.noise_rows(self.dimension) * (members // batch)
        for name, part in vars(weights).items():
            wanted = f"compute_weights must return {name} weights (orders, {rows}), a column for each noise row"
            wanted += f" of {members} members, as {np.dtype(self.dtype).name}"
            is_array = isinstance(part, np.ndarray) and part.ndim == 2 and part.dtype == self.dtype
            if not is_array or part.shape[1] not in (rows, 0) or part.shape[1] != weights.linear.shape[1]:
                raise self.__problem(f"{wanted}, but they are {describe_value(part)}")
            if not np.isfinite(part).all():
                raise self.__problem(f"{wanted}, but {count_bad(part)} are NaN or infinite")
        if self.directions.has_products and len(weights.square):
            raise self.__problem("compute_weights must return no square weights where the noise is of low rank")

    def __check_state(self, method: str) -> None:
        """Raise SolverProblem where the method has left a state that cannot be saved or is not a number."""
        for name in self.__names_of_state():
            if not hasattr(self, name):
                raise self.__problem(f"{method} must set `{name}`, which state_fields names, but there is none")
            value = getattr(self, name)
            if hasattr(value, "state") and not hasattr(value, "restore"):
                raise self.__problem(
                    f"state_fields names `{name}`, whose class has a method state, so it needs a method restore as well"
                )
            if not hasattr(value, "state") and kind_of(value) not in "biuf":
                raise self.__problem(
                    f"state_fields names `{name}`, which must be an array, a number or an optimizer, "
                    f"but after {method} is {describe_value(value)}"
                )
        self.__check_vector(f"{method} must leave a mean", self.mean, (self.dimension,))

    def __names_of_state(self) -> tuple[str, ...]:
        with self.__explaining("state_fields"):
            names: Any = self.state_fields
        wanted = 'state_fields must be a tuple of names such as ("mean", "sigma")'
        if not isinstance(names, tuple | list) or not all(isinstance(name, str) for name in names):
            comma = "; a tuple of one name needs a comma" if isinstance(names, str) else ""
            raise self.__problem(f"{wanted}, but is {names!r}{comma}")
        if "mean" not in names:
            raise self.__problem(f'{wanted} and must have "mean" among them, but is {names!r}')
        return tuple(names)

    def __check_vector(self, wanted: str, value: Any, *shapes: tuple[int, ...]) -> None:
        """Raise SolverProblem unless the value is an array of one of the shapes, of the solver's dtype, and finite."""
        wanted += f", {np.dtype(self.dtype).name} of shape {' or '.join(map(str, shapes))}"
        if not isinstance(value, np.ndarray) or value.shape not in shapes or value.dtype != self.dtype:
            raise self.__problem(f"{wanted}, but it is {describe_value(value)}")
        if not np.isfinite(value).all():
            raise self.__problem(f"{wanted}, but {count_bad(value)} are NaN or infinite")

    # -- messages ----------------------------------------------------------------------------------------------------

    def __problem(self, text: str) -> SolverProblem:
        return SolverProblem(f"solver.kind {self.own_kind}: {text}")

    @contextlib.contextmanager
    def __explaining(self, method: str) -> Iterator[None]:
        """A context in which whatever the user's method raises becomes a SolverProblem."""
        try:
            yield
        except SolverProblem:
            raise
        except RAISED as error:
            raise self.__raised(method, error) from error

    def __explaining_own(self, method: str) -> contextlib.AbstractContextManager[None]:
        """The context of `__explaining` if the user's class defines the method.

        What Solver's own method raises tells the caller of a mistake.
        """
        is_own = getattr(super(OwnSolver, type(self)), method) is not getattr(Solver, method)
        return self.__explaining(method) if is_own else contextlib.nullcontext()

    def __raised(self, method: str, error: BaseException) -> SolverProblem:
        """The SolverProblem for what the user's method has raised."""
        if (
            method in ON_EVERY_RANK
            and not self.__is_started
            and isinstance(error, AttributeError)
            and error.obj is self
        ):
            return self.__problem(f"{method} reads `{error.name}`{ONLY_RANK_0}")
        return self.__problem(explain_raised(method, error, self.own_file))
