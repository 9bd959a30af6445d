"""Functions of the parameters in place of an environment: test functions of optimisation, and the user's own."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mpies.core.errors import EnvironmentProblem
from mpies.core.text import describe_error, describe_value
from mpies.envs.build_errors import check_signature

ATTEMPTS = 5  # a function is refused when all of these calls fail

Vector = npt.NDArray[np.float64]


def sphere(x: Vector) -> float:
    """The sum of squares.  x: (d,).  Its minimum is 0 at 0."""
    return float(np.sum(x * x))


def ellipsoid(x: Vector) -> float:
    """Squares weighted from 1 to 1e6 (Hansen et al. 2009, f2 without transformations).  Its minimum is 0 at 0."""
    powers = np.arange(len(x)) / max(len(x) - 1, 1)
    return float(np.sum(1e6**powers * x * x))


def rosenbrock(x: Vector) -> float:
    """A curved valley (Rosenbrock 1960, the sum over neighbouring coordinates).  Its minimum is 0 at (1, ..., 1)."""
    return float(np.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2))


def rastrigin(x: Vector) -> float:
    """A bowl with a local minimum near each whole-numbered point (Rastrigin 1974).  Its minimum is 0 at 0."""
    return float(10 * len(x) + np.sum(x * x - 10 * np.cos(2 * np.pi * x)))


FUNCTIONS: dict[str, Callable[[Vector], float]] = {
    "sphere": sphere,
    "ellipsoid": ellipsoid,
    "rosenbrock": rosenbrock,
    "rastrigin": rastrigin,
}


def negated(name: str) -> Callable[[Vector], float]:
    """Minus the test function of this name, to be maximised."""

    @np.errstate(all="ignore")  # parameters may be huge; the value shows it
    def function(x: Vector) -> float:
        return -FUNCTIONS[name](x)

    return function


@dataclass(frozen=True)
class FunctionEnv:
    """A function of the user's, to be maximised, whose value takes the place of an episode's return.

    name: of the function.  dimension: d, the number of parameters.
    offset: (d,) float64; the function is evaluated at parameters - offset, which moves its optimum by `offset`.
    function: of a vector (d,) float64; `value` raises what it raises.
    """

    name: str
    dimension: int
    offset: Vector
    function: Callable[[Vector], float]

    def value(self, parameters: npt.NDArray[np.float32]) -> float:
        """The return of `parameters` (d,), computed in float64; higher is better."""
        value: Any = self.function(parameters.astype(np.float64) - self.offset)
        if value is not None and not isinstance(value, str):
            with contextlib.suppress(TypeError, ValueError):
                return float(value)
        raise EnvironmentProblem(f"the value of the function must be a number, but is {describe_value(value)}")

    @property
    def behaviour_size(self) -> int:
        """b, how many numbers `behaviour` returns: at most eight."""
        return min(self.dimension, 8)

    def behaviour(self, parameters: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """What novelty search compares: the first b of the parameters (d,)."""
        return parameters[: self.behaviour_size]

    def try_out(self) -> None:
        """Evaluate the function once.  Raises EnvironmentProblem, in one line, where no value of it can be used."""
        wanted = f"{self.name}: the function must take one argument, a vector of {self.dimension} numbers"
        check_signature(self.function, wanted, self.offset)
        random = np.random.default_rng(self.dimension)
        for attempt in range(ATTEMPTS):  # it may be undefined at some points, and raise there
            point = random.standard_normal(self.dimension) if attempt else np.zeros(self.dimension)
            try:
                value = self.value(point.astype(np.float32))
                if np.isfinite(value):
                    return
                message = f"the value {value}"
            except EnvironmentProblem as error:
                raise EnvironmentProblem(f"{self.name}: {error}") from error
            except BaseException as error:
                message = describe_error(error)
        raise EnvironmentProblem(f"{self.name}: each of {ATTEMPTS} calls fails, the last by {message}")
