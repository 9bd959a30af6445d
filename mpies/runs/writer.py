"""Write a run directory so that it can be read at any moment, even when the process that writes it is killed.

The order in which a generation is written: the best policy, the ledger's record, the evaluation's episodes, the row of
metrics.csv, and when it is due a checkpoint.  A generation is on disk when its record in the ledger is complete: the
text files are views, made again from it where they differ, and what it does not hold of them is kept aside.

Where the disk refuses a write, it is tried again.  Where somebody else removes or replaces a file, the run ends.
"""

import contextlib
import errno
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from mpies.config.loading import as_yaml, resolved
from mpies.config.schema import Config
from mpies.config.trust import sign
from mpies.core.errors import TrainingFailed, unreadable
from mpies.core.paths import absolute
from mpies.runs.files import WHILE_WRITTEN, AppendOnlyFile, Warn, find_device, keep_aside, write_atomically
from mpies.runs.formats import hdf5, ledger
from mpies.runs.formats.checkpoint import checkpoint_path, list_checkpoints, newest_checkpoint, remove_old_checkpoints
from mpies.runs.formats.hdf5 import Arrays, Content
from mpies.runs.formats.metrics import Row, parse_count
from mpies.runs.formats.tables import EvaluationsFile, History, MetricsFile, RanksFile, as_record, read_history
from mpies.runs.lock import Lock
from mpies.runs.machine import versions
from mpies.runs.reader import with_checksum
from mpies.runs.snapshot import Evaluation, Snapshot, evaluation_attributes
from mpies.runs.trackers import make_trackers

log = logging.getLogger(__name__)

DELAY = 0.005  # seconds that the writing thread waits at most: the next proposal must go out to all ranks first


