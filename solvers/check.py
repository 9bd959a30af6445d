"""Try a custom solver out on a small problem, as gymnasium's check_env does with an environment.

    >>> from mpies.solvers import check_solver
    >>> check_solver(MySolver)

A run that is stopped and resumed has nothing but the solver's state, and a rank other than 0 has not even that.  So a
solver that is restored from the state must take the same steps, and one that was never started must write the same
members and compute the same weights.
"""

import copy
import inspect
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from pydantic import ValidationError

from mpies.core.errors import SolverProblem
from mpies.core.text import describe_value, one_line
from mpies.solvers.base import Proposal, Results, Solver
from mpies.solvers.custom_solver import CustomSolver, find_missing, make_custom
from mpies.solvers.moments import Weights, split
from mpies.solvers.options import Population
from mpies.solvers.sampling.noise import FloatArray, build_table

DIMENSION = 20  # parameters of the problem
GENERATIONS, FEW = 16, 4  # of the trial; few where populations are large
LARGE = 1_000_000  # parameters of all members of a population
RESTORED = (0, 1, 2, 4, 8)  # generations from whose states another solver goes on
BLOCKS = 3  # that the coordinates are split into, as among ranks

STREAM = "take random numbers from mpies.core.streams.stream(self.seed, SOLVER, self.generation)"
ONLY_ARGUMENTS = (
    "on ranks that were not started it has its arguments, the options, the dimension and the noise table alone: put "
    "what else it needs into the proposal"
)

# Attributes of every solver that no method of the user's computes.
_BASE = {"options", "dimension", "seed", "dtype", "directions", "table", "generation", "_asked"}

AnySolver = Solver[Any, Any]
Bits = dict[str, tuple[Any, ...]]  # names to (dtype, shape, bytes)


def check_solver(
    solver: type[AnySolver],
    options: Population | None = None,
    dimension: int = DIMENSION,
    behaviour_size: int = 3,
) -> None:
    """Raise SolverProblem, in one line, for what is wrong with a solver class.

    options: its keys; default `solver.Options()`.  dimension: parameters that it must work for.
    behaviour_size: numbers that it gets of each member's behaviour, if it wants any.
    """
    cls = solver if issubclass(solver, CustomSolver) else _make_custom(solver)
    if not isinstance(options, cls.Options):
        try:
            options = cls.Options.model_validate(options.model_dump(exclude={"kind"}) if options else {})
        except ValidationError as error:
            reason = one_line(error.errors()[0]["msg"])
            raise SolverProblem(f"{cls.custom_name}: its Options are refused ({reason}); give options=") from None
    small = min(dimension, DIMENSION)
    try:
        _Trial(cls, options, small, behaviour_size).run()
    except SolverProblem:
        if small == dimension:
            raise
        _Trial(cls, options, dimension, behaviour_size).run()  # it may be made for this number of parameters alone


def check_if_custom(solver: AnySolver, behaviour_size: int) -> None:
    """`check_solver` for the solver of a config, if it is a custom one.  behaviour_size: of its task."""
    if isinstance(solver, CustomSolver):
        check_solver(type(solver), solver.options, solver.dimension, behaviour_size)


def _make_custom(solver: type[AnySolver]) -> type[CustomSolver]:
    name = solver.__name__
    if missing := find_missing(solver):
        raise SolverProblem(f"{name}: it lacks {missing}")
    try:
        file = inspect.getfile(solver)
    except (OSError, TypeError):  # it was typed into an interpreter
        file = ""
    return make_custom(solver, name, file, name)


