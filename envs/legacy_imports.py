"""What old packages import that newer Pythons no longer have: pybullet_envs wants pkg_resources of setuptools."""

from __future__ import annotations

import contextlib
import importlib.util
import re
import sys
from collections.abc import Iterator
from types import ModuleType


@contextlib.contextmanager
def provide_pkg_resources() -> Iterator[None]:
    """Let the `with` block import pkg_resources where setuptools is absent or too new to have it.

    It then has nothing but `parse_version`, which is all that pybullet_envs uses.  It is gone after the block: whoever
    looks for pkg_resources later finds out that there is none.
    """
    name = "pkg_resources"
    if name in sys.modules or importlib.util.find_spec(name):
        yield
        return
    stand_in = ModuleType(name, "Provided by mpies.envs.legacy_imports.")
    stand_in.parse_version = parse_version  # type: ignore[attr-defined]
    sys.modules[name] = stand_in
    try:
        yield
    finally:
        sys.modules.pop(name, None)


def parse_version(version: str) -> tuple[int, ...]:
    """The numbers of a version such as 0.26.2, which compare as versions of releases do."""
    return tuple(int(number) for number in re.findall(r"\d+", version))
