"""Functions of a parameter vector: test functions, to be minimised (their negative is the return), and the user's."""

from dataclasses import dataclass

import numpy as np


def sphere(x):
    return float(np.sum(x * x))


def ellipsoid(x):
    """Axes scaled from 1 to 1e6 (Hansen et al. 2009, f2 without transformations)."""
    powers = np.arange(len(x)) / max(len(x) - 1, 1)
    return float(np.sum(1e6**powers * x * x))


def rosenbrock(x):
    return float(np.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2))


def rastrigin(x):
    return float(10 * len(x) + np.sum(x * x - 10 * np.cos(2 * np.pi * x)))


FUNCTIONS = {"sphere": sphere, "ellipsoid": ellipsoid, "rosenbrock": rosenbrock, "rastrigin": rastrigin}


@dataclass(frozen=True)
class FunctionWorld:
    """A test function, moved so that its optimum is not at the start.

    name: key of FUNCTIONS.  dimension: d.  offset: (d,) float64, added to the optimum's position.
    """

    name: str
    dimension: int
    offset: np.ndarray

    def value(self, parameters):
        """The return of `parameters` (d,): minus the function's value, computed in float64."""
        return -FUNCTIONS[self.name](parameters.astype(np.float64) - self.offset)

    @property
    def behaviour_size(self):
        return min(self.dimension, 8)

    def behaviour(self, parameters):
        """Where a member went, for novelty search: its first coordinates, at most eight."""
        return parameters[: self.behaviour_size]


@dataclass(frozen=True)
class OwnFunctionWorld(FunctionWorld):
    """The user's function, whose value for parameters (d,) float64 is the return.  call: the function."""

    call: object

    def value(self, parameters):
        return float(self.call(parameters.astype(np.float64) - self.offset))
