"""Processes of this host, told apart even when the kernel reuses a process number."""

from pathlib import Path


def process_start(pid: int) -> int | None:
    """When a process of this host began, in clock ticks since boot; None where it does not run."""
    try:
        state, *values = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return None if state in "ZX" else int(values[18])
    except (OSError, ValueError, IndexError):
        return None
