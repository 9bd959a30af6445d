"""One writer: who writes a run directory, and when it last gave a sign of life."""

import contextlib
import json
import os
import socket
import threading
import time
import uuid
from pathlib import Path

BEAT = 2.0  # seconds between signs of life
STALE = 15.0  # seconds of silence after which a writer on another host counts as dead


class Taken(ValueError):
    """Another live job writes this directory, or took it over; the message says which."""


def process_start(pid):
    """When a process of this host began, in clock ticks since boot; None where it does not run."""
    try:
        state, *values = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return None if state in "ZX" else int(values[18])
    except (OSError, ValueError, IndexError):
        return None


class Lock:
    """Holds `path`/writer.json from `acquire` to `release`, beating in the background.

    job: a name that the ranks of a job share: where one is lost, another may take its place at once.
    `held` turns false when another job has taken over; then this one must write no more.
    """

    def __init__(self, path, job=None):
        self.file = Path(path) / "writer.json"
        self.held = False
        token = uuid.uuid4().hex
        self._me = {
            "job": job or token,
            "token": token,
            "host": socket.gethostname(),
            "boot": _boot(),
            "pid": os.getpid(),
            "start": process_start(os.getpid()),
        }

    @property
    def token(self):
        """What stands in the file while this one holds it."""
        return self._me["token"]

    def acquire(self):
        """Take the directory.  Raises Taken while another job that lives has it."""
        owner = self._read()
        if owner and owner["job"] != self._me["job"] and lives(owner):
            ago = time.time() - owner["beat"]
            raise Taken(
                f"{self.file.parent}: is being written by process {owner['pid']} on {owner['host']}, which gave its "
                f"last sign of life {ago:.0f} s ago; wait for it, stop it, or take another --out"
            )
        self._write()
        if not self.held:
            self.held = True
            self._stop = threading.Event()
            self._thread = threading.Thread(target=self._beat, daemon=True)
            self._thread.start()

    def release(self):
        if self.held:
            self.held = False
            self._stop.set()
            self._thread.join(BEAT)  # a beat under way would bring the file back
            owner = self._read()
            if owner and owner["token"] == self._me["token"]:
                self.file.unlink(missing_ok=True)

    def check(self):
        """Raise Taken when another job has taken over."""
        owner = self._read()
        if owner and owner["token"] != self._me["token"]:
            self.held = False
            raise Taken(f"{self.file.parent}: was taken over by process {owner['pid']} on {owner['host']}")

    def _beat(self):
        while not self._stop.wait(BEAT):
            owner = self._read()
            if owner and owner["token"] != self._me["token"]:
                self.held = False
                return
            self._write()

    def _write(self):
        """Give a sign of life; where the disk is full or gone, the next beat tries again."""
        temporary = self.file.with_name(f".{self.file.name}.{self._me['token']}.tmp")
        with contextlib.suppress(OSError):
            temporary.write_text(json.dumps({**self._me, "beat": time.time()}))
            os.replace(temporary, self.file)

    def _read(self):
        """What stands in the file; None when there is none or it is damaged."""
        try:
            owner = json.loads(self.file.read_text())
        except (OSError, ValueError):
            return None
        return owner if is_owner(owner) else None


def _boot():
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def is_owner(values):
    """Whether this is what a Lock writes."""
    return isinstance(values, dict) and {"job", "token", "host", "pid", "start", "boot", "beat"} <= values.keys()


def lives(owner):
    """Whether the owner of a lock still runs; on another host, whether it beat of late."""
    if owner["host"] == socket.gethostname() and owner["boot"] == _boot():
        return owner["start"] is not None and process_start(owner["pid"]) == owner["start"]
    return time.time() - owner["beat"] < STALE
