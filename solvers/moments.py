"""Weighted sums over the noise rows: where nearly every solver on the noise table spends its O(n d) time.

For numbers a_k and c_k of noise row z_k they are, for each coordinate,
A = sum_k a_k z_k (linear) and C = sum_k c_k z_k^2 (square).
The rows of a coordinate are added in member order, by one multiplication and one addition each: no BLAS, no fused
multiply-add.  So the result has the same bits however the coordinates are split among ranks.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from mpies.core.arrays import Float32s, FloatArray, Int64s
from mpies.solvers.sampling.noise import LINE

TILE = 49152  # most coordinates summed at a time, so that sums and products stay in the second-level cache
BLOCK = 32768  # coordinates per partial sum of an inner product; the bits of `dot` depend on it


@dataclass(frozen=True)
class Weights:
    """What a solver wants summed, for k noise rows.  linear: (a, k).  square: (c, k)."""

    linear: FloatArray
    square: FloatArray


def no_square(rows: int) -> Float32s:
    """The `square` part (0, rows) for solvers that need linear moments only."""
    return np.zeros((0, rows), np.float32)


def fold_pairs(linear: FloatArray, square: FloatArray) -> Weights:
    """Weights per noise row, from weights per member of antithetic pairs (+z, -z, +z, -z, ...).

    linear: (a, n), square: (c, n), n even.  The sign of z matters for the first moment and not for the second, so the
    row of a pair gets a+ - a- and c+ + c-.  Returns Weights of n / 2 rows.
    """
    return Weights(linear[:, 0::2] - linear[:, 1::2], square[:, 0::2] + square[:, 1::2])


def moments(table: FloatArray, indices: Iterable[int], weights: Weights, start: int, stop: int) -> FloatArray:
    """The moments of the noise rows over the coordinates [start, stop).

    table: (size,).  indices: (k,) first coordinate of each row in the table.
    Returns (a + c, stop - start), the linear moments first, in the dtype of the table.
    """
    orders = len(weights.linear) + len(weights.square)
    sums = _allocate_on_cache_lines(orders, stop - start, table.dtype)
    sums[:] = 0
    tiles = max(1, math.ceil((stop - start) / TILE))
    tile = max(LINE, math.ceil((stop - start) / tiles / LINE) * LINE)  # equal sizes but for the last
    product, squared = _allocate_on_cache_lines(2, tile, table.dtype)
    rows = [(int(index), *column) for index, *column in zip(indices, *weights.linear, *weights.square, strict=True)]
    rows = [row for row in rows if any(row[1:])]  # rows without weight need not be read
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


def split(dimension: int, ranks: int) -> Int64s:
    """Bounds (ranks + 1,) of the coordinates of each rank: equal shares that begin on cache lines."""
    lines = math.ceil(dimension / LINE)
    return np.minimum(LINE * (lines * np.arange(ranks + 1) // ranks), dimension)


def _allocate_on_cache_lines(rows: int, columns: int, dtype: np.dtype[np.floating]) -> FloatArray:
    """An array (rows, columns) of undefined content.  Each row begins on a cache line of 64 bytes."""
    size = dtype.itemsize
    stride = math.ceil(columns / LINE) * LINE
    memory = np.empty(rows * stride + 64 // size, dtype)
    skip = -memory.ctypes.data % 64 // size
    return memory[skip : skip + rows * stride].reshape(rows, stride)[:, :columns]


def dot(one: FloatArray, other: FloatArray) -> float:
    """Inner product of two vectors (d,), with bits that depend on their values only.

    Float64 sums over fixed blocks, themselves added with exact rounding (math.fsum).  NaN if the sum overflows.
    """
    blocks = (slice(low, low + BLOCK) for low in range(0, len(one), BLOCK))
    return _sum_exactly(np.sum(one[part].astype(np.float64) * other[part].astype(np.float64)) for part in blocks)


def summed(vector: FloatArray) -> float:
    """Sum of a vector (d,), computed as in `dot`."""
    return _sum_exactly(np.sum(vector[low : low + BLOCK], dtype=np.float64) for low in range(0, len(vector), BLOCK))


def _sum_exactly(parts: Iterable[np.float64]) -> float:
    try:
        return math.fsum(map(float, parts))
    except (OverflowError, ValueError):  # inf - inf
        return math.nan


def norm(vector: FloatArray) -> float:
    """Euclidean norm of a vector (d,), computed as in `dot`."""
    return math.sqrt(dot(vector, vector))
