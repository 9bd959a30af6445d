"""Find out, by doing, whether a solver's state is complete and whether its weights need no state.

A run that is stopped and resumed has nothing but the state, and a rank other than 0 has not even that.  So a copy of
the solver that is restored from the state must take the same step, and a copy that was never started must compute the
same weights.  Where they do not, the attributes that make the difference are found by leaving one out at a time.
"""

import copy
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from mpies.core.errors import SolverProblem
from mpies.solvers.base import Proposal, Results, Solver
from mpies.solvers.moments import Weights
from mpies.solvers.sampling.noise import FloatArray

# Attributes of every solver that no user's method computes.
OURS = {"options", "dimension", "seed", "dtype", "directions", "table", "generation", "_asked"}
OURS |= {f"_OwnSolver__{name}" for name in ("steps", "is_checked", "has_written", "predicted")}

Bits = dict[str, tuple[Any, ...]]  # names to (dtype, shape, hash): equal only for the same bits
AnySolver = Solver[Any, Any]


class StateCheck:
    """Compares a step of a solver with that of a copy that is restored from its state.

    >>> check = StateCheck(solver, proposal, results, moments, make_copy)
    >>> solver.tell(proposal, results, moments)
    >>> problem = check.explain()

    make_copy: returns a solver with the same options that was not started.
    predicted: (d,) what predict_mean has returned for the coming step; None where nobody asked.
    """

    def __init__(
        self,
        solver: AnySolver,
        proposal: Proposal,
        results: Results,
        moments: FloatArray,
        make_copy: Callable[[], AnySolver],
        predicted: FloatArray | None = None,
    ) -> None:
        self.solver, self.make_copy = solver, make_copy
        self.state = {name: np.array(value) for name, value in solver.state().items()}
        self.asked = _bits_of_proposal(solver.ask())  # what it asked for in this state
        self.predicted = None if predicted is None else _bits_of({"mean": predicted})
        self.told = copy.deepcopy((proposal, results, moments))
        hidden = {name: value for name, value in vars(solver).items() if name not in {*OURS, *solver.state_fields}}
        self.hidden = _copy_attributes(hidden)

    def explain(self) -> str:
        """Why the copy's step differs from the one that the solver has taken meanwhile, in one sentence; '' if not."""
        copied = self.make_copy()
        try:
            copied.restore(copy.deepcopy(self.state))
        except SolverProblem as problem:
            return f"its state cannot be restored: {problem}"
        before, restored = _bits_of(self.state), _bits_of(copied.state())
        for name, (kind, shape, _) in before.items():
            if restored.get(name) != before[name]:
                now = restored.get(name, ("absent", ()))
                return (
                    f"`{name}` does not come back from a checkpoint as it was ({kind} of shape {shape} before, "
                    f"{now[0]} of shape {now[1]} after); keep it as a Python number or as an array"
                )
        if self.solver.rows and copied.ask().rows is None:
            return (
                "propose returns no rows after begin or restore, but a run that goes on has none of those that were "
                "sent before; send them in the first proposal after each of these"
            )
        after, names = _bits_of(self.solver.state()), list(self.hidden)

        def is_same(given: Sequence[str]) -> bool:
            return self._repeat(given, after)

        if is_same([]):
            return ""
        if not is_same(names):
            if changed := self._changed_by_propose():
                return f"propose changes {quote(changed)}, which the state has; change it in update, and not in propose"
            return (
                "the same step taken twice from the same state gives two results; take random numbers from "
                "mpies.core.streams.stream(self.seed, SOLVER, self.generation), and read no clock and no global"
            )
        what = "the step or predict_mean" if self.predicted else "the step"
        return _describe_hidden({name: self.hidden[name] for name in needed(names, is_same)}, what)

    def _changed_by_propose(self) -> list[str]:
        """The names in the state that change when a copy is asked."""
        copied = self._make_restored(self.hidden)
        before = _bits_of(copied.state())
        copied.ask()
        return [name for name, bits in _bits_of(copied.state()).items() if bits != before.get(name)]

    def _make_restored(self, given: Iterable[str]) -> AnySolver:
        """A copy of the solver before the step, which has the state and the attributes `given`."""
        copied = self.make_copy()
        copied.restore(copy.deepcopy(self.state))
        vars(copied).update(copy.deepcopy({name: self.hidden[name] for name in given}))
        return copied

    def _repeat(self, given: Sequence[str], after: Bits) -> bool:
        """Whether a copy takes the same step when it has the state and the attributes `given`."""
        copied = self._make_restored(given)
        proposal, results, moments = copy.deepcopy(self.told)
        try:
            asked = _bits_of_proposal(copied.ask())
            if any(asked[name] != self.asked[name] for name in asked.keys() & self.asked.keys()):
                return False
            if self.predicted and _bits_of({"mean": copied.predict_mean()}) != self.predicted:
                return False
            copied.compute_weights(results, proposal)  # it may leave something for the step
            copied.tell(proposal, results, moments)
        except SolverProblem:
            return False
        return _bits_of(copied.state()) == after


