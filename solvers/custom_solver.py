"""A custom solver in a run: whatever its methods raise, and results of a wrong shape, become one line that says so.

Only the methods that the user's class defines are called through `_explain`.  What takes more than one call to see,
such as an incomplete state, is found by mpies.solvers.check before a run begins.
"""

import functools
import inspect
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import ModelWrapValidatorHandler, ValidationError, model_validator

from mpies.core.errors import SolverProblem
from mpies.core.text import describe_error, describe_value
from mpies.solvers.base import Gaussian, Proposal, Solver
from mpies.solvers.moments import Weights
from mpies.solvers.options import Population, tagged

MOST_VECTORS = 13  # of a proposal: a broadcast takes 15, and two are not the solver's


class CustomSolver(Solver[Any, Any]):
    """Comes before the user's class in the method resolution order of what `make_custom` returns.

    custom_name: how messages call the solver.
    """

    custom_name: ClassVar[str]


def find_missing(solver: type[Solver[Any, Any]]) -> str:
    """What a class lacks to be a solver, for messages; '' if nothing."""
    options = getattr(solver, "Options", None)
    if not (isinstance(options, type) and issubclass(options, Population)):
        return "Options, a subclass of mpies.solvers.options.Population"
    return ", ".join(sorted(getattr(solver, "__abstractmethods__", ())))


def make_custom(solver: type[Solver[Any, Any]], name: str, file: str, kind: str) -> type[CustomSolver]:
    """A subclass of the user's class that raises SolverProblem for what its methods raise and return wrongly.

    Its Options accept this `kind` alone.  name: how messages call it.  file: absolute path of its file.
    """
    namespace = _explain_all(solver, Solver, "", name, file)
    namespace |= {"custom_name": name, "Options": _custom_options(solver.Options, name, file, kind)}
    return type(solver.__name__, (solver, CustomSolver), namespace)


def _explain_all(cls: type, base: type, prefix: str, name: str, file: str) -> dict[str, Any]:
    """The methods and properties of `base` that a user's class defines anew, explained.  prefix: of their names."""
    namespace = {}
    for method, default in vars(base).items():
        function = inspect.getattr_static(cls, method)
        is_new = method[0] != "_" and function is not default
        if (is_new or method in _ALWAYS) and (inspect.isfunction(function) or isinstance(function, property)):
            namespace[method] = _explain(function, prefix + method, name, file, _CHECKS.get(method))
    return namespace


def _explain(function: Any, called: str, name: str, file: str, check: Callable[[Any, Any], Any] | None = None) -> Any:
    """A method or property of the user's whose results and exceptions are explained.

    called: how messages call it.  check: of the solver and of what was returned; returns that, or raises _Wrong.
    """
    if isinstance(function, property):
        return property(_explain(function.fget, called, name, file, check))

    @functools.wraps(function)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            value = function(self, *args, **kwargs)
            return check(self, value) if check else value
        except SolverProblem:
            raise
        except _Wrong as error:
            raise SolverProblem(f"{name}: {called} {error}") from None
        except BaseException as error:  # a user's code may raise anything
            raise SolverProblem(f"{name}: {_explain_raised(called, error, file)}") from error

    return call


class _Wrong(Exception):
    """What a method must return or leave, and what it has."""


def _explain_raised(method: str, error: BaseException, file: str) -> str:
    """What a method raised, on one line, and where."""
    frames = traceback.extract_tb(error.__traceback__)
    frame = next((frame for frame in reversed(frames) if frame.filename == file), frames[-1])
    text = describe_error(error)
    if method == "restore" and isinstance(error, KeyError):
        return (
            f"the state has no {text.removeprefix('KeyError: ')}; a run that began before the solver was changed "
            "cannot continue: choose another --out, or remove it"
        )
    hint = "; change a copy of the results" if text.endswith(" is read-only") else ""
    return f"{method} raised {text} ({Path(frame.filename).name}, line {frame.lineno}){hint}"


def _check_made(solver: Solver[Any, Any], nothing: None) -> None:
    if not hasattr(solver, "options"):
        raise _Wrong("must call super().__init__ with all the arguments that it was given")


def _check_proposal(solver: Solver[Any, Any], proposal: Any) -> Proposal:
    """The vectors of a proposal go to all ranks as bytes, so their types and shapes must be right."""
    expected = type(solver).Proposal
    if type(proposal) is not expected:
        hint = ""
        if isinstance(proposal, Proposal):
            hint = f"; or write Proposal = {type(proposal).__name__} into the class"
        raise _Wrong(f"must return a {expected.__name__}, but returned {describe_value(proposal)}{hint}")
    d = solver.dimension
    _check_vector(solver, "must return a mean", proposal.mean, (d,))
    if isinstance(proposal, Gaussian):
        is_one = solver.directions.has_products and type(solver).sample is Solver.sample
        why = " of one number, since the noise is of low rank" if is_one else ""
        _check_vector(solver, f"must return a scale{why}", proposal.scale, *([(1,)] if is_one else [(1,), (d,)]))
    vectors = proposal.vectors()
    for vector in vectors:
        is_vector = isinstance(vector, np.ndarray) and vector.ndim == 1 and vector.dtype.kind in "biuf"
        if not (is_vector and vector.dtype.isnative):  # a broadcast sends the bytes as they are
            raise _Wrong(
                f"must return a {expected.__name__} of vectors of numbers in the byte order of this machine, but one "
                f"is {describe_value(vector)}"
            )
    if len(vectors) > MOST_VECTORS:
        raise _Wrong(f"must return at most {MOST_VECTORS} vectors, but it has {len(vectors)}; join some of them")
    if (rows := proposal.rows) is not None:
        shape: tuple[int, ...] = rows.shape if isinstance(rows, np.ndarray) else ()
        if len(shape) != 2 or shape[1] != d or shape[0] > solver.rows:
            raise _Wrong(f"must return at most {solver.rows} rows (rows in the class) of {d} numbers, but has {shape}")
        if not np.isfinite(rows).all():
            raise _Wrong(f"must return rows, but {_count_bad(rows)} of their numbers are NaN or infinite")
    return proposal


