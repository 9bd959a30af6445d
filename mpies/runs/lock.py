"""The lock of a run directory: one job writes it at a time."""

import contextlib
import fcntl
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mpies.comm.processes import process_start
from mpies.core.errors import RunLocked
from mpies.runs.files import open_regular, pack_checked, parse_checked, write_atomically

LOCK_FILE = "writer.json"  # in the run directory
GUARD_FILE = ".writer.lock"  # in the run directory, while a job takes or releases the lock
HEARTBEAT = 2.0  # seconds between heartbeats
STALE = 15.0  # seconds without a heartbeat after which a writer on another host or in another container counts as dead
GUARD_PATIENCE = 5.0  # seconds that a job waits for another that takes or releases the lock; it takes milliseconds


class Lock:
    """Holds RUN/writer.json from `acquire` to `release`; a thread writes the time into it every HEARTBEAT seconds.

    path: the run directory.  job: a name that all ranks of a job share: where rank 0 dies, another rank of the same
    job may take the lock at once.
    is_held: turns False when another job has taken the lock; then this process must write no more.
    """

    def __init__(self, path: str | Path, job: str | None = None) -> None:
        self.file = Path(path) / LOCK_FILE
        self.is_held = False
        self._thread: threading.Thread | None = None  # writes the heartbeats
        token = uuid.uuid4().hex
        self._owner = {
            "job": job or token,
            "token": token,
            **_machine(),
            "pid": os.getpid(),
            "start": process_start(os.getpid()),
        }

    def acquire(self) -> None:
        """Take the lock, also from another Lock of the same job, which then no longer holds it.

        Raises RunLocked while another job holds it and is alive.
        """
        if self._read() is None and self.file.exists():  # damaged; a job that is alive writes it again
            time.sleep(2 * HEARTBEAT)
        with guarded(self.file.with_name(GUARD_FILE)):
            owner = self._read()
            if owner and owner["job"] != self._owner["job"] and is_alive(owner):
                ago = max(0.0, time.time() - owner["beat"])  # the clock of another host may be ahead
                raise RunLocked(
                    f"{self.file.parent}: is being written by process {owner['pid']} on {owner['host']}, whose last "
                    f"heartbeat was {ago:.0f} s ago; wait for it, stop it, or choose another --out"
                )
            self._write()
        if not self.is_held:
            self.is_held = True
            self._stop = threading.Event()
            self._thread = threading.Thread(target=self._beat, daemon=True)
            self._thread.start()

    def release(self) -> None:
        if self.is_held:
            self.is_held = False
            if self._thread:
                self._stop.set()
                self._thread.join(HEARTBEAT)  # a heartbeat that is being written would bring the file back
                self._thread = None
            with guarded(self.file.with_name(GUARD_FILE)):
                owner = self._read()
                if owner and owner["token"] == self._owner["token"]:
                    try:
                        self.file.unlink(missing_ok=True)
                    except OSError:  # without the start of a process, a lock counts as released
                        self._write(start=None, beat=0.0)

    def check(self) -> None:
        """Raise RunLocked when another job has taken the lock."""
        owner = self._read()
        if owner and owner["token"] != self._owner["token"]:
            self.is_held = False
            raise RunLocked(f"{self.file.parent}: was taken over by process {owner['pid']} on {owner['host']}")

    def _beat(self) -> None:
        while not self._stop.wait(HEARTBEAT):
            with guarded(self.file.with_name(GUARD_FILE)):
                owner = self._read()
                if owner and owner["token"] != self._owner["token"]:
                    self.is_held = False
                if not self.is_held:  # another job has taken the lock, or it was released while this waited
                    return
                self._write()

    def _write(self, **changes: object) -> None:
        """Write a heartbeat, with these changes; where the disk is full or gone, the next heartbeat tries again."""
        with contextlib.suppress(OSError):
            write_atomically(self.file, pack_checked({**self._owner, "beat": time.time(), **changes}), sync=False)

    def _read(self) -> dict[str, Any] | None:
        """The content of the file; None where it is absent or damaged."""
        try:
            with open_regular(self.file) as file:
                owner = parse_checked(file.read().decode())
        except (OSError, ValueError):
            return None
        return owner if is_owner(owner) else None


@contextlib.contextmanager
def guarded(path: Path) -> Iterator[None]:
    """Only one process at a time runs the code in the `with` block.  path: of a file that exists in the meantime.

    Where the file system cannot lock files, or a process that holds the guard is frozen, the code runs all the same.
    """
    guard = None
    with contextlib.suppress(OSError):
        guard = _lock_file(path)
    try:
        yield
    finally:
        if guard is not None:
            with contextlib.suppress(OSError):
                path.unlink()
            os.close(guard)


def _lock_file(path: Path) -> int:
    """The descriptor of a file that this process has locked.  Raises OSError where that is not possible in time."""
    deadline = time.monotonic() + GUARD_PATIENCE
    while time.monotonic() < deadline:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                return descriptor
        except (BlockingIOError, FileNotFoundError):  # another process has locked it, or has just removed it
            pass
        except OSError:
            os.close(descriptor)
            raise
        os.close(descriptor)
        time.sleep(0.002)
    raise TimeoutError


def _machine() -> dict[str, str]:
    """Where a process number counts: a host since it was booted; a container mostly has numbers of its own."""
    found = {"host": socket.gethostname(), "boot": "", "namespace": ""}
    with contextlib.suppress(OSError):
        found["boot"] = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        found["namespace"] = os.readlink("/proc/self/ns/pid")
    return found


def is_lock_file(name: str) -> bool:
    """Whether a file of this name, in a run directory, is the lock or what is used to take it."""
    return name in (LOCK_FILE, GUARD_FILE) or name.startswith(f".{LOCK_FILE}.")


def is_owner(values: Any) -> bool:
    """Whether this is the content of a lock file."""
    names = {"job", "token", "host", "pid", "start", "boot", "namespace", "beat"}
    is_whole = isinstance(values, dict) and names <= values.keys() and isinstance(values["beat"], (int, float))
    return is_whole and abs(values["beat"]) < 1e15  # NaN is not


def is_alive(owner: dict[str, Any]) -> bool:
    """Whether the owner of a lock still runs: its process tells, on another host or in a container its heartbeat."""
    if _machine().items() <= owner.items():
        return owner["start"] is not None and process_start(owner["pid"]) == owner["start"]
    return bool(time.time() - owner["beat"] < STALE)
