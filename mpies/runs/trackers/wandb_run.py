"""Weights & Biases: a thread hands it the rows of a run, so that training never waits for it."""

import contextlib
import json
import queue
import threading
import uuid
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from mpies.comm.cores import released
from mpies.config.loading import resolved
from mpies.config.schema import Config, WandbSection
from mpies.core.errors import ConfigError
from mpies.core.text import one_line
from mpies.core.threads import TRACKING
from mpies.runs.files import Warn, write_atomically
from mpies.runs.formats.metrics import Row, as_numbers
from mpies.runs.trackers.base import Tracker

INTERVAL = 1.0  # seconds between two deliveries at least
PATIENCE = 30.0  # seconds that the end of a run waits for the last delivery


class WandbRun(Tracker):
    """The run in Weights & Biases.  What it has got is noted in RUN/tracking-wandb.json.

    A thread hands it the rows, so that training never waits for it.  Where it fails it warns once, and training
    continues without it.  Raises ConfigError where the package is not installed.
    """

    def __init__(self, path: Path, config: Config, section: WandbSection, warn: Warn) -> None:
        if find_spec("wandb") is None:
            raise ConfigError("tracking.wandb needs wandb: pip install 'mpies[wandb]'")
        self._path, self._config, self._section = path, config, section
        self._warn = warn
        self._rows: queue.SimpleQueue[Row | None] = queue.SimpleQueue()
        self._newest = 0  # generation that was put into the queue last
        self._has_failed = False
        self._reason = ""
        self._is_closing = threading.Event()
        self._thread: threading.Thread | None = None

    def resume(self, rows: Sequence[Row]) -> None:
        if self._thread is None:
            self._note = self._read_note()
            self._newest = int(self._note.get("generation", 0))
            self._thread = threading.Thread(target=self._run, name=TRACKING, daemon=True)
            self._thread.start()
        for row in rows:
            self.append(row)

    def append(self, row: Row) -> None:
        if int(row["generation"] or 0) > self._newest and not self._has_failed:
            self._newest = int(row["generation"] or 0)
            self._rows.put(dict(row))

    def close(self, reason: str) -> None:
        if self._thread:
            self._reason = reason
            self._rows.put(None)
            self._is_closing.set()
            self._thread.join(PATIENCE)
            if self._thread.is_alive():
                self._warn(f"tracking.wandb did not accept the last generations within {PATIENCE:.0f} s")

    def _run(self) -> None:
        try:
            with released():  # it starts a process
                tracked = self._connect(self._note.get("id"))
            sent = tracked.starting_step - 1  # a job that was killed may not have noted the newest ones
            self._write_note(tracked.id, int(self._note.get("generation", 0)))
            is_over = False
            while not is_over:
                taken = [self._rows.get()]
                while not self._rows.empty():
                    taken.append(self._rows.get())
                rows = [row for row in taken if row is not None and int(row["generation"] or 0) > sent]
                for row in rows:
                    numbers = {name: value for name, value in as_numbers(row).items() if value is not None}
                    tracked.log(numbers, step=int(row["generation"] or 0))
                if rows:
                    self._write_note(tracked.id, int(rows[-1]["generation"] or 0))
                is_over = None in taken
                self._is_closing.wait(INTERVAL)
            if self._reason:
                tracked.summary["reason"] = self._reason
            tracked.finish(exit_code=0)
        except Exception as error:
            what = f"{type(error).__name__}: {one_line(error)}"
            self._has_failed = True
            self._rows = queue.SimpleQueue()  # nobody takes its rows any more
            self._warn(f"tracking.wandb failed ({what}); training continues without it")

    def _read_note(self) -> dict[str, Any]:
        try:
            note = json.loads((self._path / "tracking-wandb.json").read_text())
        except (OSError, ValueError):
            return {}
        return note if isinstance(note, dict) else {}

    def _write_note(self, identity: str, generation: int) -> None:
        """Note it; where the disk is full or gone, the next note tries again."""
        note = json.dumps({"id": identity, "generation": generation}) + "\n"
        with contextlib.suppress(OSError):
            write_atomically(self._path / "tracking-wandb.json", note.encode(), sync=False)

    def _connect(self, known: str | None) -> Any:
        """The tracked run.  known: its identity where the run was tracked before."""
        import wandb

        return wandb.init(
            project=self._section.project,
            entity=self._section.entity,
            name=self._section.name or self._path.name,
            group=self._section.group,
            tags=self._section.tags,
            id=known or uuid.uuid4().hex[:12],
            resume="allow",
            reinit="create_new",  # a run of the user's own in this process goes on
            dir=str(self._path),
            config=resolved(self._config),
            settings=wandb.Settings(silent=True, console="off"),
        )
