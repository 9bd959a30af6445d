"""What the machine and the control groups of its container allow this process."""

import os
from collections.abc import Mapping
from pathlib import Path

from mpies.core.errors import ConfigError, NotEnoughSharedMemory

# What needs memory, in the words of the message.
PARAMETERS, SOLVER = "the parameters", "the state of the solver"


def find_limits(
    groups: str | Path = "/proc/self/cgroup", root: str | Path = "/sys/fs/cgroup"
) -> tuple[int | None, float | None]:
    """Bytes of memory, and number of processors, that control groups allow; None where they set no limit.

    groups: the file that names this process's group.  Limits of the group and of all groups above it count, as far as
    they can be read below `root`, in versions 1 and 2 of the interface.
    """
    try:
        lines = [line.split(":", 2) for line in Path(groups).read_text().splitlines()]
    except OSError:
        return None, None
    memory: list[int] = []
    processors: list[float] = []
    for _, controllers, path in lines:
        for controller in controllers.split(",") if controllers else [""]:
            base = Path(root) / controller
            group = base / path.lstrip("/")
            for folder in (group, *group.parents):
                if not folder.is_relative_to(base):
                    break
                memory += _read_numbers(folder / "memory.max") + _read_numbers(folder / "memory.limit_in_bytes")
                # Microseconds in each period, and its length.
                quota = _read_numbers(folder / "cpu.max") or [
                    *_read_numbers(folder / "cpu.cfs_quota_us"),
                    *_read_numbers(folder / "cpu.cfs_period_us"),
                ]
                if len(quota) == 2 and quota[0] > 0:
                    processors.append(quota[0] / quota[1])
    memory = [bound for bound in memory if bound < 2**60]  # version 1 writes "no limit" as a huge number
    return min(memory, default=None), min(processors, default=None)


def _read_numbers(path: Path) -> list[int]:
    """The whole numbers in a file of the kernel; none where it is absent or holds the word max."""
    try:
        return [int(word) for word in path.read_text().split()]
    except (OSError, ValueError):
        return []


def available_memory() -> int:
    """Bytes of memory that the machine could give to a new process."""
    lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    return int(lines["MemAvailable"].split()[0]) * 1024


def usable_memory() -> int:
    """Bytes of memory that this process may use: what is available, or less where a container has a limit."""
    limit, _ = find_limits()
    available = available_memory()
    return available if limit is None else min(limit, available)


def require_memory(needs: Mapping[str, int]) -> None:
    """Raise ConfigError where the needs together exceed what this process may use.

    needs: names of what needs the memory, to bytes.
    """
    usable, total = usable_memory(), sum(needs.values())
    if total > usable:
        largest = max(needs, key=lambda name: needs[name])
        whole, part = describe_size(total), describe_size(needs[largest])
        share = f", {part} of it" if part != whole else ""
        raise ConfigError(
            f"a rank needs at least {whole} of memory{share} for {largest}, but {describe_size(usable)} can be used "
            "here; make that smaller, or use a machine with more memory"
        )


def lacking_shared_memory(size: int) -> int:
    """Bytes that /dev/shm lacks for `size` more.  Without this check the kernel would kill who writes to them."""
    try:
        state = os.statvfs("/dev/shm")
    except OSError:
        return 0
    return max(0, size + 2**20 - state.f_bavail * state.f_frsize)


def refuse_lack(size: int, short: int, key: str = "noise.size") -> None:
    """Raise NotEnoughSharedMemory where `size` bytes for a key are `short` of some."""
    if short:
        raise NotEnoughSharedMemory(
            f"/dev/shm of a node is too small for {size / 2**20:.0f} MB of shared memory, by {short / 2**20:.0f} "
            f"MB: lower {key}, or give the container a larger /dev/shm (a memory volume, --shm-size)"
        )


def describe_size(count: float) -> str:
    """Bytes for people, such as 1.5 GB."""
    if count < 2**30:
        return f"{count / 2**20:,.0f} MB"
    return f"{count // 2**30:,} GB" if count >= 10 * 2**30 else f"{count / 2**30:.1f} GB"
