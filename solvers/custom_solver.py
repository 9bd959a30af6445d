"""A custom solver in a run: what its methods raise, and results of a wrong shape, become one line that says so.

What takes more than one call to see, such as an incomplete state, is found by mpies.solvers.check before a run begins.
"""

import functools
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from mpies.core.errors import SolverProblem
from mpies.core.text import describe_error, describe_value
from mpies.solvers.base import AnySolver, Gaussian, Proposal, Solver
from mpies.solvers.moments import Weights
from mpies.solvers.options import Population, tagged


class Fault(Exception):
    """What is wrong with a custom solver; `explained` makes a SolverProblem of it, with the solver's name."""


class CustomSolver(Solver[Any, Any]):
    """Comes behind the user's class in the method resolution order of what `make_custom` returns.

    custom_name: how messages call the solver.  custom_file: absolute path of its file; '' if it has none.

    _check_NAME, of what the method NAME returned, raises Fault or returns it.
    """

    custom_name: ClassVar[str]
    custom_file: ClassVar[str]

    def _check_init(self, nothing: None) -> None:
        if not hasattr(self, "options"):
            raise Fault("__init__ must call super().__init__ with all the arguments that it was given")

    def _check_propose(self, proposal: Any) -> Proposal:
        """The vectors of a proposal go to all ranks as bytes, so their types and shapes must be right."""
        expected, d = type(self).Proposal, self.dimension
        if type(proposal) is not expected:
            name = f"{expected.__name__} (Proposal in the class)"
            raise Fault(f"propose must return a {name}, but returned {describe_value(proposal)}")
        self._check_vector("propose must return a mean", proposal.mean, (d,))
        if isinstance(proposal, Gaussian):
            self._check_vector("propose must return a scale", proposal.scale, (1,), (d,))
        for vector in proposal.vectors():
            if not (isinstance(vector, np.ndarray) and vector.ndim == 1 and vector.dtype.kind in "biuf"):
                raise Fault(f"propose must return vectors in its proposal, but one is {describe_value(vector)}")
        if (rows := proposal.rows) is not None:
            shape: tuple[int, ...] = rows.shape if isinstance(rows, np.ndarray) else ()
            if len(shape) != 2 or shape[1] != d or shape[0] > self.rows:
                wanted = f"at most {self.rows} rows (rows in the class) of {d} numbers"
                raise Fault(f"propose must return {wanted}, but has {shape}")
            _check_finite("propose must return rows", rows)
        return proposal

    def _check_predict_mean(self, mean: Any) -> Any:
        self._check_vector("predict_mean must return a mean", mean, (self.dimension,))
        return mean

    def _check_write(self, payload: Any) -> Any:
        if payload is None and not self.payload_size:
            return ()
        if np.shape(payload) != (self.payload_size,):
            wanted = f"{self.payload_size} numbers (payload_size in the class)"
            raise Fault(f"write or sample must return {wanted}, but returned {describe_value(payload)}")
        return payload

    def _check_compute_weights(self, weights: Any) -> Weights:
        if not isinstance(weights, Weights):
            wanted = "a Weights of mpies.solvers.moments"
            raise Fault(f"compute_weights must return {wanted}, but returned {describe_value(weights)}")
        rows, dtype = self.options.noise_rows(self.dimension), np.dtype(self.dtype)
        for name, part in vars(weights).items():
            wanted = f"{name} weights (orders, rows), with {rows} columns for each population, as {dtype.name}"
            is_array = isinstance(part, np.ndarray) and part.ndim == 2 and part.dtype == dtype
            if not is_array or part.shape[1] != weights.linear.shape[1] or part.shape[1] % max(rows, 1):
                raise Fault(f"compute_weights must return {wanted}, but they are {describe_value(part)}")
            _check_finite(f"compute_weights must return {wanted}", part)
        return weights

    def _check_update(self, returned: Any) -> None:
        if returned is not None:
            raise Fault(f"update must change self.mean and return None, but returned {describe_value(returned)}")
        self._check_vector("update must leave a mean", self.mean, (self.dimension,))

    def _check_report(self, numbers: Any) -> Any:
        """The names become columns of metrics.csv, which has no quotes."""
        wanted = "report must return a dict of names, without commas, to numbers"
        if not isinstance(numbers, dict):
            raise Fault(f"{wanted}, but returned {describe_value(numbers)}")
        for name, value in numbers.items():
            if not isinstance(value, int | float | np.integer | np.floating) or set(str(name)) & set(',"\n'):
                raise Fault(f"{wanted}, but has {name!r}: {describe_value(value)}")
        return numbers

    def _check_state(self, state: Any) -> Any:
        if "mean" not in state:
            raise Fault('state_fields must be a tuple of names such as ("mean", "sigma"), with "mean" among them')
        for name, value in state.items():
            if np.asarray(value).dtype.kind not in "biuf":
                wanted = "must be a number, an array of numbers or an optimizer"
                raise Fault(f"`{name}` of the state {wanted}, but is {describe_value(value)}")
        return state

    def _check_vector(self, wanted: str, value: Any, *shapes: tuple[int, ...]) -> None:
        """Raise Fault unless the value is an array of one of the shapes, of the solver's dtype, and finite."""
        wanted += f", {np.dtype(self.dtype).name} of shape {' or '.join(map(str, shapes))}"
        if not isinstance(value, np.ndarray) or value.shape not in shapes or value.dtype != self.dtype:
            raise Fault(f"{wanted}, but it is {describe_value(value)}")
        _check_finite(wanted, value)


