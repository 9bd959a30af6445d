"""The keys of the user's own solver: what their methods raise and return is checked and explained in one line."""

import contextlib
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import ModelWrapValidatorHandler, ValidationError, model_validator

from mpies.core.errors import SolverProblem
from mpies.core.text import describe_value
from mpies.solvers.adapters.problem import RAISED, explain_raised, is_count
from mpies.solvers.options import Population, tagged


class _Checks(Population):
    """Comes before the user's Options in the method resolution order.  Raises SolverProblem as OwnSolver does."""

    own_kind: ClassVar[str]  # `solver.kind`, path/to/file.py:Class
    own_file: ClassVar[str]  # absolute path of that file

    @property
    def plays_mean(self) -> bool:
        with self._explaining("plays_mean"):
            answer = super().plays_mean
        return self._require("plays_mean", answer, isinstance(answer, bool), "True or False")

    @property
    def rows_last(self) -> int:
        with self._explaining("rows_last"):
            count = super().rows_last
        return self._require("rows_last", count, is_count(count) and count > 0, "a whole number of at least 1")

    def members(self, dimension: int) -> int:
        with self._explaining("members"):
            count = super().members(dimension)
        return self._require("members", count, is_count(count) and count > 0, "a whole number of at least 1")

    def noise_rows(self, dimension: int) -> int:
        with self._explaining("noise_rows"):
            count = super().noise_rows(dimension)
        return self._require("noise_rows", count, is_count(count), "a whole number")

    def early_members(self, share: float, dimension: int) -> int:
        with self._explaining("early_members"):
            count = super().early_members(share, dimension)
        is_right = is_count(count) and count <= self.members(dimension)
        return self._require("early_members", count, is_right, "a whole number, at most that of all members")

    def computed_defaults(self, dimension: int) -> dict[str, float]:
        with self._explaining("computed_defaults"):
            values = super().computed_defaults(dimension)
        is_right = isinstance(values, dict) and all(
            isinstance(value, int | float | np.integer | np.floating) for value in values.values()
        )
        return self._require("computed_defaults", values, is_right, "a dict of keys to numbers")

    def groups(self, dimension: int) -> npt.NDArray[np.int64]:
        with self._explaining("groups"):
            groups = super().groups(dimension)
        wanted, members = isinstance(groups, np.ndarray) and groups.dtype.kind in "iu", self.members(dimension)
        is_right = wanted and groups.shape == (members,)
        self._require("groups", groups, is_right, f"whole numbers of shape ({members},), one for each member")
        self._require("groups", int(groups.min()), groups.min() >= 0, "numbers from 0 on")
        return groups

    def is_complete(self, episodes: int, steps: int) -> bool:
        with self._explaining("is_complete"):
            answer = super().is_complete(episodes, steps)
        return self._require("is_complete", answer, isinstance(answer, bool | np.bool_), "True or False")

    def memory(self, dimension: int) -> int:
        with self._explaining("memory"):
            size = super().memory(dimension)
        return self._require("memory", size, is_count(size), "a whole number of bytes")

    def refusal(self, dimension: int) -> str:
        with self._explaining("refusal"):
            reason = super().refusal(dimension)
        return self._require("refusal", reason, isinstance(reason, str), "text, '' if it can run")

    @classmethod
    @contextlib.contextmanager
    def _explaining(cls, method: str) -> Iterator[None]:
        """A context in which whatever the user's method raises becomes a SolverProblem."""
        try:
            yield
        except SolverProblem:
            raise
        except RAISED as error:
            name = f"{cls.__name__}.{method}"
            raise SolverProblem(f"solver.kind {cls.own_kind}: {explain_raised(name, error, cls.own_file)}") from error

    @classmethod
    def _require(cls, method: str, value: Any, is_right: bool, wanted: str) -> Any:
        """The value.  Raises SolverProblem unless it is right."""
        if not is_right:
            name = f"{cls.__name__}.{method}"
            raise SolverProblem(
                f"solver.kind {cls.own_kind}: {name} must return {wanted}, but returned {describe_value(value)}"
            )
        return value


def check_options(options: type[Population], kind: str, file: str) -> type[Population]:
    """A subclass of the user's Options whose methods are checked, and that accepts this `kind` and no other."""

    class Checked(_Checks, tagged(options, kind)):  # type: ignore[misc]  # a class that is made just now
        own_kind, own_file = kind, file

        @model_validator(mode="wrap")
        @classmethod
        def _explain_validators(cls, values: Any, handler: ModelWrapValidatorHandler[Any]) -> Any:
            """Have what a validator of the user's raises reported as one line; ValueError is the way to refuse keys."""
            try:
                return handler(values)
            except (ValidationError, ValueError, AssertionError):
                raise
            except RAISED as error:
                raise ValueError(f"kind {kind}: {explain_raised('a validator', error, file)}") from error

    Checked.__name__ = Checked.__qualname__ = options.__name__
    Checked.__doc__ = options.__doc__
    return Checked
