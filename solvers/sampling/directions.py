"""Directions: how the noise row of a member becomes its direction in parameter space.

With full noise the row is the direction: d independent normals.  With noise of low rank r (EGGROLL: Sarkar et al.
2025, arXiv 2511.16652) a weight matrix of (rows, columns) needs (rows + columns) r normals of the row instead of
rows * columns: its part of the direction is A B^T / sqrt(r), where A is (rows, r) and B is (columns, r).  Its entries
still have variance 1, but they are not independent.  The moments over members then are matrix products of all A,
weighted, with all B.
"""

import bisect
import functools
import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

from mpies.core.arrays import FloatArray, Int64s
from mpies.solvers.moments import Weights, moments

TILE = 32  # most rows of a matrix that one product computes
MEMBERS = 1024  # most noise rows that one product sums: their vectors take a few megabytes


@dataclass(frozen=True)
class Segment:
    """Coordinates [start, stop) of a direction, computed from normals that begin at `place` in the noise row.

    matrix: (rows, columns) of a low-rank product; None for independent normals.
    """

    start: int
    stop: int
    place: int
    matrix: tuple[int, int] | None = None


@dataclass(frozen=True)
class Directions:
    """The layout of directions (d,) and of the noise rows they are computed from.

    dimension: d.  matrices: (first coordinate, rows, columns) of each weight matrix that may be a low-rank product, in
    order of their coordinates; without any, a noise row is the direction.  rank: r.
    """

    dimension: int
    matrices: tuple[tuple[int, int, int], ...] = ()
    rank: int = 1

    @functools.cached_property
    def parts(self) -> list[Segment]:
        """The parts of a direction in order.  A matrix is a product only if that takes fewer normals."""
        parts, done, place = [], 0, 0
        for start, rows, columns in self.matrices:
            if self.rank * (rows + columns) < rows * columns:
                stop, between = start + rows * columns, start - done
                parts += [Segment(done, start, place), Segment(start, stop, place + between, (rows, columns))]
                place += between + self.rank * (rows + columns)
                done = stop
        parts.append(Segment(done, self.dimension, place))
        return [part for part in parts if part.start < part.stop]

    @property
    def has_products(self) -> bool:
        """Whether a part of the direction is a low-rank product, so that a noise row is shorter than d."""
        return self.length < self.dimension

    @functools.cached_property
    def length(self) -> int:
        """Number of normals in a noise row."""
        return sum(self.rank * sum(part.matrix) if part.matrix else part.stop - part.start for part in self.parts)

    def row(self, table: FloatArray, index: int) -> FloatArray:
        """The direction (d,) of the noise row at an index; not to be written to."""
        if not self.has_products:
            return table[index : index + self.dimension]
        direction = np.empty(self.dimension, table.dtype)
        self.sample(table, index, np.zeros(1, table.dtype), np.ones(1, table.dtype), direction)
        return direction

    def sample(self, table: FloatArray, index: int, mean: FloatArray, scale: FloatArray, out: FloatArray) -> None:
        """Write mean + scale * direction into `out` (d,).  index: of the noise row.  mean: (d,).  scale: (1,)."""
        for part in self.parts:
            normals, target = table[index + part.place :], out[part.start : part.stop]
            if part.matrix is None:
                np.multiply(normals[: len(target)], scale, out=target)
            else:
                rows, columns = part.matrix
                left = normals[: self.rank * rows].reshape(self.rank, rows) * (scale / self._root(table))
                right = normals[self.rank * rows : self.rank * (rows + columns)].reshape(self.rank, columns)
                np.einsum("ki,kj->ij", left, right, out=target.reshape(rows, columns))  # faster than multiply.outer
        np.add(out, mean, out=out)

    def moments(self, table: FloatArray, indices: npt.ArrayLike, weights: Weights, start: int, stop: int) -> FloatArray:
        """The moments (a + c, stop - start) of these directions, as in mpies.solvers.moments.moments.

        Matrix products are computed in tiles that depend on the shape of the matrix alone, whatever coordinates are
        asked for.  So the split of the coordinates changes no bit, as long as the number of BLAS threads is the same
        (mpies uses one).
        Raises ValueError for square weights where there are products.
        """
        places = np.asarray(indices, np.int64)
        if not self.has_products:
            return moments(table, places, weights, start, stop)
        if len(weights.square):
            raise ValueError("the squares of directions of low rank are not summed; only linear weights are")
        sums = np.empty((len(weights.linear), stop - start), table.dtype)
        for part in self.parts:
            low, high = max(part.start, start), min(part.stop, stop)
            if low < high:
                within = (low - part.start, high - part.start)
                if part.matrix:
                    block = self._sum_products(table, places + part.place, weights.linear, part.matrix, *within)
                else:
                    block = moments(table, places + part.place, weights, *within)
                sums[:, low - start : high - start] = block
        return sums

    def _sum_products(
        self, table: FloatArray, indices: Int64s, linear: FloatArray, matrix: tuple[int, int], low: int, high: int
    ) -> FloatArray:
        """Sums (a, high - low) over the coordinates [low, high) of a matrix."""
        rows, columns = matrix
        tiles = math.ceil(rows / TILE)
        # tiles of equal size: none has a single row, which BLAS would sum in another order
        edges = [rows * tile // tiles for tile in range(tiles + 1)]
        first = bisect.bisect_right(edges, low // columns) - 1
        edges = edges[first : bisect.bisect_left(edges, math.ceil(high / columns)) + 1]
        sums = np.zeros((len(linear), edges[-1] - edges[0], columns), table.dtype)
        for begin in range(0, len(indices), MEMBERS):
            some, weights = indices[begin : begin + MEMBERS], linear[:, begin : begin + MEMBERS]
            weights = np.repeat(weights / self._root(table), self.rank, axis=1)  # (a, k r)
            right = self._vectors(table, some + self.rank * rows, columns, 0, columns)  # (k r, columns)
            for top, bottom in itertools.pairwise(edges):
                left = self._vectors(table, some, rows, top, bottom)  # (k r, bottom - top)
                for total, weight in zip(sums, weights, strict=True):
                    total[top - edges[0] : bottom - edges[0]] += np.matmul((left * weight[:, None]).T, right)
        skip = edges[0] * columns
        return sums.reshape(len(linear), -1)[:, low - skip : high - skip]

    def _vectors(self, table: FloatArray, indices: Int64s, size: int, low: int, high: int) -> FloatArray:
        """Numbers [low, high) of the r vectors of `size` numbers at each of the indices (k,): (k r, high - low)."""
        places = (indices[:, None] + size * np.arange(self.rank) + low).ravel()
        return np.ascontiguousarray(sliding_window_view(table, high - low)[places])

    def _root(self, table: FloatArray) -> np.floating:
        return table.dtype.type(math.sqrt(self.rank))

    def state(self) -> dict[str, Any]:
        """Names to arrays for `of_state`; empty if noise rows are the directions."""
        if not self.matrices:
            return {}
        return {"low_rank/rank": np.int64(self.rank), "low_rank/matrices": np.array(self.matrices, np.int64)}

    @classmethod
    def of_state(cls, dimension: int, state: Mapping[str, Any]) -> Self:
        """The directions in the state of a solver."""
        if "low_rank/rank" not in state:
            return cls(dimension)
        matrices = tuple((int(start), int(rows), int(columns)) for start, rows, columns in state["low_rank/matrices"])
        return cls(dimension, matrices, int(state["low_rank/rank"]))
