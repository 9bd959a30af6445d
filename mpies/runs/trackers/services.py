"""Weights & Biases and MLflow: a thread hands them the rows of a run, so that training never waits for them."""

import contextlib
import json
import logging
import queue
import threading
import time
import uuid
from abc import abstractmethod
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from mpies.config.loading import flatten, resolved
from mpies.config.schema import Config, MLflowSection, WandbSection
from mpies.core.errors import ConfigError
from mpies.core.text import one_line
from mpies.runs.files import write_atomically
from mpies.runs.metrics import as_numbers
from mpies.runs.trackers.base import TextRow, Tracker

INTERVAL = 1.0  # seconds between two deliveries at least
PATIENCE = 30.0  # seconds that the end of a run waits for the last delivery
THREADS = "mpies-tracking-"  # how the names of the threads begin
MOST = 500  # metrics that MLflow gets at a time; it takes 1000


class Service(Tracker):
    """A tracker outside of the run directory.  What it has got is noted in RUN/tracking-NAME.json.

    It has a thread of its own.  Where it fails it warns once, and training continues without it.

    name: of the package and its section in the config.
    sent: the newest generation that it has, where it tells; a job that was killed may not have noted it.
    Raises ConfigError where the package is not installed.
    """

    name: str
    sent = 0

    def __init__(self, path: Path, config: Config, warn: Callable[[str], object]) -> None:
        if find_spec(self.name) is None:
            raise ConfigError(f"tracking.{self.name} needs {self.name}: pip install 'mpies[{self.name}]'")
        self.path, self.config = path, config
        self._warn = warn
        self._rows: queue.SimpleQueue[TextRow | None] = queue.SimpleQueue()
        self._newest = 0  # generation that was put into the queue last
        self._has_failed = False
        self._reason = ""
        self._is_closing = threading.Event()
        self._thread: threading.Thread | None = None

    @abstractmethod
    def connect(self, known: str | None) -> str:
        """Open the tracked run; `known` is its identity where the run was tracked before.  Returns its identity."""

    @abstractmethod
    def send(self, rows: Sequence[TextRow]) -> None:
        """Deliver these rows."""

    @abstractmethod
    def finish(self, reason: str) -> None:
        """Close the tracked run.  reason: as for `close`."""

    def resume(self, rows: Sequence[TextRow]) -> None:
        if self._thread is None:
            self._note = self._read_note()
            self._newest = int(self._note.get("generation", 0))
            self._thread = threading.Thread(target=self._run, name=THREADS + self.name, daemon=True)
            self._thread.start()
        for row in rows:
            self.append(row)

    def append(self, row: TextRow) -> None:
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
                self._warn(f"tracking.{self.name} did not accept the last generations within {PATIENCE:.0f} s")

    def _run(self) -> None:
        try:
            identity = self.connect(self._note.get("id"))
            self._write_note(identity, int(self._note.get("generation", 0)))
            is_over = False
            while not is_over:
                taken = [self._rows.get()]
                while not self._rows.empty():
                    taken.append(self._rows.get())
                rows = [row for row in taken if row is not None and int(row["generation"] or 0) > self.sent]
                if rows:
                    self.send(rows)
                    self._write_note(identity, int(rows[-1]["generation"] or 0))
                is_over = None in taken
                self._is_closing.wait(INTERVAL)
            self.finish(self._reason)
        except Exception as error:
            what = f"{type(error).__name__}: {one_line(error)}"
            self._has_failed = True
            self._rows = queue.SimpleQueue()  # nobody takes its rows any more
            self._warn(f"tracking.{self.name} failed ({what}); training continues without it")

    def _read_note(self) -> dict[str, Any]:
        try:
            note = json.loads((self.path / f"tracking-{self.name}.json").read_text())
        except (OSError, ValueError):
            return {}
        return note if isinstance(note, dict) else {}

    def _write_note(self, identity: str, generation: int) -> None:
        """Note it; where the disk is full or gone, the next note tries again."""
        note = json.dumps({"id": identity, "generation": generation}) + "\n"
        with contextlib.suppress(OSError):
            write_atomically(self.path / f"tracking-{self.name}.json", note.encode(), sync=False)


class WandbRun(Service):
    """The run in Weights & Biases."""

    name = "wandb"

    def connect(self, known: str | None) -> str:
        import wandb

        section = self.config.tracking.wandb
        assert isinstance(section, WandbSection)
        identity = known or uuid.uuid4().hex[:12]
        self._run_there = wandb.init(
            project=section.project,
            entity=section.entity,
            name=section.name or self.path.name,
            group=section.group,
            tags=section.tags,
            id=identity,
            resume="allow",
            reinit="create_new",  # a run of the user's own in this process goes on
            dir=str(self.path),
            config=resolved(self.config),
            settings=wandb.Settings(silent=True, console="off"),
        )
        self.sent = self._run_there.starting_step - 1
        return identity

    def send(self, rows: Sequence[TextRow]) -> None:
        for row in rows:
            numbers = {name: value for name, value in as_numbers(row).items() if value is not None}
            self._run_there.log(numbers, step=int(row["generation"] or 0))

    def finish(self, reason: str) -> None:
        if reason:
            self._run_there.summary["reason"] = reason
        self._run_there.finish(exit_code=0)


class MLflowRun(Service):
    """The run in MLflow."""

    name = "mlflow"

    def connect(self, known: str | None) -> str:
        import mlflow  # only now it sets the level of its log

        log = logging.getLogger(mlflow.__name__)
        level = log.level
        log.setLevel(logging.WARNING)  # it tells of every table of a new database
        try:
            return self._connect(known)
        finally:
            log.setLevel(level)

    def _connect(self, known: str | None) -> str:
        from mlflow import MlflowClient
        from mlflow.entities import Param

        section = self.config.tracking.mlflow
        assert isinstance(section, MLflowSection)
        self._client = MlflowClient(section.uri)
        if known:
            self._client.update_run(known, status="RUNNING")
            self._id = known
            self.sent = int(self._client.get_run(known).data.metrics.get("generation", 0))
            return known
        number = self._find_experiment(section.experiment)
        run = self._client.create_run(number, run_name=section.name or self.path.name)
        self._id = run.info.run_id
        params = [Param(key, str(value)[:6000]) for key, value in flatten(resolved(self.config))]
        for start in range(0, len(params), 100):
            self._client.log_batch(self._id, params=params[start : start + 100])
        return self._id

    def _find_experiment(self, name: str) -> str:
        """The number of the experiment, which is made where there is none."""
        found = self._client.get_experiment_by_name(name)
        if found is None:
            try:
                return self._client.create_experiment(name)
            except Exception:
                found = self._client.get_experiment_by_name(name)
                if found is None:
                    raise
        return found.experiment_id  # also of one that another run has made in between

    def send(self, rows: Sequence[TextRow]) -> None:
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        metrics = [
            Metric(name, value, now, int(row["generation"] or 0))
            for row in rows
            for name, value in as_numbers(row).items()
            if value is not None
        ]
        for start in range(0, len(metrics), MOST):
            self._client.log_batch(self._id, metrics=metrics[start : start + MOST])

    def finish(self, reason: str) -> None:
        if reason:
            self._client.set_tag(self._id, "reason", reason)
        self._client.set_terminated(self._id, "FINISHED" if reason else "KILLED")
