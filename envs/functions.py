"""Functions of the parameters in place of an environment: test functions of optimisation, and the user's own."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

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


@dataclass(frozen=True)
class FunctionEnv(ABC):
    """A function whose value takes the place of an episode's return.

    name: of the function.  dimension: d, the number of parameters.
    offset: (d,) float64; the function is evaluated at parameters - offset, which moves its optimum by `offset`.
    """

    name: str
    dimension: int
    offset: Vector

    @abstractmethod
    def value(self, parameters: npt.NDArray[np.float32]) -> float:
        """The return of `parameters` (d,), computed in float64; higher is better."""

    @property
    def behaviour_size(self) -> int:
        """b, how many numbers `behaviour` returns: at most eight."""
        return min(self.dimension, 8)

    def behaviour(self, parameters: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """What novelty search compares: the first b of the parameters (d,)."""
        return parameters[: self.behaviour_size]


@dataclass(frozen=True)
class BenchmarkFunctionEnv(FunctionEnv):
    """A test function, to be minimised: the return is minus its value.  name: a key of FUNCTIONS."""

    def value(self, parameters: npt.NDArray[np.float32]) -> float:
        return -FUNCTIONS[self.name](parameters.astype(np.float64) - self.offset)


@dataclass(frozen=True)
class OwnFunctionEnv(FunctionEnv):
    """The user's function, to be maximised.  function: of a vector (d,) float64; `value` raises what it raises."""

    function: Callable[[Vector], float]

    def value(self, parameters: npt.NDArray[np.float32]) -> float:
        return float(self.function(parameters.astype(np.float64) - self.offset))
