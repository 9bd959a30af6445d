"""Where the parameters of a function may lie: within bounds, and whole numbers in some coordinates.

A solver searches all of R^d.  `Domain.from_solver` maps its members into the bounds by pycma's own transformation
(cma.transformations.BoxConstraintsLinQuadTransformation): the identity in the inner nine tenths or so of an interval,
quadratic towards its ends, and mirrored beyond them.  So any solver works within bounds, and none sees them.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mpies.api.arguments import read_numbers
from mpies.core.arrays import FloatArray
from mpies.core.errors import UserError
from mpies.core.text import describe_value

Vector = npt.NDArray[np.float64]
Bounds = tuple[npt.ArrayLike | None, npt.ArrayLike | None] | Sequence[npt.ArrayLike | None]


@dataclass(frozen=True)
class Domain:
    """The domain of a function of d parameters.

    low, high: (d,) bounds, infinite where there is none.
    integers: (k,) the coordinates that are whole numbers.  Members are rounded there, halves to the even number,
    before the function gets them; the solver goes on with what it drew.  Between bounds each whole number has the same
    share of the interval that is searched: it reaches half a unit beyond the first and the last.
    """

    low: Vector
    high: Vector
    integers: npt.NDArray[np.int64]

    @classmethod
    def of(cls, dimension: int, bounds: Bounds | None = None, integers: npt.ArrayLike | None = None) -> "Domain":
        """The domain of these arguments of AskTell and minimize.  Raises UserError, in one line, where one is wrong."""
        try:
            low, high = (None, None) if bounds is None else bounds
        except (TypeError, ValueError):
            given = describe_value(bounds)
            raise UserError(f"bounds must be (low, high), but is {given}; a pair for each is zip(*pairs)") from None
        low, high = _read_bound("low", low, dimension, -np.inf), _read_bound("high", high, dimension, np.inf)
        wholes = _read_integers(integers, dimension)
        low[wholes], high[wholes] = np.ceil(low[wholes]), np.floor(high[wholes])
        is_whole = np.isin(np.arange(dimension), wholes)
        wrong = np.flatnonzero(np.where(is_whole, low > high, low >= high))
        if len(wrong):
            first = wrong[0]
            what = "hold no whole number" if is_whole[first] else "must be low < high"
            raise UserError(f"bounds of coordinate {first} {what}, but are {low[first]:g} and {high[first]:g}")
        return cls(low, high, wholes)

    @functools.cached_property
    def _has_bounds(self) -> bool:
        return bool(np.isfinite(self.low).any() or np.isfinite(self.high).any())

    @functools.cached_property
    def _transformation(self) -> Any:
        from cma.transformations import BoxConstraintsLinQuadTransformation

        low, high = self.low.copy(), self.high.copy()
        low[self.integers] -= 0.5
        high[self.integers] += 0.5
        return BoxConstraintsLinQuadTransformation(list(zip(low.tolist(), high.tolist(), strict=True)))

    def to_solver(self, x0: Vector) -> Vector:
        """The point (d,) where the solver begins, so that `from_solver` leads to `x0` (d,).

        Raises UserError where x0 lies outside of the bounds.
        """
        rounded = x0.copy()
        rounded[self.integers] = np.rint(x0[self.integers])
        is_outside = (rounded < self.low) | (rounded > self.high)
        if is_outside.any():
            first = int(np.flatnonzero(is_outside)[0])
            raise UserError(
                f"x0 must lie within the bounds, but is {x0[first]:g} at coordinate {first}, whose bounds are "
                f"{self.low[first]:g} and {self.high[first]:g}; give another x0, or wider bounds"
            )
        return np.array(self._transformation.inverse(x0), np.float64) if self._has_bounds else x0

    def from_solver(self, members: FloatArray) -> FloatArray:
        """The members (n, d) that the function gets, from those (n, d) that the solver drew.

        They are float64, but copies of the solver's own where every real vector is in the domain.
        """
        if not len(self.integers) and not self._has_bounds:
            return members.copy()
        inside = np.array(members, np.float64)
        if self._has_bounds:
            with np.errstate(all="ignore"):  # those far away come back with rounding errors, or overflow
                for row in inside:
                    row[:] = self._transformation(row)
            inside.clip(self.low, self.high, inside)
        inside[:, self.integers] = np.rint(inside[:, self.integers])
        return inside


def _read_bound(name: str, bound: npt.ArrayLike | None, dimension: int, default: float) -> Vector:
    """A bound (d,) from a number, a vector, or None, also within it."""
    needed = f"bounds: {name} must be a number or {dimension} numbers, one for each coordinate"
    numbers = read_numbers(needed, bound)  # None, also within it, becomes NaN
    if numbers.shape not in ((), (1,), (dimension,)):
        raise UserError(f"{needed}, but is {describe_value(bound)}")
    return np.broadcast_to(np.where(np.isnan(numbers), default, numbers), dimension).copy()


def _read_integers(integers: npt.ArrayLike | None, dimension: int) -> npt.NDArray[np.int64]:
    """The coordinates (k,) that are whole numbers, from their indices or from a mask."""
    if integers is None:
        return np.zeros(0, np.int64)
    try:
        given = np.array(list(integers))  # type: ignore[arg-type]  # a single number has no list
    except (TypeError, ValueError):  # such a number, or lists of different lengths
        given = np.zeros(())
    if given.dtype == np.bool_ and given.shape == (dimension,):
        return np.flatnonzero(given)
    is_index = given.ndim == 1 and (given.dtype.kind in "iu" or not len(given))
    if not is_index or (given < 0).any() or (given >= dimension).any():
        raise UserError(
            f"integers must be indices from 0 to {dimension - 1}, of the coordinates that are whole numbers, "
            f"but is {integers!r}"
        )
    return np.unique(given).astype(np.int64)
