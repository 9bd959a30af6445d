"""Try a custom solver out on a small problem, as gymnasium's check_env does with an environment.

A run that is stopped and resumed has nothing but the solver's state, and a rank other than 0 has not even that.  So in
each generation a solver that is restored from the state must take the same step, and one that was never started must
write the same members and compute the same weights.
"""

import itertools
import sys
from typing import Any

import numpy as np

from mpies.core.arrays import FloatArray
from mpies.core.errors import SolverProblem
from mpies.solvers.base import AnySolver, Results
from mpies.solvers.custom_solver import CustomSolver, Fault, explained, find_fault, make_custom
from mpies.solvers.loop import SolverLoop
from mpies.solvers.moments import split
from mpies.solvers.options import Population
from mpies.solvers.sampling.noise import build_table

DIMENSION = 20  # parameters of the problem
GENERATIONS = 12  # of the trial
BLOCKS = 3  # that the coordinates are split into, as among ranks

# Attributes of every solver that no method of the user's computes.
_BASE = {"options", "dimension", "seed", "dtype", "directions", "_table", "_filling", "generation", "_asked"}

Arrays = dict[str, Any]  # names to arrays


def check_solver(
    solver: type[AnySolver], options: Population | None = None, dimension: int = DIMENSION, behaviour_size: int = 3
) -> None:
    """Raise SolverProblem, in one line, for what is wrong with a solver class.

    options: its keys; default `solver.Options()`.  dimension: parameters that it must work for.
    behaviour_size: numbers that it gets of each member's behaviour, if it wants any.
    """
    if not issubclass(solver, CustomSolver):
        if fault := find_fault(solver):
            raise SolverProblem(f"{solver.__name__}: {fault}")
        file = getattr(sys.modules.get(solver.__module__), "__file__", None)  # None: it was typed into an interpreter
        solver = make_custom(solver, solver.__name__, file or "", solver.__name__)
    try_out, small = explained(_try_out, solver, "check_solver"), min(dimension, DIMENSION)
    try:
        try_out(solver, options, small, behaviour_size)
    except SolverProblem:
        if small == dimension:
            raise
        try_out(solver, options, dimension, behaviour_size)  # it may be made for this number of parameters alone


def check_if_custom(solver: AnySolver, behaviour_size: int) -> None:
    """`check_solver` for the solver of a config, if it is a custom one.  behaviour_size: of its task."""
    if isinstance(solver, CustomSolver):
        check_solver(type(solver), solver.options, solver.dimension, behaviour_size)


@np.errstate(all="ignore")  # as in training
def _try_out(cls: type[CustomSolver], options: Population | None, dimension: int, behaviour_size: int) -> None:
    """Run a solver on the sphere function, beside solvers that stand for other ranks and for runs that go on."""
    if not isinstance(options, cls.Options):
        options = cls.Options.model_validate(options.model_dump(exclude={"kind"}) if options else {})
    table, size = build_table(max(1 << 14, 4 * dimension)), behaviour_size if cls.wants_behaviour else 0

    def make() -> SolverLoop:
        """The loop of a solver that was not started, as ranks other than 0 have it."""
        return SolverLoop(cls(options, dimension), table)

    loop = make()
    loop.solver.start(np.linspace(-1, 1, dimension, dtype=np.float32))
    for _ in range(GENERATIONS):
        state = loop.solver.state()
        step = _take_step(loop, size, make().solver)
        _check_restored(make(), state, step, size, set(vars(loop.solver)))
        loop.solver.report()


def _take_step(loop: SolverLoop, behaviour_size: int, other: AnySolver | None = None) -> Arrays:
    """Run a generation.  Returns its members and the state after it.

    other: a solver that was not started, which must give the same.
    """
    solver, before = loop.solver, loop.solver.state()
    members = loop.ask(most=1)
    if changed := _differing(before, solver.state()):
        raise Fault(f"propose changes {changed}, which the state has; change it in update, and not in propose")
    expected = np.array(solver.predict_mean() if solver.options.overlaps else ())
    returns = -np.sum(np.square(members - 1, dtype=np.float64), axis=1)
    behaviours = np.resize(members.T, (behaviour_size, len(members))).T
    if other:
        _check_other_rank(loop, other, members, Results.of(returns, loop.payload, behaviours))
    loop.tell(returns, behaviours)
    return solver.state() | {"members": members, "expected": expected}


def _check_other_rank(loop: SolverLoop, other: AnySolver, members: FloatArray, results: Results) -> None:
    """Raise Fault where a solver that was not started gives other members, weights or moments."""
    solver, proposal, indices = loop.solver, loop.proposal, loop.indices
    received = type(proposal)(*proposal.vectors(), rows=proposal.rows)  # other ranks get the vectors in this order
    weights = solver.compute_weights(results, proposal)
    try:
        for number in {0, 1 % len(members), len(members) - 1}:
            member = np.empty_like(members[number])
            payload = other.write(received, indices, number, member)
            is_same = np.array_equal(payload, results.payload[number], equal_nan=True)
            if not is_same or member.tobytes() != members[number].tobytes():
                raise Fault("write or sample gives another result on another rank")
        if _differing(vars(other.compute_weights(results, received)), vars(weights)):
            raise Fault("compute_weights gives another result on another rank")
    except (SolverProblem, Fault) as problem:
        has = "other ranks have its arguments, the options, the dimension and the noise table alone"
        raise type(problem)(f"{problem}; {has}: put what else it needs into the proposal") from problem.__cause__
    indices, bounds = indices[: weights.linear.shape[1]], split(other.dimension, BLOCKS)
    blocks = [other.moments(indices, weights, *block) for block in itertools.pairwise(bounds)]
    if np.hstack(blocks).tobytes() != other.moments(indices, weights, 0, other.dimension).tobytes():
        raise Fault("moments gives other numbers for blocks of coordinates than for all, but every rank sums a block")


def _check_restored(loop: SolverLoop, state: Arrays, step: Arrays, behaviour_size: int, attributes: set[str]) -> None:
    """Raise Fault where a solver that was not started, restored from a state, does not take this step.

    attributes: names of those of the solver that took it.
    """
    loop.solver.restore(state)
    if changed := _differing(state, loop.solver.state()):
        raise Fault(f"{changed} does not come back from a checkpoint as it was; keep it as a Python number or an array")
    try:
        if not _differing(step, _take_step(loop, behaviour_size)):
            return
    except (SolverProblem, RuntimeError):  # it may lack what is not in the state, even the mean
        pass
    others = ", ".join(f"`{name}`" for name in sorted(attributes - _BASE - set(loop.solver.state_fields)))
    missing = f"add what the step needs to state_fields, which lacks {others}; " if others else ""
    raise Fault(
        f"a solver that is restored from its state takes another step; {missing}take random numbers from "
        "mpies.core.streams.stream(self.seed, SOLVER, self.generation), and read no clock and no global"
    )


def _differing(one: Arrays, other: Arrays) -> str:
    """The names, for messages, of what is not the same array of numbers, to the bit, in both; '' if all is."""

    def bits_of(value: Any) -> tuple[Any, ...]:
        array = np.asarray(value)
        return array.dtype, array.shape, array.tobytes()

    return ", ".join(f"`{name}`" for name in one | other if bits_of(one.get(name)) != bits_of(other.get(name)))
