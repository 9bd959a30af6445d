"""Random streams, for custom solvers; they are those of the whole program."""

from mpies.core.streams import SOLVER, stream

__all__ = ["SOLVER", "stream"]
