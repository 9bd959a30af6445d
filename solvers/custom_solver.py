"""A custom solver: what its methods raise, or return of a wrong type or shape, becomes one line that says so.

Its methods stay what they are; only those that the user's classes define are called through `_explain`.  What cannot be
seen from one call, such as an incomplete state, is found by mpies.solvers.check before a run begins.
"""

import functools
import inspect
import traceback
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import ModelWrapValidatorHandler, ValidationError, model_validator

from mpies.core.errors import SolverProblem
from mpies.core.text import describe_error, describe_value
from mpies.solvers.base import Gaussian, Proposal, Solver
from mpies.solvers.external import ExternalSolver
from mpies.solvers.moments import Weights
from mpies.solvers.options import Population, tagged

MOST_VECTORS = 13  # of a proposal: a broadcast takes 15, and two are not the solver's

# What a user's code may raise and a message explains; KeyboardInterrupt is the user's wish to end.
RAISED = (Exception, SystemExit, GeneratorExit)


class CustomSolver(Solver[Any, Any]):
    """Comes before the user's class in the method resolution order of what `make_custom` returns.

    custom_name: how messages call the solver.  custom_file: absolute path of its file.
    """

    custom_name: ClassVar[str]
    custom_file: ClassVar[str]


def make_custom(solver: type[Solver[Any, Any]], name: str, file: str, kind: str) -> type[CustomSolver]:
    """A subclass of the user's class that raises SolverProblem for what its methods raise and return wrongly.

    Its Options accept this `kind` alone.  name: how messages call it.  file: absolute path of its file.
    """
    namespace: dict[str, Any] = {"custom_name": name, "custom_file": file}
    namespace["Options"] = _custom_options(solver.Options, name, file, kind)
    for method, check in _CHECKS.items():
        function = inspect.getattr_static(solver, method)
        if method in _ALWAYS or function is not inspect.getattr_static(Solver, method):
            namespace[method] = _explain(function, method, check, name, file)
    return type(solver.__name__, (solver, CustomSolver), namespace)


def _explain(function: Any, called: str, check: Callable[[Any, Any], Any], name: str, file: str) -> Any:
    """A method or property of the user's whose results and exceptions are explained; a constant as it is.

    called: how messages call it.  check: of the object and of what was returned; returns that, or raises _Wrong.
    """
    if isinstance(function, property) and function.fget:
        return property(_explain(function.fget, called, check, name, file))
    if not inspect.isfunction(function):
        return function

    @functools.wraps(function)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            value = function(self, *args, **kwargs)
        except SolverProblem:
            raise
        except RAISED as error:
            raise SolverProblem(f"{name}: {_explain_raised(called, error, file)}") from error
        try:
            return check(self, value)
        except _Wrong as error:
            raise SolverProblem(f"{name}: {error}") from None

    return call


class _Wrong(Exception):
    """What a method has returned or left, and what it should have."""


def _explain_raised(method: str, error: BaseException, file: str) -> str:
    """What a method raised, on one line, and where."""
    frames = traceback.extract_tb(error.__traceback__)
    frame = next((frame for frame in reversed(frames) if frame.filename == file), frames[-1])
    text, hint = describe_error(error), ""
    if method == "restore" and isinstance(error, KeyError):
        return (
            f"the state has no {text.removeprefix('KeyError: ')}; a run that began before the solver was changed "
            "cannot continue: choose another --out, or remove it"
        )
    if text.endswith(" is read-only"):
        hint = "; change a copy of the results"
    return f"{method} raised {text} ({Path(frame.filename).name}, line {frame.lineno}){hint}"


# -- what the methods return -------------------------------------------------------------------------------------------


def _as_it_is(solver: Solver[Any, Any], value: Any) -> Any:
    return value


def _check_made(solver: CustomSolver, nothing: None) -> None:
    if not hasattr(solver, "options"):
        raise _Wrong("__init__ must call super().__init__ with all the arguments that it was given")
    try:
        payload_size, wants_behaviour = solver.payload_size, solver.wants_behaviour
    except RAISED as error:
        raise _Wrong(_explain_raised("payload_size and wants_behaviour", error, solver.custom_file)) from error
    if not _is_count(payload_size):
        raise _Wrong(f"payload_size must be a whole number, but is {describe_value(payload_size)}")
    if not isinstance(wants_behaviour, bool):
        raise _Wrong(f"wants_behaviour must be True or False, but is {describe_value(wants_behaviour)}")
    _check_rows(solver, solver.rows)


