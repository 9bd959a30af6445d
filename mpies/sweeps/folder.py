"""The folder of a sweep: what sweep it is, the runs of its trials, and which of them is to be trained next.

    DIR/sweep.yaml          the sweep itself
    DIR/trials.csv          a row for each trial
    DIR/failures/NAME.txt   why a trial has failed
    DIR/NAME/               the run of a trial

There is no server.  A trial belongs to whoever holds the lock of its run, and is done when the run is complete or its
failure is on record.  So several jobs can work on a sweep, and what a killed job leaves is taken up by another one.
"""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mpies.config.loading import as_yaml, differences, read_yaml
from mpies.config.schema import FREE_KEYS, FREE_SECTIONS
from mpies.errors import ConfigError, RunLocked, escape, printable
from mpies.paths import absolute
from mpies.runs.files import write_atomically
from mpies.runs.lock import Lock, guarded
from mpies.runs.reader import RunView
from mpies.sweeps.trials import Sweep, Trial, read_sweep

# running: its lock is held; stopped: it was begun, and waits to be taken up again.
STATES = ("new", "running", "stopped", "finished", "failed")
SWEEP_FILE, FAILURES, GUARD_FILE = "sweep.yaml", "failures", ".sweep.lock"


class SweepFolder:
    """The folder of a sweep.

    path: as an absolute path.  name: the same as it was given.  job: what the locks of its trials' runs are held by.
    """

    def __init__(self, folder: str | Path, sweep: Sweep, job: str = "") -> None:
        self.path, self.name, self.sweep, self.job = absolute(folder), str(folder), sweep, job
        self.trials = sweep.list_trials()
        self._done: set[str] = set()  # names of the trials that are known to be finished or to have failed

    def run(self, trial: Trial) -> Path:
        """The run directory of a trial, as messages name it."""
        return Path(self.name) / trial.name

    def check(self) -> None:
        """Raise ConfigError where the folder holds something else than this sweep.  Nothing is changed."""
        if not (self.path / SWEEP_FILE).exists():
            entries = [entry.name for entry in self.path.iterdir()] if self.path.is_dir() else []
            if self.path.exists() and (not self.path.is_dir() or {*entries} - {GUARD_FILE}):
                raise ConfigError(f"{self.name}: is neither empty nor a sweep; take another --out")
            return
        file = f"{self.name}/{SWEEP_FILE}"
        changed = [
            f"{key}: {before!r} there, {now!r} now"
            for key, before, now in _compare(read_sweep(read_yaml(self.path / SWEEP_FILE), file), self.sweep)
        ]
        if changed:
            listed = "; ".join(changed[:5])
            raise ConfigError(f"{self.name}: holds another sweep ({listed}); take another --out")

    def open(self, is_complete: Callable[[Trial], bool], retries: bool = False) -> None:
        """Make the folder, or go on with the sweep in it.  One rank of a job calls this, before the others begin.

        is_complete: whether the run of a trial that has ended asks for no more.  retries: whether trials that have
        failed are tried again.  Raises ConfigError where the folder holds another sweep, or cannot be written.
        """
        self.check()
        file, text = self.path / SWEEP_FILE, as_yaml(self.sweep.as_values()).encode()
        is_same = file.exists() and file.read_bytes() == text  # then what has ended is complete
        for trial in self.trials:
            ending = self.path / trial.name / "finished.yaml"
            with contextlib.suppress(OSError):
                if ending.exists() and not (is_same or is_complete(trial)):
                    ending.unlink()
                elif ending.exists():
                    ending.touch()  # a supervisor tells by its time that this job found the run complete
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            with guarded(self.path / GUARD_FILE):
                self.check()  # another job may have made it in the meantime
                if not is_same:  # written last, so that after a kill all trials are looked at again
                    write_atomically(file, text)
            (self.path / FAILURES).mkdir(exist_ok=True)
        except OSError as error:
            raise ConfigError(f"{self.name}: cannot be written ({error.strerror}); take another --out") from None
        if retries:
            self.forget_failures()

    def state(self, trial: Trial) -> str:
        """One of STATES."""
        if self._failure_file(trial).exists():
            return "failed"
        state = RunView(self.path / trial.name).state()
        if state in ("running", "finished"):
            return state
        return "stopped" if (self.path / trial.name / "config.yaml").exists() else "new"

    def take(self) -> tuple[int, Lock] | None:
        """The next trial that nobody trains, as its number, and a lock that holds it; None where there is none."""
        for number, trial in enumerate(self.trials):
            if trial.name in self._done:
                continue
            state = self.state(trial)
            if state in ("finished", "failed"):
                self._done.add(trial.name)
            elif state != "running":
                lock = Lock(self.path / trial.name, self.job)
                try:
                    lock.file.parent.mkdir(exist_ok=True)
                    lock.acquire(beats=False)  # the run takes it over
                except RunLocked:  # another group was faster
                    continue
                if (lock.file.parent / "finished.yaml").exists() or self.failure(trial):  # in the meantime
                    lock.release()
                    continue
                return number, lock
        return None

    def is_trained_by(self, job: str) -> bool:
        """Whether any trial is being trained by a job whose name begins so."""
        owners = (RunView(self.path / trial.name) for trial in self.trials if trial.name not in self._done)
        return any(str(view.writer().get("job", "")).startswith(job) and view.state() == "running" for view in owners)

    def count_left(self) -> int:
        """How many trials are neither finished nor failed."""
        return sum(self.state(trial) not in ("finished", "failed") for trial in self.trials)

    def give_back(self, trial: Trial, lock: Lock) -> None:
        """Release the lock of `take`, and remove the directory of a run that did not begin."""
        lock.release()
        with contextlib.suppress(OSError):  # it is not empty
            os.rmdir(self.path / trial.name)

    def record_failure(self, trial: Trial, reason: str, details: str = "") -> None:
        """Write down why a trial has failed; nobody tries it again.  details: lines that tell more."""
        write_atomically(self._failure_file(trial), f"{printable(reason)}\n{escape(details)}".encode())

    def forget_failures(self) -> None:
        """Have the trials that have failed tried again."""
        for trial in self.trials:
            self._failure_file(trial).unlink(missing_ok=True)

    def failure(self, trial: Trial) -> str:
        """Why a trial has failed, in one line; '' where it has not."""
        try:
            return self._failure_file(trial).read_text().partition("\n")[0] or "for no known reason"
        except OSError:
            return ""

    def _failure_file(self, trial: Trial) -> Path:
        return self.path / FAILURES / f"{trial.name}.txt"


def _compare(old: Sweep, new: Sweep) -> list[tuple[str, Any, Any]]:
    """(key, old, new) of what tells two sweeps apart.

    They may have other values of what varies, other seeds, more or fewer draws, and what a resumed run may change.
    """
    found = differences(old.base, new.base)
    varied = [", ".join(sorted(sweep.varied)) or "nothing" for sweep in (old, new)]
    if varied[0] != varied[1]:
        return [*found, ("what varies", varied[0], varied[1])]
    if old.draw_seed != new.draw_seed:
        found.append(("draw_seed", old.draw_seed, new.draw_seed))
    fixed = [{key: given for key, given in sweep.vary.items() if key not in sweep.varied} for sweep in (old, new)]
    for key in sorted({*fixed[0], *fixed[1]}):
        before, now = (values.get(key, ["(absent)"])[0] for values in fixed)
        if before != now and key.partition(".")[0] not in FREE_SECTIONS and key not in FREE_KEYS:
            found.append((key, before, now))
    return found
