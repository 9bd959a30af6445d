"""The folder of a sweep: what sweep it is, the runs of its trials, and which of them is to be trained next.

    DIR/sweep.yaml          the sweep itself
    DIR/trials.csv          a row for each trial
    DIR/batches.yaml        with a sampler, the settings that it has proposed
    DIR/failures/NAME.txt   why a trial has failed
    DIR/NAME/               the run of a trial

There is no server.  A trial belongs to whoever holds the lock of its run, and is done when the run is complete or its
failure is on record.  So several jobs can work on a sweep, and what a killed job leaves is taken up by another one.
"""

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mpies.config.loading import as_yaml, differences, read_yaml
from mpies.config.schema import Config, is_free
from mpies.core.errors import ConfigError, RunLocked
from mpies.core.paths import absolute
from mpies.core.text import escape, one_line
from mpies.report.compare.ranking import Trial
from mpies.runs.files import explain_refusal, write_atomically
from mpies.runs.formats.metrics import read_metrics
from mpies.runs.lock import LOCK_FILE, STALE, Lock, guarded
from mpies.runs.reader import RunView
from mpies.sweeps.halving import Halving
from mpies.sweeps.sampler import Proposals
from mpies.sweeps.trials import Sweep, read_sweep
from mpies.training.finished_run import find_finished_run

# running: its lock is held; stopped: it was begun, and is to be taken up again; waiting: it is done with its rung, and
# others are not; dropped: halving trains it no further.
STATES = ("new", "running", "stopped", "waiting", "dropped", "finished", "failed")
ENDED = ("dropped", "finished", "failed")
SWEEP_FILE, FAILURES, GUARD_FILE = "sweep.yaml", "failures", ".sweep.lock"
LOOK = 0.5  # seconds between two looks for heartbeats


