"""The run directory: what is written, and how it is read.

The package is also the function mpies.runs(folder) of the Python API, since both have the same name.
"""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any


class _RunsModule(ModuleType):
    def __call__(self, folder: str | Path = "runs") -> Any:
        """The runs below a folder, as a list of mpies.Run.  Raises RunError where there is no such folder."""
        return sys.modules["mpies"].list_runs(folder)  # of mpies.api, which this package must not import


sys.modules[__name__].__class__ = _RunsModule
