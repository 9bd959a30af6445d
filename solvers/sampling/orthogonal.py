"""Directions of a population that are orthogonal to each other, which estimate a gradient of few parameters better.

Choromanski et al. 2018 (arXiv 1804.02395): with n independent directions in d dimensions the error of the estimate is
(d + 1) / n of the squared gradient, with n orthogonal ones d / n - 1.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from mpies.solvers.moments import Weights, moments
from mpies.solvers.sampling.directions import Directions
from mpies.solvers.sampling.noise import FloatArray

GROUP = 256  # most directions that are made orthogonal to each other; the time grows with it
MOST_PARAMETERS = 10_000  # more take longer than they gain
KEPT = 2  # populations whose directions a rank remembers: of this generation, and of one that overlaps with it


@dataclass(frozen=True)
class OrthogonalDirections(Directions):
    """The noise rows of a population, made orthogonal in groups of at most d rows.

    A direction keeps the length of its noise row, so each one alone is still d independent normals.
    population: k, the noise rows of a population.
    """

    population: int = field(default=0, kw_only=True)
    _known: dict[bytes, FloatArray] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def are_rows(self) -> bool:
        return False

    @property
    def memory(self) -> int:
        return KEPT * 4 * self.population * self.dimension

    def row(self, table: FloatArray, indices: npt.NDArray[np.int64], number: int) -> FloatArray:
        row: FloatArray = self._rows(table, np.asarray(indices, np.int64))[number]
        return row

    def moments(self, table: FloatArray, indices: npt.ArrayLike, weights: Weights, start: int, stop: int) -> FloatArray:
        places = np.asarray(indices, np.int64)
        if not len(places):
            return moments(table, places, weights, start, stop)
        batches = [places[k : k + self.population] for k in range(0, len(places), self.population)]
        rows = np.concatenate([self._rows(table, batch) for batch in batches])
        return moments(rows.ravel(), range(0, rows.size, self.dimension), weights, start, stop)

    def _rows(self, table: FloatArray, indices: npt.NDArray[np.int64]) -> FloatArray:
        """The directions (k, d) of a population."""
        known, key = self._known, indices.tobytes()
        if key not in known:
            if len(known) == KEPT:
                del known[next(iter(known))]
            rows = np.stack([table[index : index + self.dimension] for index in indices])
            size = min(GROUP, self.dimension)
            groups = [orthogonalize(rows[k : k + size]) for k in range(0, len(rows), size)]
            known[key] = np.concatenate(groups)
        return known[key]

    def state(self) -> dict[str, Any]:
        return {"orthogonal/population": np.int64(self.population)}


def orthogonalize(rows: FloatArray) -> FloatArray:
    """Rows (k, d), k at most d, made orthogonal one after the other; each keeps its length.  In the dtype of `rows`.

    Gram and Schmidt's method, each row twice (Giraud et al. 2005: twice is enough).  Without BLAS, so that all ranks
    get the same bits.
    """
    done = rows.astype(np.float64)  # of length 1
    lengths = np.sqrt(np.sum(done * done, axis=1))
    for number, row in enumerate(done):
        before = done[:number]
        for _ in range(2):
            shares = np.sum(before * row, axis=1)  # (number,)
            row -= np.sum(shares[:, None] * before, axis=0)
        length = np.sqrt(np.sum(row * row))
        if length > 0:
            row /= length
    return (done * lengths[:, None]).astype(rows.dtype)


def restore_directions(dimension: int, state: Mapping[str, Any]) -> Directions:
    """The Directions in the state of a solver, of any kind."""
    if "orthogonal/population" in state:
        return OrthogonalDirections(dimension, population=int(state["orthogonal/population"]))
    if "low_rank/rank" not in state:
        return Directions(dimension)
    matrices = tuple((int(start), int(rows), int(columns)) for start, rows, columns in state["low_rank/matrices"])
    return Directions(dimension, matrices, int(state["low_rank/rank"]))
