"""The mathematics of mpies: solvers, the noise table, fitness shaping.  No MPI and no environments."""

from mpies.solvers.registry import SOLVERS, find_solver

__all__ = ["SOLVERS", "find_solver"]
