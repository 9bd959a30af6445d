"""Train on ranks of a job of its own, and follow its run directory."""

import contextlib
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import numpy as np
import numpy.typing as npt

from mpies.api.arguments import call_all
from mpies.api.run import Run, load
from mpies.config.loading import as_yaml, resolved
from mpies.core.errors import FINISHED, REQUEUE, RunError, TrainingFailed, error_of_kind
from mpies.core.paths import absolute
from mpies.envs.custom_env import GIVEN, write_given
from mpies.launch.goal import RunsFinished
from mpies.launch.supervisor import POLL, Supervisor
from mpies.runs.formats.metrics import Numbers, as_numbers
from mpies.runs.lock import Lock
from mpies.runs.reader import RunView
from mpies.runs.writer import write_ending
from mpies.training.control import Signals
from mpies.training.progress import Phase, Progress
from mpies.training.session import RunRequest

Callback = Callable[[Run, Numbers], object]


class Messages:
    """What the ranks and mpirun print on standard error: all is shown at once, but INFO and what ends a rank.

    error: what has ended a rank, None while nothing has.
    """

    def __init__(self) -> None:
        self.error: Exception | None = None
        self._logged = ""  # the last error in a log, of mpies or of the user's code: the job may go on after it
        self._last = ""

    def write(self, lines: Iterable[str]) -> None:
        for line in lines:
            try:
                entry = json.loads(line)
                severity, message = entry["severity"], entry["message"]
            except (ValueError, TypeError, KeyError):
                self._last = line.strip() or self._last
                if line.startswith("mpies: "):  # before the ranks know that JSON is wanted
                    self.error = self.error or error_of_kind("ConfigError", line.removeprefix("mpies: ").strip())
                else:
                    sys.stderr.write(line)
                continue
            if severity == "ERROR" and "rank" not in entry:  # records of a log have it
                self.error = self.error or error_of_kind(entry.get("error", ""), message)
            elif severity != "INFO":
                self._logged = message if severity == "ERROR" else self._logged
                sys.stderr.write(f"{severity}: {message}\n")
        sys.stderr.flush()

    def failure(self, code: int) -> Exception:
        """The error of a job that ended with this exit code."""
        reason = self._logged or f"the ranks ended with code {code}: {self._last or 'they gave no reason'}"
        return self.error or TrainingFailed(reason)


class _Follower:
    """Shows the generations that come on record and calls the callbacks with them.

    error: what a callback raised.  has_stopped: whether one asked for a stop, or raised.
    """

    def __init__(self, folder: Path, callbacks: list[Callback], progress: Progress) -> None:
        self.error: BaseException | None = None
        self.has_stopped = False
        self._folder, self._callbacks, self._progress = folder, callbacks, progress
        self._view = RunView(absolute(folder))
        self._newest: float = self._generations().max(initial=0)
        self._phase: Phase | None = Phase("starting the ranks")
        self._run: Run | None = None

    def _generations(self) -> npt.NDArray[np.float64]:
        """The generations (g,) on record; 0 where a cell is damaged."""
        with contextlib.suppress(RunError):  # it cannot be read now: the next look may
            self._view.metrics.refresh()
        return np.nan_to_num(self._view.metrics.columns.get("generation", np.zeros(0)))

    def look(self) -> None:
        """Take note of the generations that came on record since the last look."""
        generations = self._generations()
        for place in np.flatnonzero(generations > self._newest).tolist():
            if generations[place] > self._newest and not self.has_stopped:
                self._newest = generations[place]
                self._show(place)
        if self._phase:
            self._progress.show_phase(self._phase)

    def _show(self, place: int) -> None:
        self._phase = None
        row = as_numbers({name: column[place] for name, column in self._view.metrics.columns.items()})
        self._progress.show(dict(row))
        try:
            if self._callbacks:
                self._run = self._run or Run(self._folder, lambda: self._newest)  # the ranks may have made newer ones
                self.has_stopped = call_all(self._callbacks, self._run, row)
        except BaseException as error:  # it comes out when the run is on disk
            self.error, self.has_stopped = error, True

    def close(self) -> None:
        """The ranks have ended: a run that a callback has kept reads all that is on record."""
        self._newest = math.inf

    def mark_as_stopped(self) -> None:
        """Write down that a callback has ended the run, whose ranks know of a signal alone."""
        lock = Lock(absolute(self._folder))
        lock.acquire()
        try:
            newest, steps = int(self._generations()[-1]), int(self._view.metrics.columns["steps"][-1])
            write_ending(absolute(self._folder), "callback", newest, steps)
        finally:
            lock.release()


def train_as_job(request: RunRequest, ranks: int, callbacks: list[Callback], progress: Progress) -> Run:
    """Train on `ranks` ranks of a job of its own; `request` says what.  Returns the run.

    Raises as `mpies.train` does, and KeyboardInterrupt where Ctrl-C comes before the first generation.
    """
    config = request.load()  # what is wrong with it is told at once
    follower, messages = _Follower(request.folder, callbacks, progress), Messages()
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="mpies-"))
        file = Path(folder) / "config.yaml"
        file.write_text(as_yaml(resolved(config)))
        given = Path(folder) / "given"  # by this process, for its own ranks
        ids = config.environment.id, str(getattr(config.policy, "module", ""))
        variables = {GIVEN: str(given)} if write_given(ids, given) else {}
        options = ["--out", str(request.folder), "--resume", request.resume, "--log-format", "json"]
        run = absolute(request.folder)  # a callback may change the working directory
        words, output = ["train", *options, "--", str(file)], subprocess.DEVNULL
        supervisor = Supervisor(
            words, ranks, RunsFinished([run]), output=output, write=messages.write, variables=variables
        )
        signals = Signals(owns_process=False)
        stack.callback(signals.restore)
        stack.callback(progress.close)
        stack.callback(follower.close)
        progress.set_stop(config.stop)
        code = _follow(supervisor, follower, signals)
    if follower.error:
        raise follower.error
    if code not in (FINISHED, REQUEUE):
        raise messages.failure(code)
    if follower.has_stopped and code == REQUEUE:
        follower.mark_as_stopped()
    if code == REQUEUE and not (absolute(request.folder) / "config.yaml").exists():
        raise KeyboardInterrupt
    return load(request.folder)


def _follow(supervisor: Supervisor, follower: _Follower, signals: Signals) -> int:
    """Run the supervisor in a thread and follow the run in this one.  Returns the exit code.

    Raises KeyboardInterrupt after a second Ctrl-C, which ends the ranks at once.
    """
    has_asked = False
    with ThreadPoolExecutor(1) as thread:
        end = thread.submit(supervisor.run)
        try:
            while not end.done():
                wait([end], POLL)
                follower.look()
                if not has_asked and (follower.has_stopped or signals.raised is not None):
                    has_asked = True
                    supervisor.stop()
        except BaseException:
            supervisor.stop()
            supervisor.stop()
            raise
        follower.look()
        return end.result()
