"""Policies trained by evolution strategies on CPU clusters: the same bits on one rank as on a thousand.

The Python API: `mpies.train`, `mpies.load` and the rest of `__all__`.  Each is imported when it is first used, so that
`import mpies` itself costs next to nothing and changes nothing of the process.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mpies.config.schema import Config
    from mpies.errors import ConfigError, RunError, RunLocked, UserError

__version__ = "0.1.0"

_MODULES = {
    "Config": "mpies.config.schema",
    "ConfigError": "mpies.errors",
    "RunError": "mpies.errors",
    "RunLocked": "mpies.errors",
    "UserError": "mpies.errors",
}

__all__ = ["Config", "ConfigError", "RunError", "RunLocked", "UserError"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'mpies' has no attribute {name!r}")
    value = getattr(importlib.import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