class SweepFolder:
    """The folder of a sweep.

    path: as an absolute path.  name: the same as it was given.
    done: names of the trials that were found to have ended, or to be at the end of their rung.
    With a sampler, raises ConfigError where the folder holds something else than this sweep.
    """

    def __init__(self, folder: str | Path, sweep: Sweep) -> None:
        self.path, self.name, self.sweep = absolute(folder), str(Path(folder)), sweep
        self.halving: Halving | None = None
        if sweep.sampler:
            self.check()  # what another sweep has proposed has other keys
        self.proposals = Proposals(self.path, sweep, self.has_failed) if sweep.sampler else None
        self.trials = sweep.list_proposed(self.proposals.batches) if self.proposals else sweep.list_trials()
        self.done: set[str] = set()
        self._ended: dict[str, Any] = {}  # name to the stamps with which `_has_result` has found a trial complete
        if sweep.halving:
            self.halving = Halving(sweep.halving, self.path, sweep, self.trials, self.has_failed)

    def run(self, trial: Trial) -> Path:
        """The run directory of a trial, as messages name it."""
        return Path(self.name) / trial.name

    @property
    def budget(self) -> int:
        """Where halving has trials end now, in its unit; 0 where they are trained to their own end."""
        return (self.halving.budget if self.halving else None) or 0

    def config(self, trial: Trial, budget: int | None = None) -> Config:
        """The Config that a trial is trained with, until a budget, by default the present one.  Raises ConfigError."""
        budget = self.budget if budget is None else budget
        overrides = self.halving.overrides(trial, budget) if self.halving and budget else []
        return self.sweep.config(trial, overrides)

    def list_to_check(self) -> list[Trial]:
        """The trials whose configs are to be checked: all, and with a sampler those at the ends of its ranges."""
        return self.trials + (self.sweep.list_proposed([self.proposals.sampler.corners()]) if self.proposals else [])

    def check(self) -> None:
        """Raise ConfigError where the folder holds something else than this sweep.  Nothing is changed."""
        if self.halving:
            self.halving.check()
        if not (self.path / SWEEP_FILE).exists():
            names = [entry.name for entry in self.path.iterdir()] if self.path.is_dir() else []
            # Another job may be writing the sweep, or have been killed while it did.
            others = [name for name in names if name != GUARD_FILE and not name.startswith(f".{SWEEP_FILE}.")]
            if others or (self.path.exists() and not self.path.is_dir()):
                raise ConfigError(f"{self.name}: is neither empty nor a sweep; choose another --out")
            return
        file = f"{self.name}/{SWEEP_FILE}"
        changed = [
            f"{key}: {before!r} there, {now!r} now"
            for key, before, now in _compare(read_sweep(read_yaml(self.path / SWEEP_FILE), file), self.sweep)
        ]
        if changed:
            listed = "; ".join(changed[:5])
            raise ConfigError(f"{self.name}: contains another sweep ({listed}); choose another --out")

    def open(self, retries: bool = False) -> None:
        """Make the folder, or go on with the sweep in it.  One rank of a job calls this, before the others begin.

        retries: whether trials that have failed are tried again.
        Raises ConfigError where the folder holds another sweep, or cannot be written.
        """
        self.check()
        file, text = self.path / SWEEP_FILE, as_yaml(self.sweep.as_values()).encode()
        is_same = file.exists() and file.read_bytes() == text  # then what has ended is complete
        for trial in [] if is_same else self.trials:
            ending = self.path / trial.name / "finished.yaml"
            with contextlib.suppress(OSError):
                if ending.exists() and not self._is_complete(trial):
                    ending.unlink()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            with guarded(self.path / GUARD_FILE):
                self.check()  # another job may have made it in the meantime
                if not is_same:  # written last, so that after a kill all trials are looked at again
                    write_atomically(file, text)
                if self.proposals and not self.proposals.read():
                    self.proposals.write()
            (self.path / FAILURES).mkdir(exist_ok=True)
        except OSError as error:
            raise ConfigError(explain_refusal(self.name, error)) from None
        if retries:
            self.forget_failures()

    def _is_complete(self, trial: Trial) -> bool:
        """Whether the run of a trial that has ended asks for no more: a stop rule may have been changed."""
        if self.halving:
            return self.halving.is_complete(trial)
        return find_finished_run(self.run(trial), self.config(trial)) is not None

    def refresh(self) -> None:
        """Take note of what has ended since the last time; with halving, go on to the next rung."""
        if self.proposals and self.proposals.read():
            self.trials = self.sweep.list_proposed(self.proposals.batches)
        if self.halving:
            rung = self.halving.rung
            self.halving.refresh()
            if self.halving.rung != rung:
                self.done.clear()

    def state(self, trial: Trial) -> str:
        """One of STATES, as of the last `refresh`."""
        if self.has_failed(trial):
            return "failed"
        state = RunView(self.path / trial.name).state()
        if state == "running":
            return state
        if self.halving and self.halving.is_dropped(trial):
            return "dropped"
        if self.halving and state == "finished":
            is_done, is_last = self.halving.is_done(trial), self.halving.budget is None
            return ("finished" if is_last else "waiting") if is_done else "stopped"
        if state == "finished" and self._has_result(trial):
            return state
        return "stopped" if (self.path / trial.name / "config.yaml").exists() else "new"

    def take(self, job: str = "") -> tuple[int, Lock] | None:
        """The next trial that nobody trains, as its number, and a lock that holds it; None where there is none.

        job: the name under which it is locked.
        """
        for number in self.find_left():
            trial = self.trials[number]
            lock = Lock(self.path / trial.name, job)
            try:
                lock.file.parent.mkdir(exist_ok=True)
                lock.acquire()  # the run takes it over, after a start-up that may be long
            except RunLocked:  # another group was faster
                continue
            if not self.has_failed(trial) and not self.has_ended(trial):  # in the meantime
                return number, lock
            lock.release()
        return None

    def find_left(self) -> Iterator[int]:
        """Numbers of the trials that nobody trains and that are not done."""
        self._extend()
        for number, trial in enumerate(self.trials):
            if trial.name in self.done:
                continue
            state = self.state(trial)
            if state in (*ENDED, "waiting"):
                self.done.add(trial.name)
            elif state != "running":
                yield number

    def has_ended(self, trial: Trial) -> bool:
        """Whether a trial has ended, whoever holds its lock."""
        return self.halving.is_done(trial) if self.halving else self._has_result(trial)

    def _has_result(self, trial: Trial) -> bool:
        """Whether a trial has ended and its last row is there; if that is lost, its ledger brings it back."""
        view = RunView(self.path / trial.name)
        stamp = (view.stamp("finished.yaml"), view.stamp("metrics.csv"))
        if self._ended.get(trial.name) != stamp:
            rows, ending = read_metrics(view.folder), view.finished().get("generation")
            if not rows or not isinstance(ending, int) or int(rows[-1]["generation"]) < ending:
                return False
            self._ended[trial.name] = stamp
        return True

    def is_any_left(self) -> bool:
        """Whether a trial is left that nobody trains.

        Where none seems to be, after a wait in which the jobs of all trials under way show whether they live: for STALE
        seconds, the lock of a job that died on another host or in another container looks like that of a live one.
        But a live one writes heartbeats.
        """
        if any(True for _ in self.find_left()):
            return True
        beats = {trial.name: self._beat(trial) for trial in self.find_trained_by()}
        until = time.monotonic() + STALE
        while beats and time.monotonic() < until:
            time.sleep(LOOK)
            running = {one.name: self._beat(one) for one in self.find_trained_by()}
            beats = {name: beat for name, beat in running.items() if beat == beats.get(name)}
        return any(True for _ in self.find_left())

    def _beat(self, trial: Trial) -> Any:
        """The last heartbeat of the job that trains a trial."""
        return RunView(self.path / trial.name).writer().get("beat")

    def find_trained_by(self, job: str = "") -> Iterator[Trial]:
        """The trials that are being trained by a job whose name begins so."""
        for trial in [trial for trial in self.trials if trial.name not in self.done]:
            view = RunView(self.path / trial.name)
            if str(view.writer().get("job", "")).startswith(job) and view.state() == "running":
                yield trial

    @property
    def may_grow(self) -> bool:
        """Whether the trials that are being trained may bring new work when they end."""
        return bool((self.halving and self.halving.budget is not None) or (self.proposals and self.proposals.left))

    def remove_leftovers(self, job: str) -> None:
        """Remove the locks that a job has left which has ended.  job: how its name begins.

        A lock that a rank has left on another host would count as held for a while.
        """
        for view in (RunView(self.path / trial.name) for trial in self.trials):
            if str(view.writer().get("job", "")).startswith(job):
                with contextlib.suppress(OSError):  # the disk may be read-only
                    (view.folder / LOCK_FILE).unlink()

    def find(self, number: int) -> Trial:
        """The trial of a number that a rank of this job has taken."""
        while number >= len(self.trials):  # the file system may show a new batch later on other nodes
            self.refresh()
            time.sleep(0.01)
        return self.trials[number]

    def _extend(self) -> None:
        """`refresh`, and propose further settings where that is due.  One rank of each group may call this."""
        self.refresh()
        if self.proposals and self.proposals.left:
            with guarded(self.path / GUARD_FILE):
                self.refresh()
                if self.proposals.extend(self.trials):
                    self.trials = self.sweep.list_proposed(self.proposals.batches)

    def has_work(self) -> bool:
        """Whether something is left that no job trains: a trial, or what comes when the trials so far have ended."""
        self.refresh()
        states = {self.state(trial) for trial in self.trials}
        return bool(states & {"new", "stopped"}) or (self.may_grow and "running" not in states)

    @property
    def total(self) -> int:
        """How many trials there are, those that a sampler has yet to propose among them."""
        return len(self.trials) + (self.proposals.left * len(self.sweep.seeds or [0]) if self.proposals else 0)

    def count_left(self) -> int:
        """How many trials have not ended."""
        self.refresh()
        return self.total - sum(self.state(trial) in ENDED for trial in self.trials)

    def give_back(self, trial: Trial, lock: Lock) -> None:
        """Release the lock of `take`, and remove the directory of a run that did not begin."""
        lock.release()
        with contextlib.suppress(OSError):  # it is not empty
            os.rmdir(self.path / trial.name)

    def record_failure(self, trial: Trial, reason: str, details: str = "") -> None:
        """Write down why a trial has failed; nobody tries it again.  details: lines that tell more."""
        write_atomically(self._failure_file(trial), f"{one_line(reason)}\n{escape(details)}".encode())

    def forget_failures(self) -> None:
        """Have the trials that have failed tried again."""
        self.done.clear()
        for trial in self.trials:
            self._failure_file(trial).unlink(missing_ok=True)
        if self.halving:
            self.halving.forget()

    def failure(self, trial: Trial) -> str:
        """Why a trial has failed, in one line; '' where it has not."""
        try:
            return self._failure_file(trial).read_text(encoding="utf-8").partition("\n")[0] or "for an unknown reason"
        except OSError:
            return ""

    def has_failed(self, trial: Trial) -> bool:
        """Whether it is on record that a trial has failed."""
        return self._failure_file(trial).exists()

    def _failure_file(self, trial: Trial) -> Path:
        return self.path / FAILURES / f"{trial.name}.txt"


def _compare(old: Sweep, new: Sweep) -> list[tuple[str, Any, Any]]:
    """(key, old, new) of what tells two sweeps apart.

    They may have other values of what varies, other seeds, more or fewer draws, and what a resumed run may change.
    With a sampler, what varies must have the same values: the sampler has drawn from them.
    """
    found = differences(old.base, new.base)
    varied = [", ".join(sorted(sweep.varied)) or "nothing" for sweep in (old, new)]
    if varied[0] != varied[1]:
        return [*found, ("what varies", varied[0], varied[1])]
    for key in ("draw_seed", "halving", "sampler"):
        values = [getattr(sweep, key) for sweep in (old, new)]
        before, now = ("none" if value is None else str(value) for value in values)
        if before != now:
            found.append((key, before, now))
    if new.sampler:
        found += [(key, old.vary[key], new.vary[key]) for key in sorted(new.varied) if old.vary[key] != new.vary[key]]
    fixed = [{key: given for key, given in sweep.vary.items() if key not in sweep.varied} for sweep in (old, new)]
    for key in sorted({*fixed[0], *fixed[1]}):
        before, now = (values.get(key, ["(absent)"])[0] for values in fixed)
        if before != now and not is_free(key):
            found.append((key, before, now))
    return found