def _check_predicted(solver: Solver[Any, Any], mean: Any) -> Any:
    _check_vector(solver, "must return a mean", mean, (solver.dimension,))
    return mean


def _check_weights(solver: Solver[Any, Any], weights: Any) -> Weights:
    if not isinstance(weights, Weights):
        raise _Wrong(f"must return a Weights of mpies.solvers.moments, but returned {describe_value(weights)}")
    rows = solver.options.noise_rows(solver.dimension)
    for name, part in vars(weights).items():
        wanted = f"must return {name} weights (orders, rows), a column for each noise row"
        wanted += f", {rows} for each population, as {np.dtype(solver.dtype).name}"
        if not isinstance(part, np.ndarray) or part.ndim != 2 or part.dtype != solver.dtype:
            raise _Wrong(f"{wanted}, but they are {describe_value(part)}")
        if part.shape[1] != weights.linear.shape[1] or (part.shape[1] % rows if rows else part.shape[1]):
            raise _Wrong(f"{wanted}, but they are {describe_value(part)}")
        if not np.isfinite(part).all():
            raise _Wrong(f"{wanted}, but {_count_bad(part)} are NaN or infinite")
    if solver.directions.has_products and len(weights.square):
        raise _Wrong("must return no square weights where the noise is of low rank")
    return weights


def _check_payload(solver: Solver[Any, Any], payload: Any) -> Any:
    if payload is None and not solver.payload_size:
        return ()
    if not isinstance(payload, tuple | list | np.ndarray) or len(payload) != solver.payload_size:
        raise _Wrong(
            f"must return {solver.payload_size} numbers (payload_size in the class), but returned "
            f"{describe_value(payload)}"
        )
    return payload


def _check_updated(solver: Solver[Any, Any], returned: Any) -> None:
    if returned is not None:
        raise _Wrong(f"must change self.mean and return None, but returned {describe_value(returned)}")
    _check_vector(solver, "must leave a mean", solver.mean, (solver.dimension,))


def _check_report(solver: Solver[Any, Any], numbers: Any) -> Any:
    """The names become columns of metrics.csv."""
    if not isinstance(numbers, dict):
        raise _Wrong(f"must return a dict of names to numbers, but returned {describe_value(numbers)}")
    for name, value in numbers.items():
        if not isinstance(name, str) or not name.isprintable() or not name or set(name) & set(',"'):
            raise _Wrong(f"must return a dict of names to numbers, but {name!r} cannot be the name of a column")
        if not isinstance(value, int | float | np.integer | np.floating):
            raise _Wrong(f"must return a dict of names to numbers, but {name} is {describe_value(value)}")
    return numbers


def _check_vector(solver: Solver[Any, Any], wanted: str, value: Any, *shapes: tuple[int, ...]) -> None:
    """Raise _Wrong unless the value is an array of one of the shapes, of the solver's dtype, and finite."""
    wanted += f", {np.dtype(solver.dtype).name} of shape {' or '.join(map(str, shapes))}"
    if not isinstance(value, np.ndarray) or value.shape not in shapes or value.dtype != solver.dtype:
        raise _Wrong(f"{wanted}, but it is {describe_value(value)}")
    if not np.isfinite(value).all():
        raise _Wrong(f"{wanted}, but {_count_bad(value)} are NaN or infinite")


def _count_bad(values: npt.NDArray[Any]) -> str:
    """How many of the numbers are NaN or infinite, as `3 of 8`."""
    return f"{int((~np.isfinite(values)).sum())} of {values.size}"


# What is checked of the results of methods.
_CHECKS: dict[str, Callable[[Any, Any], Any]] = {
    "__init__": _check_made,
    "propose": _check_proposal,
    "predict_mean": _check_predicted,
    "write": _check_payload,
    "sample": _check_payload,
    "compute_weights": _check_weights,
    "update": _check_updated,
    "report": _check_report,
}
_ALWAYS = ("__init__", "restore")  # also Solver's own: they read what the user's class defines


def _custom_options(options: type[Population], name: str, file: str, kind: str) -> type[Population]:
    """A subclass of the user's Options whose exceptions are explained, and that accepts this `kind` and no other."""
    namespace = _explain_all(options, Population, f"{options.__name__}.", name, file)

    class Custom(type("Explained", (), namespace), tagged(options, kind)):  # type: ignore[misc]  # made just now
        @model_validator(mode="wrap")
        @classmethod
        def _explain_validators(cls, values: Any, handler: ModelWrapValidatorHandler[Any]) -> Any:
            """Have what a validator of the user's raises reported as one line; ValueError is the way to refuse keys."""
            try:
                return handler(values)
            except (ValidationError, ValueError, AssertionError):
                raise
            except BaseException as error:  # a user's code may raise anything
                raise ValueError(f"kind {kind}: {_explain_raised('a validator', error, file)}") from error

    Custom.__name__ = Custom.__qualname__ = options.__name__
    Custom.__doc__ = options.__doc__
    return Custom
