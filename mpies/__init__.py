"""Policies trained by evolution strategies on CPU clusters: the same bits on one rank as on a thousand.

The Python API: `mpies.train`, `mpies.load` and the rest of `__all__`.  Each is imported when it is first used, so that
`import mpies` itself costs next to nothing and changes nothing of the process.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mpies.api.optimize.ask_tell import AskTell
    from mpies.api.optimize.minimize import OptimizeResult, maximize, minimize
    from mpies.api.policy import Policy
    from mpies.api.run import Run, load
    from mpies.api.run import list_runs as runs
    from mpies.api.sweep import SweepResult, sweep
    from mpies.api.train import start, train
    from mpies.config.schema import Config
    from mpies.core.errors import (
        ConfigError,
        EnvironmentProblem,
        RunError,
        RunLocked,
        SolverProblem,
        TrainingFailed,
        UserError,
    )

__version__ = "0.1.0"

_ERRORS = "ConfigError", "EnvironmentProblem", "RunError", "RunLocked", "SolverProblem", "TrainingFailed", "UserError"
_MODULES = {
    "mpies.api.optimize.ask_tell": ("AskTell",),
    "mpies.api.optimize.minimize": ("OptimizeResult", "maximize", "minimize"),
    "mpies.api.policy": ("Policy",),
    "mpies.api.run": ("Run", "list_runs", "load"),
    "mpies.api.sweep": ("SweepResult", "sweep"),
    "mpies.api.train": ("start", "train"),
    "mpies.config.loading": ("Config",),  # which has Config(...) read own solvers, too
    "mpies.core.errors": _ERRORS,
    "mpies.runs": ("runs",),  # the package itself can be called
}

__all__ = [
    "AskTell",
    "Config",
    "ConfigError",
    "EnvironmentProblem",
    "OptimizeResult",
    "Policy",
    "Run",
    "RunError",
    "RunLocked",
    "SolverProblem",
    "SweepResult",
    "TrainingFailed",
    "UserError",
    "load",
    "maximize",
    "minimize",
    "runs",
    "start",
    "sweep",
    "train",
]


def __getattr__(name: str) -> Any:
    found = [module for module, names in _MODULES.items() if name in names]
    if not found:
        raise AttributeError(f"module 'mpies' has no attribute {name!r}")
    module = importlib.import_module(found[0])
    value = module if module.__name__ == f"mpies.{name}" else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
