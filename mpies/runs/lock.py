"""The lock of a run directory: one job writes it at a time."""

import contextlib
import json
import os
import socket
import threading
import time
import uuid
from pathlib import Path
from typing import Any

from mpies.comm.processes import process_start
from mpies.errors import RunLocked

LOCK_FILE = "writer.json"  # in the run directory
HEARTBEAT = 2.0  # seconds between heartbeats
STALE = 15.0  # seconds without a heartbeat after which a writer on another host counts as dead


class Lock:
    """Holds RUN/writer.json from `acquire` to `release`; a thread writes the time into it every HEARTBEAT seconds.

    path: the run directory.  job: a name that all ranks of a job share: where rank 0 dies, another rank of the same
    job may take the lock at once.
    is_held: turns False when another job has taken the lock; then this process must write no more.
    """

    def __init__(self, path: str | Path, job: str | None = None) -> None:
        self.file = Path(path) / LOCK_FILE
        self.is_held = False
        token = uuid.uuid4().hex
        self._owner = {
            "job": job or token,
            "token": token,
            "host": socket.gethostname(),
            "boot": _boot(),
            "pid": os.getpid(),
            "start": process_start(os.getpid()),
        }

    @property
    def token(self) -> str:
        """Identifies this lock in the file while it is held."""
        return str(self._owner["token"])

    def acquire(self) -> None:
        """Take the lock.  Raises RunLocked while another job holds it and is alive."""
        owner = self._read()
        if owner and owner["job"] != self._owner["job"] and is_alive(owner):
            ago = time.time() - owner["beat"]
            raise RunLocked(
                f"{self.file.parent}: is being written by process {owner['pid']} on {owner['host']}, whose last "
                f"heartbeat was {ago:.0f} s ago; wait for it, stop it, or take another --out"
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
            self._stop.set()
            self._thread.join(HEARTBEAT)  # a heartbeat that is being written would bring the file back
            owner = self._read()
            if owner and owner["token"] == self.token:
                self.file.unlink(missing_ok=True)

    def check(self) -> None:
        """Raise RunLocked when another job has taken the lock."""
        owner = self._read()
        if owner and owner["token"] != self.token:
            self.is_held = False
            raise RunLocked(f"{self.file.parent}: was taken over by process {owner['pid']} on {owner['host']}")

    def _beat(self) -> None:
        while not self._stop.wait(HEARTBEAT):
            owner = self._read()
            if owner and owner["token"] != self.token:
                self.is_held = False
                return
            self._write()

    def _write(self) -> None:
        """Write a heartbeat; where the disk is full or gone, the next heartbeat tries again."""
        temporary = self.file.with_name(f".{self.file.name}.{self.token}.tmp")
        with contextlib.suppress(OSError):
            temporary.write_text(json.dumps({**self._owner, "beat": time.time()}))
            os.replace(temporary, self.file)

    def _read(self) -> dict[str, Any] | None:
        """The content of the file; None where it is absent or damaged."""
        try:
            owner = json.loads(self.file.read_text())
        except (OSError, ValueError):
            return None
        return owner if is_owner(owner) else None


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def is_owner(values: Any) -> bool:
    """Whether this is the content of a lock file."""
    return isinstance(values, dict) and {"job", "token", "host", "pid", "start", "boot", "beat"} <= values.keys()


def is_alive(owner: dict[str, Any]) -> bool:
    """Whether the owner of a lock still runs: on this host its process, on another one its heartbeat tells."""
    if owner["host"] == socket.gethostname() and owner["boot"] == _boot():
        return owner["start"] is not None and process_start(owner["pid"]) == owner["start"]
    return bool(time.time() - owner["beat"] < STALE)
