"""The mathematics of mpies: solvers, the noise table, fitness shaping.  No MPI and no environments."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mpies.solvers.check import check_solver
    from mpies.solvers.registry import SOLVERS, find_solver

__all__ = ["SOLVERS", "check_solver", "find_solver"]


def __getattr__(name: str) -> Any:  # when it is asked for: importing all solvers takes a while
    if name in __all__:
        return getattr(importlib.import_module(f"{__name__}.{'check' if name == 'check_solver' else 'registry'}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
