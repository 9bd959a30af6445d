"""Processes of this host, told apart even when the kernel reuses a process number."""

import contextlib
import os
import signal
from pathlib import Path


def kill_with_variable(name: str, value: str) -> list[int]:
    """Kill this user's processes on this host that were started with an environment variable of this value.

    Returns their process numbers.
    """
    wanted, killed = f"{name}={value}".encode(), []
    for path in Path("/proc").glob("[0-9]*/environ"):
        pid = int(path.parent.name)
        with contextlib.suppress(OSError):
            if pid != os.getpid() and wanted in path.read_bytes().split(b"\0"):
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)
    return killed


def variable_of_children(pid: int, name: str) -> list[str]:
    """The values of an environment variable that live children of a process of this host were started with."""
    children: list[str] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            children += path.read_text().split()
    found = []
    for child in children:
        with contextlib.suppress(OSError):  # it has ended meanwhile, or is another program, such as ssh
            words = Path(f"/proc/{child}/environ").read_bytes().decode(errors="replace").split("\0")
            found += [word.partition("=")[2] for word in words if word.startswith(f"{name}=")]
    return found


def variables_with(name: str, value: str) -> list[dict[str, str]]:
    """The environments, each as names to values, of this user's processes that have a variable of this value."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            words = path.read_bytes().decode(errors="replace").split("\0")
            if f"{name}={value}" in words:
                found.append(dict(word.split("=", 1) for word in words if "=" in word))
    return found


def process_start(pid: int) -> int | None:
    """When a process of this host began, in clock ticks since boot; None where it does not run."""
    try:
        state, *values = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return None if state in "ZX" else int(values[18])
    except (OSError, ValueError, IndexError):
        return None
