"""Processes of this host, told apart even when the kernel reuses a process number."""

import contextlib
import os
import signal
from pathlib import Path


def kill_with_variable(name: str, value: str) -> None:
    """Kill this user's processes on this host that were started with an environment variable of this value."""
    for pid in _processes():
        if pid != os.getpid() and f"{name}={value}" in _variables(pid):
            with contextlib.suppress(OSError):  # it has ended meanwhile
                os.kill(pid, signal.SIGKILL)


def variables_with(name: str, value: str) -> list[dict[str, str]]:
    """The environments, each as names to values, of this user's processes that have a variable of this value."""
    environments = (words for pid in _processes() if f"{name}={value}" in (words := _variables(pid)))
    return [dict(word.split("=", 1) for word in words if "=" in word) for words in environments]


def _processes() -> list[int]:
    """The numbers of all processes of this host."""
    return [int(path.name) for path in Path("/proc").glob("[0-9]*")]


def _variables(pid: int) -> list[str]:
    """The environment of a process as NAME=VALUE; [] where it has ended or belongs to another user."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def process_start(pid: int) -> int | None:
    """When a process of this host began, in clock ticks since boot; None where it does not run."""
    try:
        state, *values = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return None if state in "ZX" else int(values[18])
    except (OSError, ValueError, IndexError):
        return None
