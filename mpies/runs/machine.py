"""The machine that a run is trained on, in words: seconds can be compared only where it is the same."""

import os
import platform
import re
from pathlib import Path

from mpies.core.text import counted


def describe_machine(hosts: int = 1) -> str:
    """The processor and the number of CPUs of this host, in one line.

    hosts: number of hosts that train together; the others are not looked at.
    """
    processor = " ".join(re.sub(r"\((R|TM)\)", "", find_processor()).split())
    count = os.cpu_count() or 1
    own = f"{processor}, {counted(count, 'CPU')}"
    return own if hosts == 1 else f"{hosts} hosts, rank 0 on {own}"


def find_processor() -> str:
    """The name of this machine's processor."""
    info = Path("/proc/cpuinfo")
    for line in info.read_text().splitlines() if info.exists() else ():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
