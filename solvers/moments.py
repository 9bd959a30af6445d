"""The moments kernel: the O(n d) part of nearly every solver on the noise table.

For per-row scalars a and c it computes, elementwise over coordinates,
A = sum_k a_k z_k and C = sum_k c_k z_k^2.  Per coordinate the rows are added in member order,
with a separate multiply and add (no BLAS, no fused multiply-add), so any split of the
coordinates over ranks gives the same bits.
"""

import math
from dataclasses import dataclass

import numpy as np

from solvers.noise import LINE

TILE = 49152  # coordinates at a time, at most: accumulator and scratch stay in the second-level cache
BLOCK = 32768  # coordinates per partial sum of an inner product


@dataclass(frozen=True)
class Weights:
    """What a solver wants summed.  linear: (a, k) float32; square: (c, k) float32; k noise rows."""

    linear: np.ndarray
    square: np.ndarray


def no_square(rows):
    """An empty `square` part for solvers that need first moments only."""
    return np.zeros((0, rows), np.float32)


def fold_pairs(linear, square):
    """Weights per noise row from weights per member of antithetic pairs (+z, -z, +z, -z, ...).

    linear: (a, n), square: (c, n) float32 with n even.  As -z flips the sign of the first moment and
    not of the second, the row of a pair weighs a+ - a- and c+ + c-.  Returns Weights of n/2 rows.
    """
    return Weights(linear[:, 0::2] - linear[:, 1::2], square[:, 0::2] + square[:, 1::2])


def moments(table, indices, weights, start, stop):
    """Weighted moments of the noise rows over the coordinates [start, stop).

    table: (size,) float32.  indices: (k,) first coordinate of each row in the table.
    Returns (a + c, stop - start) float32: first the linear sums, then the square ones.
    """
    orders = len(weights.linear) + len(weights.square)
    sums = _on_cache_lines(orders, stop - start, table.dtype)
    sums[:] = 0
    tiles = max(1, math.ceil((stop - start) / TILE))
    tile = max(LINE, math.ceil((stop - start) / tiles / LINE) * LINE)  # all of one size
    product, squared = _on_cache_lines(2, tile, table.dtype)
    rows = [(int(index), *column) for index, *column in zip(indices, *weights.linear, *weights.square, strict=True)]
    rows = [row for row in rows if any(row[1:])]  # what weighs nothing need not be read
    multiply, add = np.multiply, np.add
    if orders == 1 and len(weights.linear) == 1:  # the common case, without the inner loops
        for low in range(start, stop, tile):
            high = min(low + tile, stop)
            total, scratch = sums[0, low - start : high - start], product[: high - low]
            for index, a in rows:
                multiply(table[index + low : index + high], a, out=scratch)
                add(total, scratch, out=total)
        return sums
    for low in range(start, stop, tile):
        high = min(low + tile, stop)
        totals, scratch, square = sums[:, low - start : high - start], product[: high - low], squared[: high - low]
        for index, *column in rows:
            z = table[index + low : index + high]
            for order in range(len(weights.linear)):
                multiply(z, column[order], out=scratch)
                add(totals[order], scratch, out=totals[order])
            if len(weights.square):
                multiply(z, z, out=square)
            for order in range(len(weights.linear), orders):
                multiply(square, column[order], out=scratch)
                add(totals[order], scratch, out=totals[order])
    return sums


def split(dimension, ranks):
    """Bounds (ranks + 1,) of the coordinates of each rank: equal shares that begin on cache lines."""
    lines = math.ceil(dimension / LINE)
    return np.minimum(LINE * (lines * np.arange(ranks + 1) // ranks), dimension)


def _on_cache_lines(rows, columns, dtype):
    """An array (rows, columns), undefined, each row of which begins on a cache line of 64 bytes."""
    size = np.dtype(dtype).itemsize
    stride = math.ceil(columns / LINE) * LINE
    memory = np.empty(rows * stride + 64 // size, dtype)
    skip = -memory.ctypes.data % 64 // size
    return memory[skip : skip + rows * stride].reshape(rows, stride)[:, :columns]


def dot(one, other):
    """Inner product of two vectors, as a float with the same bits however they came about.

    Exactly rounded sum (math.fsum) of float64 partial sums over fixed blocks; NaN where it overflows.
    """
    blocks = (slice(low, low + BLOCK) for low in range(0, len(one), BLOCK))
    return _exact(np.sum(one[part].astype(np.float64) * other[part].astype(np.float64)) for part in blocks)


def summed(vector):
    """Sum of a vector in the manner of `dot`."""
    return _exact(np.sum(vector[low : low + BLOCK], dtype=np.float64) for low in range(0, len(vector), BLOCK))


def _exact(parts):
    try:
        return math.fsum(map(float, parts))
    except (OverflowError, ValueError):  # inf - inf
        return math.nan


def norm(vector):
    """Euclidean norm, from `dot`."""
    return math.sqrt(dot(vector, vector))