def _check_rows(solver: Solver[Any, Any], rows: Any) -> Any:
    if not _is_count(rows):
        raise _Wrong(f"rows must be a whole number, but is {describe_value(rows)}")
    return rows


def _check_begun(solver: Solver[Any, Any], nothing: Any) -> None:
    _check_state(solver, "begin")


def _check_updated(solver: Solver[Any, Any], returned: Any) -> None:
    if returned is not None:
        raise _Wrong(f"update must change self.mean and return None, but returned {describe_value(returned)}")
    _check_state(solver, "update")


def _check_state(solver: Solver[Any, Any], method: str) -> None:
    """Raise _Wrong where the method has left a state that cannot be saved, or a mean that is no number."""
    names: Any = solver.state_fields
    wanted = 'state_fields must be a tuple of names such as ("mean", "sigma")'
    if not isinstance(names, tuple | list) or not all(isinstance(name, str) for name in names):
        comma = "; a tuple of one name needs a comma" if isinstance(names, str) else ""
        raise _Wrong(f"{wanted}, but is {names!r}{comma}")
    if "mean" not in names:
        raise _Wrong(f'{wanted} and must have "mean" among them, but is {names!r}')
    for name in names:
        if not hasattr(solver, name):
            raise _Wrong(f"{method} must set `{name}`, which state_fields names, but there is none")
        value = getattr(solver, name)
        if hasattr(value, "state") and not hasattr(value, "restore"):
            raise _Wrong(
                f"state_fields names `{name}`, whose class has a method state, so it needs a method restore as well"
            )
        if not hasattr(value, "state") and not _is_numeric(value):
            raise _Wrong(
                f"state_fields names `{name}`, which must be an array, a number or an optimizer, "
                f"but after {method} is {describe_value(value)}"
            )
    _check_vector(solver, f"{method} must leave a mean", solver.mean, (solver.dimension,))


def _check_proposal(solver: Solver[Any, Any], proposal: Any) -> Proposal:
    expected = type(solver).Proposal
    wanted = f"propose must return a {expected.__name__}"
    if type(proposal) is not expected:
        hint = ""
        if isinstance(proposal, Proposal):
            hint = f"; or write Proposal = {type(proposal).__name__} into the class"
        raise _Wrong(f"{wanted}, but returned {describe_value(proposal)}{hint}")
    _check_vector(solver, "propose must return a mean", proposal.mean, (solver.dimension,))
    if isinstance(proposal, Gaussian):
        is_one = solver.directions.has_products and type(solver).sample is Solver.sample
        shapes = [(1,)] if is_one else [(1,), (solver.dimension,)]
        why = " of one number, since the noise is of low rank" if is_one else ""
        _check_vector(solver, f"propose must return a scale{why}", proposal.scale, *shapes)
    for entry in fields(proposal):
        value = getattr(proposal, entry.name)
        if entry.name == "rows":
            if value is not None:
                _check_candidates(solver, value)
        elif not isinstance(value, np.ndarray) or value.ndim != 1 or value.dtype.kind not in "biuf":
            raise _Wrong(f"{wanted} of vectors of numbers, but its {entry.name} is {describe_value(value)}")
        elif not value.dtype.isnative:  # a broadcast sends the bytes as they are
            raise _Wrong(
                f"{wanted} of vectors in the byte order of this machine, but its {entry.name} has the other one; "
                "convert it, for instance by astype(np.float32)"
            )
    if (count := len(proposal.vectors())) > MOST_VECTORS:
        raise _Wrong(f"{wanted} of at most {MOST_VECTORS} vectors, but it has {count}; join some of them")
    return proposal


def _check_candidates(solver: Solver[Any, Any], rows: Any) -> None:
    """Raise _Wrong for rows that do not fit into the shared memory of a node."""
    is_exact = isinstance(solver, ExternalSolver)
    count = f"{solver.rows}" if is_exact else f"at most {solver.rows} (rows in the class)"
    wanted = f"propose must return {count} rows of {solver.dimension} numbers"
    if not isinstance(rows, np.ndarray) or rows.ndim != 2 or rows.shape[1] != solver.dimension:
        raise _Wrong(f"{wanted}, but returned {describe_value(rows)}")
    if len(rows) > solver.rows or (is_exact and len(rows) < solver.rows):
        raise _Wrong(f"{wanted}, but returned {len(rows)}")
    if not np.isfinite(rows).all():
        raise _Wrong(f"{wanted}, but {_count_bad(rows)} are NaN or infinite")


