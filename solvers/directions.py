"""How a member's direction is cut from its row of the noise table.

Mostly the row is the direction: d independent normals.  With noise of low rank (EGGROLL: Sarkar et al. 2025,
arXiv 2511.16652) a matrix of weights takes (rows + columns) r normals of the row instead of rows * columns, and its part
of the direction is A B^T / sqrt(r): entries of unit variance still, though no longer independent.  What the moments
kernel sums over members is then a matrix product, A weighted against B.
"""

import functools
import math
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from solvers.moments import moments

TILE = 32  # rows of a matrix that one product computes, at most
MEMBERS = 1024  # noise rows that one product sums, at most: their factors take a few megabytes


@dataclass(frozen=True)
class Directions:
    """The layout of directions (d,) and of the rows they are cut from.

    dimension: d.  matrices: (first coordinate, rows, columns) of each matrix of weights that is a product, in order;
    with none of them a row is the direction.  rank: r.
    """

    dimension: int
    matrices: tuple = ()
    rank: int = 1

    @functools.cached_property
    def parts(self):
        """(start, stop, place, matrix) of each part: its coordinates, where its normals begin in the row.

        matrix: (rows, columns) of a product; None of independent normals, as is a matrix that a product would not save
        a normal of.
        """
        parts, done, place = [], 0, 0
        for start, rows, columns in self.matrices:
            if self.rank * (rows + columns) >= rows * columns:
                continue
            parts += [
                (done, start, place, None),
                (start, start + rows * columns, place + start - done, (rows, columns)),
            ]
            place += start - done + self.rank * (rows + columns)
            done = start + rows * columns
        parts.append((done, self.dimension, place, None))
        return [part for part in parts if part[0] < part[1]]

    @property
    def length(self):
        """Normals of the row of a member."""
        start, stop, place, matrix = self.parts[-1]
        return place + (self.rank * sum(matrix) if matrix else stop - start)

    def direction(self, table, index, out):
        """The direction (d,) whose row begins at an index of the table: that row, or `out` (d,) filled with it."""
        if self.length == self.dimension:
            return table[index : index + self.dimension]
        for start, stop, place, matrix in self.parts:
            normals = table[index + place :]
            if matrix is None:
                out[start:stop] = normals[: stop - start]
                continue
            rows, columns = matrix
            left = normals[: self.rank * rows].reshape(self.rank, rows) / table.dtype.type(math.sqrt(self.rank))
            right = normals[self.rank * rows : self.rank * (rows + columns)].reshape(self.rank, columns)
            np.einsum("ki,kj->ij", left, right, out=out[start:stop].reshape(matrix))  # twice as fast as multiply.outer
        return out

    def moments(self, table, indices, weights, start, stop):
        """As solvers.moments.moments, of these directions.  Only linear sums where there are products.

        A product computes whole tiles of a matrix, cut by its shape alone, of which the coordinates asked for are
        kept: so any split of the coordinates gives the same bits.
        """
        if self.length == self.dimension:
            return moments(table, indices, weights, start, stop)
        if len(weights.square):
            raise ValueError("the squares of directions of low rank are not summed; only linear weights are")
        indices = np.asarray(indices, np.int64)
        sums = np.empty((len(weights.linear), stop - start), table.dtype)
        for first, last, place, matrix in self.parts:
            low, high = max(first, start), min(last, stop)
            if low >= high:
                continue
            out = sums[:, low - start : high - start]
            if matrix is None:
                out[:] = moments(table, indices + place, weights, low - first, high - first)
            else:
                self._sum_products(table, indices + place, weights.linear, matrix, low - first, high - first, out)
        return sums

    def _sum_products(self, table, indices, linear, matrix, low, high, out):
        """Write the sums of the coordinates [low, high) of a matrix into `out` (a, high - low)."""
        rows, columns = matrix
        count = math.ceil(rows / TILE)
        edges = rows * np.arange(count + 1) // count  # tiles differ by a row at most, so none is a single row
        edges = edges[np.searchsorted(edges, low // columns, "right") - 1 :]
        edges = edges[: np.searchsorted(edges, math.ceil(high / columns)) + 1]
        skip = edges[0] * columns
        sums = np.zeros((len(linear), (edges[-1] - edges[0]) * columns), table.dtype)
        for begin in range(0, len(indices), MEMBERS):
            some = indices[begin : begin + MEMBERS]
            right = self._factors(table, some + self.rank * rows, columns, 0, columns)
            for top, bottom in zip(edges[:-1], edges[1:], strict=True):
                left = self._factors(table, some, rows, top, bottom)
                for order, weight in enumerate(linear[:, begin : begin + MEMBERS]):
                    scale = np.repeat(weight / table.dtype.type(math.sqrt(self.rank)), self.rank)[:, None]
                    tile = sums[order, top * columns - skip : bottom * columns - skip]
                    tile += np.matmul((left * scale).T, right).ravel()
        out[:] = sums[:, low - skip : high - skip]

    def _factors(self, table, indices, size, low, high):
        """Numbers [low, high) of the r vectors of `size` numbers at each index, (indices * r, high - low)."""
        places = (indices[:, None] + size * np.arange(self.rank) + low).ravel()
        return np.ascontiguousarray(sliding_window_view(table, high - low)[places])

    def state(self):
        """Names to arrays, from which `recall` makes it again; none where directions are independent normals."""
        if not self.matrices:
            return {}
        return {"low_rank/rank": np.int64(self.rank), "low_rank/matrices": np.array(self.matrices, np.int64)}


def recall(dimension, state):
    """The Directions in the state of a solver."""
    if "low_rank/rank" not in state:
        return Directions(dimension)
    matrices = tuple(tuple(map(int, row)) for row in state["low_rank/matrices"])
    return Directions(dimension, matrices, int(state["low_rank/rank"]))