def _check_finite(wanted: str, values: Any) -> None:
    if bad := int((~np.isfinite(values)).sum()):
        raise Fault(f"{wanted}, but {bad} of {np.size(values)} are NaN or infinite")


# What is called through `explained`; `sample` is called by `write`.
_METHODS = (
    *("__init__", "begin", "propose", "predict_mean", "population_indices", "write", "compute_weights", "moments"),
    *("update", "report", "state", "restore"),
)
_OF_OPTIONS = "members", "noise_rows", "groups", "is_complete", "computed_defaults", "memory", "refusal"


def find_fault(solver: Any) -> str:
    """What is wrong with a value of a user's that is to be a solver, for messages; '' if nothing."""
    if not (isinstance(solver, type) and issubclass(solver, Solver)):
        return f"must be a subclass of mpies.solvers.base.Solver, but is {solver!r}"
    options = getattr(solver, "Options", None)
    missing = ", ".join(sorted(getattr(solver, "__abstractmethods__", ())))
    if not (isinstance(options, type) and issubclass(options, Population)):
        missing = "Options, a subclass of mpies.solvers.options.Population"
    return f"must be a complete solver, but lacks {missing}" if missing else ""


def make_custom(solver: type[AnySolver], name: str, file: str, kind: str) -> type[CustomSolver]:
    """A subclass of the user's class that raises SolverProblem for what its methods raise and return wrongly.

    Its Options accept this `kind` alone.  name: how messages call it.  file: absolute path of its file.
    """
    options = tagged(solver.Options, kind)
    namespace = {"custom_name": name, "custom_file": file, "Options": options}
    made: type[CustomSolver] = type(solver.__name__, (solver, CustomSolver), namespace)
    for method in _METHODS:
        check = getattr(CustomSolver, f"_check_{method.strip('_')}", None)
        setattr(made, method, explained(getattr(made, method), made, method, check))
    for method in _OF_OPTIONS:
        setattr(options, method, explained(getattr(options, method), made, method))
    return made


def explained(
    function: Callable[..., Any],
    solver: type[CustomSolver],
    method: str,
    check: Callable[[Any, Any], Any] | None = None,
) -> Callable[..., Any]:
    """The function, which calls code of the user's; whatever is raised there becomes SolverProblem, in one line.

    method: names it in the line, unless a function of the user's file was called, which is named then.
    check: of the object and of what was returned; returns that, or raises Fault.
    """

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            value = function(*args, **kwargs)
            return check(args[0], value) if check else value
        except SolverProblem:
            raise
        except Fault as fault:
            raise SolverProblem(f"{solver.custom_name}: {fault}") from None
        except BaseException as error:  # a user's code may raise anything
            raise SolverProblem(f"{solver.custom_name}: {_describe(error, method, solver.custom_file)}") from error

    return call


def _describe(error: BaseException, method: str, file: str) -> str:
    """What a method raised, and where."""
    text = describe_error(error)
    if method == "restore" and isinstance(error, KeyError):
        cure = "a run that began before the solver was changed cannot continue: choose another --out, or remove it"
        return f"the state has no {text.removeprefix('KeyError: ')}; {cure}"
    frames = list(traceback.extract_tb(error.__traceback__))
    if users := [frame for frame in frames if frame.filename == file]:
        frames, method = users, users[0].name
    return f"{method} raised {text} ({Path(frames[-1].filename).name}, line {frames[-1].lineno})"