def _check_predicted(solver: Solver[Any, Any], mean: Any) -> Any:
    _check_vector(solver, "predict_mean must return a mean", mean, (solver.dimension,))
    return mean


def _check_weights(solver: Solver[Any, Any], weights: Any) -> Weights:
    if not isinstance(weights, Weights):
        raise _Wrong(
            f"compute_weights must return a Weights of mpies.solvers.moments, but returned {describe_value(weights)}"
        )
    rows = solver.options.noise_rows(solver.dimension)
    for name, part in vars(weights).items():
        wanted = f"compute_weights must return {name} weights (orders, rows), a column for each noise row"
        wanted += f", {rows} for each population, as {np.dtype(solver.dtype).name}"
        if not isinstance(part, np.ndarray) or part.ndim != 2 or part.dtype != solver.dtype:
            raise _Wrong(f"{wanted}, but they are {describe_value(part)}")
        if part.shape[1] != weights.linear.shape[1] or (part.shape[1] % rows if rows else part.shape[1]):
            raise _Wrong(f"{wanted}, but they are {describe_value(part)}")
        if not np.isfinite(part).all():
            raise _Wrong(f"{wanted}, but {_count_bad(part)} are NaN or infinite")
    if solver.directions.has_products and len(weights.square):
        raise _Wrong("compute_weights must return no square weights where the noise is of low rank")
    return weights


def _check_payload(solver: Solver[Any, Any], payload: Any) -> Any:
    if payload is None and not solver.payload_size:
        return ()
    wanted = f"write and sample must return {solver.payload_size} numbers (payload_size in the class), but returned"
    if not isinstance(payload, tuple | list | np.ndarray) or len(payload) != solver.payload_size:
        raise _Wrong(f"{wanted} {describe_value(payload)}")
    if wrong := [number for number in payload if not _is_numeric(number) or np.ndim(number)]:
        raise _Wrong(f"{wanted} {describe_value(wrong[0])} among them")
    return payload


def _check_indices(solver: Solver[Any, Any], indices: Any) -> Any:
    count, end = solver.options.noise_rows(solver.dimension), len(solver.table) - solver.directions.length
    wanted = f"population_indices must return {count} whole numbers, int64 of shape ({count},)"
    if not isinstance(indices, np.ndarray) or indices.shape != (count,) or indices.dtype != np.int64:
        raise _Wrong(f"{wanted}, but returned {describe_value(indices)}")
    if count and not 0 <= indices.min() <= indices.max() <= end:
        raise _Wrong(f"{wanted}, from 0 to {end}, but one is {indices[(indices < 0) | (indices > end)][0]}")
    return indices


def _check_moments(solver: Solver[Any, Any], moments: Any) -> Any:
    if not isinstance(moments, np.ndarray) or moments.ndim != 2 or moments.dtype != solver.dtype:
        wanted = f"moments must return {np.dtype(solver.dtype).name} of shape (orders, coordinates)"
        raise _Wrong(f"{wanted}, but returned {describe_value(moments)}")
    return moments


def _check_saved(solver: Solver[Any, Any], state: Any) -> Mapping[str, Any]:
    wanted = "state must return a dict of names to numbers and arrays of numbers"
    if not isinstance(state, dict):
        raise _Wrong(f"{wanted}, but returned {describe_value(state)}")
    for name, value in state.items():
        if not _is_numeric(value):
            raise _Wrong(f"{wanted}, but {name} is {describe_value(value)}")
    return state


def _check_report(solver: Solver[Any, Any], numbers: Any) -> Mapping[str, Any]:
    wanted = "report must return a dict of names to numbers"
    if not isinstance(numbers, dict):
        raise _Wrong(f"{wanted}, but returned {describe_value(numbers)}")
    for name, value in numbers.items():
        if not isinstance(name, str) or not name.isprintable() or not name or set(name) & set(',"'):
            raise _Wrong(f"{wanted}, but {name!r} cannot be the name of a column")
        if not isinstance(value, int | float | np.integer | np.floating):
            raise _Wrong(f"{wanted}, but {name} is {describe_value(value)}")
    return numbers