class RunWriter:
    """Writes a run directory.  Any rank may hold one; only rank 0 calls its methods.

    A thread hashes and writes a Snapshot while the next generation is played; `flush` waits for it.  Where the disk
    is full, read-only or gone, training continues: the writer warns once, keeps what could not be written and tries
    again with the next generation.

    path: the run directory, as an absolute path.  name: the same as it was given, for messages.
    config: of the run.  job: a name that all ranks of the job share.
    warn: called with a line where something goes wrong.
    starts: how often a rank 0 has begun to write the run, this time included.
    seconds: that training has waited for the disk.  checkpoint_seconds: that the newest checkpoint took.
    """

    def __init__(self, path: str | Path, config: Config, job: str | None = None, warn: Warn = log.warning) -> None:
        self.path, self.name, self.config, self.warn = absolute(path), str(path), config, warn
        self.lock = Lock(self.path, job)
        self.starts = 1
        self.seconds = 0.0
        self.checkpoint_seconds = 0.0
        self._thread = ThreadPoolExecutor(1)
        self._hurry = threading.Event()  # set when somebody waits for the thread
        self._writing: Future[None] | None = None  # of the newest snapshot
        self._is_failing = False  # whether the last attempt to write failed
        # Ledger record, row and evaluation of the generations that are not on disk.
        self._backlog: list[tuple[bytes, Row, Evaluation | None]] = []
        self._best: bytes | None = None  # content of best.h5 that is not on disk
        self._first: tuple[Path, bytes] | None = None  # a run's first checkpoint that is not on disk
        self._replay_start = 0  # generation of the checkpoint where replays begin
        self._is_open = False  # whether the files are ready to be appended to
        self._checkpoint_due = False
        self.again: int | None = None  # generation that was on record and is to be played again
        self._start, self._saved = 0, -1  # generations: that the run goes on from, and of the newest checkpoint
        self._saved_at = time.monotonic()
        self._reason = ""  # why the run has ended, one of control.STOP_REASONS
        self._ranks = RanksFile(self.path / "ranks.json")
        self._trackers = make_trackers(self.path, config, warn)

    def load(self, play_again: Callable[[Row], bool] = lambda row: False) -> tuple[Content | None, list[Arrays]]:
        """Take the lock and read where the run stands.

        play_again: whether the generation of the newest row is to be played again, where that is possible.
        Returns arrays and attributes of the newest undamaged checkpoint (None without one), and the ledger's records
        of the generations after it that are on disk.
        Raises Unreadable where the system refuses to read a file, which is not taken for an absent one.
        """
        self.lock.acquire()
        try:
            return self._load(read_history(self.path), play_again)
        except OSError as error:
            raise unreadable(error.filename or self.name, error) from None

    def _load(self, history: History, play_again: Callable[[Row], bool]) -> tuple[Content | None, list[Arrays]]:
        rows = history.rows
        self.again = before = max(rows) if rows and play_again(rows[max(rows)]) else None
        checkpoint = newest_checkpoint(self.path, self.warn, before)
        start = int(checkpoint[1]["generation"]) if checkpoint else 0
        self.starts = 1 + max((parse_count(row.get("starts")) for row in rows.values()), default=0)
        records: list[Arrays] = []
        for record in ledger.read_records(self.path / "ledger.bin", after=start):
            if int(record["generation"]) > history.newest or int(record["generation"]) == before:
                break
            records.append(record)
        if before is not None and start + len(records) != before - 1:
            return self._load(history, lambda row: False)  # it is too late for that
        self._saved = start if checkpoint else -1
        if rows and not (checkpoint or records):
            self.warn(f"{self.name}: has no readable checkpoint; training starts again at generation 0")
        return checkpoint, records

    def begin(self, snapshot: Snapshot) -> None:
        """Go on after the snapshot's generation; what a killed job left behind it is removed."""
        settings = resolved(self.config)
        self._attributes = {"config": as_yaml(settings), "versions": as_yaml(versions()), "signature": sign(settings)}
        self._start = snapshot.generation
        if not list_checkpoints(self.path):  # the first one is kept for ever: replays begin there
            self._first, self._saved = self._checkpoint_of(snapshot), snapshot.generation
        with self._retrying():
            self._open()

    def _open(self) -> None:
        """Cut the files off after the generation that the run goes on from, and remove what is unfinished or newer."""
        generation, history = self._start, read_history(self.path)
        rows = history.until(generation)
        newer = [path for path in list_checkpoints(self.path) if path > checkpoint_path(self.path, generation)]
        for left_behind in (*self.path.rglob(".*.tmp"), *newer):
            left_behind.unlink(missing_ok=True)
        self._metrics = MetricsFile(self.path / "metrics.csv", list(rows.values()), generation + 1, self._keep_aside)
        short = sum(number <= generation for number in history.short)
        if missing := generation - len(rows) + short:
            rest = (
                f", but for what the ledger of an older mpies has of {short}: time, steps and digest" if short else ""
            )
            self.warn(
                f"{self.name}/metrics.csv: {missing} of the first {generation} rows are missing; they are lost{rest}"
            )
        episodes = history.episodes_until(generation)
        self._evaluations = EvaluationsFile(self.path / "evaluations.csv", episodes, generation + 1, self._keep_aside)
        self._device = find_device(self.path)
        self._open_ledger(generation)
        if self._first:
            write_atomically(*self._first)
            self._first = None
        self._trackers.resume(list(rows.values()))
        self._is_open = True

    def _open_ledger(self, generation: int) -> None:
        """Go on with the ledger after `generation`.  Where it lacks that one, a new ledger begins behind it."""
        path = self.path / "ledger.bin"
        newest, end = ledger.find_end(path, generation)
        self._replay_start = ledger.first_generation(path) - 1
        if generation not in (self._replay_start, newest):
            is_new = path.exists() and not path.stat().st_size  # it was to begin behind this generation
            if generation and not is_new:
                self.warn(
                    f"{self.name}/ledger.bin: generation {generation} is missing; training is not affected, but a new "
                    f"ledger begins with generation {generation + 1}, so replays cannot reach generations before "
                    f"{generation}"
                )
            end, self._replay_start = 0, generation
        if end < (path.stat().st_size if path.exists() else 0):
            with open(path, "rb") as file:
                file.seek(end)
                rest = file.read()
            if rest.count(ledger.MAGIC) > 1 or not rest.startswith(ledger.MAGIC):  # else it was cut off, or plays again
                self._keep_aside(path, rest)
        self._ledger = AppendOnlyFile(path, end)

    def _keep_aside(self, file: Path, content: bytes) -> None:
        """Keep what is to be removed from a file that is damaged, or has what the ledger has not."""
        self.warn(
            f"{self.name}/{file.name}: is damaged, or is not what the ledger has; it is made again, and what it had "
            f"is kept in {keep_aside(file, content)}"
        )

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
        row = {**snapshot.row, "digest": digest}
        record |= as_record(row, snapshot.evaluation)
        self._backlog.append((ledger.pack_record(record), row, snapshot.evaluation))
        is_time = section.seconds is not None and time.monotonic() - self._saved_at >= section.seconds
        self._checkpoint_due |= is_last or is_time or generation % section.every == 0
        if snapshot.is_best:
            self._best = self._policy_of(snapshot)
        with self._retrying():
            self._write_backlog(snapshot, now=is_last)
            self._ranks.write(snapshot.idle, generation, now=is_last)

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
        self._check_files()
        if self._best:
            write_atomically(self.path / "best.h5", self._best)
            self._best = None
        while self._backlog:
            record, row, evaluation = self._backlog[0]
            self._ledger.append(record, key=row["generation"])
            if evaluation:
                self._evaluations.add_episodes(row, evaluation)
            self._metrics.add_row(row)
            self._trackers.append(row)
            del self._backlog[0]
        share, elapsed = self.config.checkpoint.share, time.monotonic() - self._saved_at
        if self._checkpoint_due and (now or self.checkpoint_seconds * (1 - share) <= elapsed * share):
            if snapshot:
                self._write_checkpoint(snapshot)
            self._checkpoint_due = False

    def _check_files(self) -> None:
        """Raise TrainingFailed where somebody else has removed or damaged a file of the run."""
        for file in (self._ledger, self._evaluations, self._metrics):
            file.check()
        if not (config := self.path / "config.yaml").exists():
            if find_device(config) != self._device:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
            raise TrainingFailed(f"{config}: was removed {WHILE_WRITTEN}")

    def _write_checkpoint(self, snapshot: Snapshot) -> None:
        """Refresh policy.h5, write the complete state, and remove old checkpoints."""
        if snapshot.generation == self._saved:
            return
        began = time.monotonic()
        (self.path / "checkpoints").mkdir(exist_ok=True)
        # A machine that loses power must not keep the checkpoint alone.
        for file in (self._ledger, self._evaluations, self._metrics):
            file.sync()
        # Not synced: the checkpoint holds the same parameters.
        write_atomically(self.path / "policy.h5", self._policy_of(snapshot), sync=False)
        write_atomically(*self._checkpoint_of(snapshot))
        self._saved, self._saved_at = snapshot.generation, time.monotonic()
        self.checkpoint_seconds = self._saved_at - began
        remove_old_checkpoints(self.path, self.config.checkpoint.keep, self._replay_start)

    def finish(self, reason: str, snapshot: Snapshot, steps: int) -> bool:
        """Write finished.yaml, which tells that the run is complete; mpirun's exit code does not.

        reason: the stop rule that held.  steps: of all training.  Returns whether everything is on disk.
        """
        if self.checkpoint(snapshot):
            with self._retrying():
                write_ending(self.path, reason, snapshot.generation, steps)
        self._reason = reason
        return not self._is_failing

    def close(self) -> None:
        """End the thread, leave the trackers and, last, release the lock: the next job may use the same trackers."""
        self._thread.shutdown()
        try:
            self._trackers.close(self._reason)
        finally:
            self.lock.release()

    @contextlib.contextmanager
    def _retrying(self) -> Iterator[None]:
        """Warn once where the disk refuses something, and leave it for the next time."""
        try:
            yield
        except OSError as error:
            if not self._is_failing:
                self._is_failing = True
                self.warn(
                    f"{self.name}: cannot be written ({error.strerror}); training continues, and writing is tried again"
                )
        else:
            if self._is_failing:
                self._is_failing = False
                rest = "" if self._replay_start else "; nothing is lost"
                self.warn(f"{self.name}: can be written again{rest}")

    def _checkpoint_of(self, snapshot: Snapshot) -> tuple[Path, bytes]:
        """Path and content of a checkpoint."""
        attributes = {"generation": snapshot.generation, "digest": hdf5.digest(snapshot.state)}
        content = hdf5.pack({**snapshot.state, **snapshot.progress}, attributes)
        return checkpoint_path(self.path, snapshot.generation), content

    def _policy_of(self, snapshot: Snapshot) -> bytes:
        """The content of a policy file."""
        evaluated = evaluation_attributes(snapshot.evaluation)
        return hdf5.pack(snapshot.policy, {**self._attributes, "generation": snapshot.generation, **evaluated})


def write_ending(path: Path, reason: str, generation: int, steps: int) -> None:
    """Write finished.yaml into the run directory at `path`.  reason: why the run ended.  steps: of all training."""
    outcome = {"reason": reason, "generation": generation, "steps": steps}
    write_atomically(path / "finished.yaml", with_checksum(as_yaml(outcome)).encode())
