"""How a member's direction is cut from its row of the noise table.

Mostly the row is the direction: d independent normals.  With noise of low rank (EGGROLL: Sarkar et al. 2025,
arXiv 2511.16652) a matrix of weights takes (rows + columns) r normals of the row instead of rows * columns, and its
part of the direction is A B^T / sqrt(r): entries of unit variance still, though no longer independent.  The moments
over members are then matrix products: of all A, weighted, with all B.
"""

import functools
import itertools
import math
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from solvers.moments import moments

TILE = 32  # rows of a matrix that one product computes, at most
MEMBERS = 1024  # noise rows that one product sums, at most: their vectors take a few megabytes


@dataclass(frozen=True)
class Part:
    """Coordinates [start, stop) of a direction, of normals that begin at `place` in the row.

    matrix: (rows, columns) of a product; None for independent normals.
    """

    start: int
    stop: int
    place: int
    matrix: tuple | None = None


@dataclass(frozen=True)
class Directions:
    """The layout of directions (d,), and of the rows they are cut from.

    dimension: d.  matrices: (first coordinate, rows, columns) of each matrix of weights that is a product, in order;
    with none of them a row is the direction.  rank: r.
    """

    dimension: int
    matrices: tuple = ()
    rank: int = 1

    @functools.cached_property
    def parts(self):
        """The Parts in order.  A matrix that a product would not save a normal is independent normals all the same."""
        parts, done, place = [], 0, 0
        for start, rows, columns in self.matrices:
            if self.rank * (rows + columns) < rows * columns:
                stop, between = start + rows * columns, start - done
                parts += [Part(done, start, place), Part(start, stop, place + between, (rows, columns))]
                place += between + self.rank * (rows + columns)
                done = stop
        parts.append(Part(done, self.dimension, place))
        return [part for part in parts if part.start < part.stop]

    @property
    def has_products(self):
        """Whether a direction is something else than its row."""
        return self.length < self.dimension

    @functools.cached_property
    def length(self):
        """Normals in the row of a member."""
        return sum(self.rank * sum(part.matrix) if part.matrix else part.stop - part.start for part in self.parts)

    def sample(self, table, index, mean, scale, out):
        """Write the member mean + scale * direction into `out` (d,), its row beginning at an index of the table.

        mean: (d,).  scale: (1,).
        """
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

    def moments(self, table, indices, weights, start, stop):
        """As solvers.moments.moments, of these directions.  Of products there are no squares: raises ValueError.

        Whatever part of a matrix is asked for, its products are those of whole tiles, which its shape alone decides:
        so any split of the coordinates gives the same bits, with as many threads of BLAS (mpies takes one).
        """
        if not self.has_products:
            return moments(table, indices, weights, start, stop)
        if len(weights.square):
            raise ValueError("the squares of directions of low rank are not summed; only linear weights are")
        sums = np.empty((len(weights.linear), stop - start), table.dtype)
        for part in self.parts:
            low, high = max(part.start, start), min(part.stop, stop)
            if low < high:
                places, within = np.asarray(indices, np.int64) + part.place, (low - part.start, high - part.start)
                if part.matrix:
                    found = self._sum_products(table, places, weights.linear, part.matrix, *within)
                else:
                    found = moments(table, places, weights, *within)
                sums[:, low - start : high - start] = found
        return sums

    def _sum_products(self, table, indices, linear, matrix, low, high):
        """Sums (a, high - low) over the coordinates [low, high) of a matrix."""
        rows, columns = matrix
        tiles = math.ceil(rows / TILE)
        edges = rows * np.arange(tiles + 1) // tiles  # of equal size: none is a single row, which BLAS sums otherwise
        first = np.searchsorted(edges, low // columns, "right") - 1
        edges = edges[first : np.searchsorted(edges, math.ceil(high / columns)) + 1]
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

    def _vectors(self, table, indices, size, low, high):
        """Numbers [low, high) of each of the r vectors of `size` numbers at each of the indices, (k r, high - low)."""
        places = (indices[:, None] + size * np.arange(self.rank) + low).ravel()
        return np.ascontiguousarray(sliding_window_view(table, high - low)[places])

    def _root(self, table):
        return table.dtype.type(math.sqrt(self.rank))

    def state(self):
        """Names to arrays, from which `recall` makes it again; none where rows are the directions."""
        if not self.matrices:
            return {}
        return {"low_rank/rank": np.int64(self.rank), "low_rank/matrices": np.array(self.matrices, np.int64)}


def recall(dimension, state):
    """The Directions in the state of a solver."""
    if "low_rank/rank" not in state:
        return Directions(dimension)
    matrices = tuple(tuple(map(int, row)) for row in state["low_rank/matrices"])
    return Directions(dimension, matrices, int(state["low_rank/rank"]))