def explain_weights(
    solver: AnySolver, weights: Weights, results: Results, proposal: Proposal, make_copy: Callable[[], AnySolver]
) -> str:
    """Why a solver that was not started computes other weights than `weights`, in one sentence; '' if it does not."""
    expected = _bits_of(vars(weights))

    def is_same(given: Sequence[str]) -> bool:
        copied = make_copy()
        vars(copied).update({name: value for name, value in vars(solver).items() if name in given})
        try:
            return _bits_of(vars(copied.compute_weights(results, proposal))) == expected
        except SolverProblem:
            return False

    if is_same([]):
        return ""
    names = [name for name in vars(solver) if name not in OURS - {"generation"}]
    if not is_same(names):
        return (
            "compute_weights gives two results for the same arguments; it must be a pure function of them, "
            "the options and the dimension"
        )
    return f"compute_weights reads {quote(needed(names, is_same))}{ONLY_RANK_0}"


# Ends the line that names what compute_weights reads.
ONLY_RANK_0 = ", which rank 0 alone has; put what it needs into the proposal, which every rank gets"


def needed(names: Sequence[str], is_same: Callable[[Sequence[str]], bool]) -> list[str]:
    """Those of the names without which alone the result is not the same; all where each can be spared."""
    return [name for name in names if not is_same([other for other in names if other != name])] or list(names)


def quote(names: Iterable[str]) -> str:
    """Names as a text shows them: `a`, `b` and `c`."""
    *first, last = (f"`{name}`" for name in names)
    return f"{', '.join(first)} and {last}" if first else last


def _describe_hidden(hidden: Mapping[str, Any], what: str) -> str:
    """What to do about attributes that are not in the state.  what: they change."""
    one = len(hidden) == 1
    named = f"attribute{'' if one else 's'} {quote(hidden)} change{'s' if one else ''} {what} but "
    if any(isinstance(value, np.random.Generator | np.random.RandomState) for value in hidden.values()):
        return (
            f"{named}cannot be saved; take random numbers from "
            "mpies.core.streams.stream(self.seed, SOLVER, self.generation)"
        )
    named += f"{'is' if one else 'are'} not in state_fields; add {'it' if one else 'them'}"
    if all(_is_savable(value) for value in hidden.values()):
        return named
    return f"{named}, as a number, an array or an object with the methods state and restore"


def _is_savable(value: Any) -> bool:
    return hasattr(value, "state") or isinstance(value, bool | int | float | np.ndarray | np.generic)


def _bits_of(arrays: Mapping[str, Any]) -> Bits:
    bits = {}
    for name, value in arrays.items():
        array = np.asarray(value)
        content = hashlib.sha256(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        bits[name] = (array.dtype.name, array.shape, content.digest())
    return bits


def _bits_of_proposal(proposal: Proposal) -> Bits:
    """The bits of all vectors, and of the rows if there are any; rows that are still valid need not be sent again."""
    return _bits_of({name: value for name, value in vars(proposal).items() if value is not None})


def _copy_attributes(values: Mapping[str, Any]) -> dict[str, Any]:
    """Copies of attributes; what cannot be copied is left out."""
    try:
        return copy.deepcopy(dict(values))
    except Exception:  # a user's object may raise anything
        copies = {}
        for name, value in values.items():
            try:
                copies[name] = copy.deepcopy(value)
            except Exception:
                continue
        return copies