class _Trial:
    """A solver on the sphere function, beside solvers that stand for other ranks and for runs that go on.

    Raises SolverProblem where the solver refuses so many parameters.
    """

    def __init__(self, cls: type[CustomSolver], options: Population, dimension: int, behaviour_size: int) -> None:
        self.cls, self.options, self.dimension, self.behaviour_size = cls, options, dimension, behaviour_size
        if reason := options.refusal(dimension):
            raise SolverProblem(reason)
        self.table = build_table(max(1 << 14, 4 * dimension), dtype=np.float32)
        self.members = options.members(dimension)
        self.generations = GENERATIONS if self.members * dimension <= LARGE else FEW

    def problem(self, text: str) -> SolverProblem:
        return SolverProblem(f"{self.cls.custom_name}: {text}")

    def make(self) -> AnySolver:
        """A solver that was not started, as ranks other than 0 have it."""
        solver = self.cls(self.options, self.dimension)
        solver.table = self.table
        return solver

    def restored(self, state: Mapping[str, Any]) -> AnySolver:
        """A solver that goes on from a state."""
        solver = self.make()
        solver.restore(copy.deepcopy(dict(state)))
        return solver

    @np.errstate(all="ignore")  # as in training
    def run(self) -> None:
        """Raise SolverProblem for what is wrong."""
        self.check_options()
        solver = self.make()
        solver.start(np.linspace(-1, 1, self.dimension, dtype=np.float32))
        self.check_state(solver)
        before: dict[int, dict[str, Any]] = {}  # a generation's state
        steps: list[Bits] = []
        rows: FloatArray | None = None
        for generation in range(self.generations):
            if generation in RESTORED:
                before[generation] = {name: np.array(value) for name, value in solver.state().items()}
            self.check_propose(solver, is_first=not generation)
            bits, rows = self.take_step(solver, rows, is_first=True)
            steps.append(bits)
            solver.report()
        others = sorted(vars(solver).keys() - _BASE - set(solver.state_fields))
        for start, state in before.items():
            self.check_restored(state, steps[start : max(1, 2 * start)], others)

    def check_options(self) -> None:
        """Call what only other parts of mpies call."""
        groups = self.options.groups(self.dimension)
        self.options.is_complete(self.members, self.members)
        self.options.memory(self.dimension)
        if np.shape(groups) != (self.members,):
            raise self.problem(
                f"groups must return whole numbers of shape ({self.members},), one for each member, but their shape is "
                f"{np.shape(groups)}"
            )

    def check_state(self, solver: AnySolver) -> None:
        """Raise SolverProblem where the state names what is not there, or cannot be saved."""
        names: Any = solver.state_fields
        wanted = 'state_fields must be a tuple of names such as ("mean", "sigma"), with "mean" among them'
        if not isinstance(names, tuple | list) or "mean" not in names:
            comma = "; a tuple of one name needs a comma" if isinstance(names, str) else ""
            raise self.problem(f"{wanted}, but is {names!r}{comma}")
        for name in names:
            if not hasattr(solver, name):
                raise self.problem(f"begin must set `{name}`, which state_fields names, but there is none")
        for name, value in solver.state().items():
            if np.asarray(value).dtype.kind not in "biuf":
                raise self.problem(
                    f"`{name}` of the state must be a number, an array of numbers or an optimizer, but is "
                    f"{describe_value(value)}"
                )

    def check_propose(self, solver: AnySolver, is_first: bool) -> None:
        """is_first: whether this is the first proposal after `begin` or `restore`."""
        before = _bits_of(solver.state())
        proposal = solver.ask()
        if changed := [name for name, bits in _bits_of(solver.state()).items() if bits != before.get(name)]:
            raise self.problem(
                f"propose changes {_quote(changed)}, which the state has; change it in update, and not in propose"
            )
        if solver.rows and is_first and proposal.rows is None:
            raise self.problem(
                "propose returns no rows after begin or restore, but a run that goes on has none of those that were "
                "sent before; send them in the first proposal after each of these"
            )
        vectors, name = proposal.vectors(), type(proposal).__name__
        try:
            again = type(proposal)(*vectors).vectors()
            is_same = all(np.array_equal(*pair, equal_nan=True) for pair in zip(again, vectors, strict=True))
        except Exception:
            is_same = False
        if not is_same:
            raise self.problem(
                f"other ranks make a {name} from its vectors in the order of its fields, but that fails or gives other "
                "vectors; let the constructor take and keep them so, as @dataclass(frozen=True) without kw_only does"
            )

    def take_step(
        self, solver: AnySolver, rows: FloatArray | None, is_first: bool = False
    ) -> tuple[Bits, FloatArray | None]:
        """Run one generation.  rows: those of the last proposal that had any.

        Returns the bits of what the solver has asked for and of the state after it, and the rows.
        is_first: whether what other ranks compute is checked.
        """
        proposal = solver.ask()
        vectors = {f"proposal.{number}": vector for number, vector in enumerate(proposal.vectors())}
        rows = proposal.rows if proposal.rows is not None else rows
        proposal = replace(proposal, rows=rows)
        indices = solver.population_indices(solver.generation, 0)
        members = np.empty((self.members, self.dimension), solver.dtype)
        payload = [solver.write(proposal, indices, number, members[number]) for number in range(self.members)]
        returns = -np.sum(np.square(members - 1, dtype=np.float64), axis=1)
        size = self.behaviour_size if solver.wants_behaviour else 0
        behaviours = np.resize(members.T, (size, self.members)).T
        results = Results.of(returns, np.array(payload, np.float64), behaviours)
        weights = solver.compute_weights(results, proposal)
        if is_first:
            self.check_other_rank(solver, proposal, indices, members, results, weights)
        indices = indices[: weights.linear.shape[1]]
        moments = solver.moments(indices, weights, 0, self.dimension)
        if is_first:
            bounds = split(self.dimension, BLOCKS)
            blocks = [solver.moments(indices, weights, *block) for block in itertools.pairwise(bounds)]
            if np.concatenate(blocks, axis=1).tobytes() != moments.tobytes():
                raise self.problem(
                    "moments gives other numbers for blocks of coordinates than for all; each must depend on the same "
                    "coordinate of the directions alone, since every rank sums a block"
                )
        expected = {"expected": solver.predict_mean()} if self.options.overlaps else {}
        bits = _bits_of(vectors | expected)
        try:
            solver.tell(proposal, results, moments)
        except SolverProblem as problem:
            if self.options.noise_rows(self.dimension) and self.cls.compute_weights is Solver.compute_weights:
                hint = "; the class has no compute_weights, so the moments that update gets are empty"
                raise SolverProblem(f"{problem}{hint}") from problem.__cause__
            raise
        return bits | _bits_of(solver.state()), rows

    def check_other_rank(
        self,
        solver: AnySolver,
        proposal: Proposal,
        indices: np.ndarray[Any, Any],
        members: FloatArray,
        results: Results,
        weights: Weights,
    ) -> None:
        """Raise SolverProblem where a solver that was not started gives other members or weights."""
        other, member, name = self.make(), np.empty_like(members[0]), "write or sample"
        try:
            is_same = True
            for number in {0, 1 % self.members, self.members - 1}:
                payload = np.array(other.write(proposal, indices, number, member), np.float64)
                is_same &= member.tobytes() == members[number].tobytes()
                is_same &= np.array_equal(payload, results.payload[number], equal_nan=True)
            if is_same:
                name = "compute_weights"
                is_same = _bits_of(vars(other.compute_weights(results, proposal))) == _bits_of(vars(weights))
        except SolverProblem as problem:
            raise SolverProblem(f"{problem}; {ONLY_ARGUMENTS}") from problem.__cause__
        if not is_same:
            raise self.problem(f"{name} gives another result on another rank; {ONLY_ARGUMENTS}")

    def check_restored(self, state: Mapping[str, Any], steps: Sequence[Bits], others: Sequence[str]) -> None:
        """Raise SolverProblem where a solver that is restored from a state takes other steps than these.

        others: names of attributes that are not in the state.
        """
        solver = self.restored(state)
        before, now = _bits_of(state), _bits_of(solver.state())
        for name, (kind, shape, _) in before.items():
            if now.get(name) != before[name]:
                restored = now.get(name, ("absent", ()))
                raise self.problem(
                    f"`{name}` does not come back from a checkpoint as it was ({kind} of shape {shape} before, "
                    f"{restored[0]} of shape {restored[1]} after); keep it as a Python number or as an array"
                )
        self.check_propose(solver, is_first=True)
        solver, rows = self.restored(state), None
        try:
            for bits in steps:
                step, rows = self.take_step(solver, rows)
                if step != bits:
                    break
            else:
                return
        except SolverProblem:  # it may lack what is not in the state
            pass
        missing = f"add what the step needs to state_fields, which lacks {_quote(others)}; " if others else ""
        raise self.problem(
            f"a solver that is restored from its state takes another step; {missing}{STREAM}, and read no clock and no "
            "global"
        )


def _quote(names: Iterable[str]) -> str:
    """Names as a text shows them: `a`, `b` and `c`."""
    *first, last = (f"`{name}`" for name in names)
    return f"{', '.join(first)} and {last}" if first else last


def _bits_of(arrays: Mapping[str, Any]) -> Bits:
    """What is equal for the same bits alone."""
    parts = {name: np.asarray(value) for name, value in arrays.items()}
    return {name: (part.dtype.name, part.shape, part.tobytes()) for name, part in parts.items()}