def _check_vector(solver: Solver[Any, Any], wanted: str, value: Any, *shapes: tuple[int, ...]) -> None:
    """Raise _Wrong unless the value is an array of one of the shapes, of the solver's dtype, and finite."""
    wanted += f", {np.dtype(solver.dtype).name} of shape {' or '.join(map(str, shapes))}"
    if not isinstance(value, np.ndarray) or value.shape not in shapes or value.dtype != solver.dtype:
        raise _Wrong(f"{wanted}, but it is {describe_value(value)}")
    if not np.isfinite(value).all():
        raise _Wrong(f"{wanted}, but {_count_bad(value)} are NaN or infinite")


def _is_count(value: Any) -> bool:
    """Whether a value is a whole number that is not negative."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(value >= 0)


def _is_numeric(value: Any) -> bool:
    """Whether a value is a number or an array of numbers."""
    try:
        return np.asarray(value).dtype.kind in "biuf"
    except ValueError:  # a list of lists of different lengths
        return False


def _count_bad(values: npt.NDArray[Any]) -> str:
    """How many of the numbers are NaN or infinite, as `3 of 8`."""
    return f"{int((~np.isfinite(values)).sum())} of {values.size}"


# The methods of a solver, and what is checked after each.
_CHECKS: dict[str, Callable[[Any, Any], Any]] = {
    "__init__": _check_made,
    "rows": _check_rows,
    "state_fields": _as_it_is,
    "start": _as_it_is,
    "begin": _check_begun,
    "ask": _as_it_is,
    "propose": _check_proposal,
    "predict_mean": _check_predicted,
    "population_indices": _check_indices,
    "write": _check_payload,
    "sample": _check_payload,
    "compute_weights": _check_weights,
    "moments": _check_moments,
    "tell": _as_it_is,
    "update": _check_updated,
    "state": _check_saved,
    "restore": _as_it_is,
    "report": _check_report,
}
_ALWAYS = ("__init__", "restore")  # also Solver's own: they read what the user's class defines


# -- the keys ----------------------------------------------------------------------------------------------------------

# The methods of Options, what each must return, and whether a value is that.
_OPTIONS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "plays_mean": ("True or False", lambda value: isinstance(value, bool)),
    "rows_last": ("a whole number of at least 1", lambda value: _is_count(value) and value > 0),
    "members": ("a whole number of at least 1", lambda value: _is_count(value) and value > 0),
    "noise_rows": ("a whole number", _is_count),
    "early_members": ("a whole number", _is_count),
    "computed_defaults": (
        "a dict of keys to numbers",
        lambda value: isinstance(value, dict) and all(map(_is_numeric, value.values())),
    ),
    "groups": (
        "whole numbers from 0 on, one for each member",
        lambda value: (
            isinstance(value, np.ndarray) and value.dtype.kind in "iu" and value.ndim == 1 and value.min() >= 0
        ),
    ),
    "is_complete": ("True or False", lambda value: isinstance(value, bool | np.bool_)),
    "memory": ("a whole number of bytes", _is_count),
    "refusal": ("text, '' if it can run", lambda value: isinstance(value, str)),
}


def _custom_options(options: type[Population], name: str, file: str, kind: str) -> type[Population]:
    """A subclass of the user's Options whose methods are checked, and that accepts this `kind` and no other."""
    namespace: dict[str, Any] = {}
    for method, (wanted, is_right) in _OPTIONS.items():
        function = inspect.getattr_static(options, method)
        if function is inspect.getattr_static(Population, method):
            continue
        called = f"{options.__name__}.{method}"
        check = functools.partial(_check_option, called, wanted, is_right)
        namespace[method] = _explain(function, called, check, name, file)

    class Custom(type("Explained", (), namespace), tagged(options, kind)):  # type: ignore[misc]  # made just now
        @model_validator(mode="wrap")
        @classmethod
        def _explain_validators(cls, values: Any, handler: ModelWrapValidatorHandler[Any]) -> Any:
            """Have what a validator of the user's raises reported as one line; ValueError is the way to refuse keys."""
            try:
                return handler(values)
            except (ValidationError, ValueError, AssertionError):
                raise
            except RAISED as error:
                raise ValueError(f"kind {kind}: {_explain_raised('a validator', error, file)}") from error

    Custom.__name__ = Custom.__qualname__ = options.__name__
    Custom.__doc__ = options.__doc__
    return Custom


def _check_option(called: str, wanted: str, is_right: Callable[[Any], bool], options: Population, value: Any) -> Any:
    if not is_right(value):
        raise _Wrong(f"{called} must return {wanted}, but returned {describe_value(value)}")
    return value
