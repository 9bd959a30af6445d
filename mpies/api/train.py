"""`mpies.train`: train a run in this process, on all ranks of mpirun, or as a job of its own."""

import contextlib
import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from mpies.api.arguments import (
    call_all,
    check_callbacks,
    name_environment,
    name_settings,
    read_mapping,
    read_path,
    read_whole_number,
)
from mpies.api.job import Callback, train_as_job
from mpies.api.policy import Policy
from mpies.api.run import Run, load
from mpies.comm import Communicator, connect
from mpies.comm.together import CollectiveError, abort_with_traceback
from mpies.config.loading import as_yaml, load_config, make_config, resolved
from mpies.config.schema import Config
from mpies.core.errors import ConfigError, TrainingFailed
from mpies.core.paths import fixed_start_folder
from mpies.core.text import describe_error
from mpies.core.threads import warn_of_threads
from mpies.report.display import make_progress
from mpies.report.figures import draw_in_background
from mpies.runs.files import default_out
from mpies.runs.formats.metrics import Numbers, as_numbers
from mpies.runs.formats.policy_file import PolicyFile
from mpies.runs.snapshot import Snapshot
from mpies.runs.writer import RunWriter, evaluation_attributes
from mpies.training.control import Signals
from mpies.training.logs import StandardErrorHandler, log_to
from mpies.training.progress import Progress
from mpies.training.session import RunRequest, train_run

RESUME = ("auto", "never", "must")


def train(
    config: str | Path | Mapping[str, Any] | Config | Any,
    *overrides: str,
    out: str | Path | None = None,
    ranks: int | None = None,
    resume: str = "auto",
    callbacks: Iterable[Callback] | Callback = (),
    progress: bool = True,
    **settings: Any,
) -> Run:
    """Train a policy, or continue a run that exists.  Returns the run when a stop rule holds.

    It trains in this process, in any thread; under mpirun on all ranks, which all call it and all get the run.  In the
    main thread Ctrl-C, SIGTERM and SIGUSR1 stop the run after the current generation.  After Ctrl-C the run is
    returned.  The other two signals then have their usual effect.

    config: the path of a YAML file, a recipe's name, an environment's id, a mapping with the same keys, a Config, or
    an environment: its class, a function that makes it, or an object.
    overrides: such as "solver.sigma=0.05".
    out: the run directory; by default runs/NAME, with the name of the config and the overrides.
    ranks: start a job of this many ranks with mpirun, and wait for its end; by default, train in this process.
    resume: "auto" continues a run that exists, "never" refuses to, "must" refuses to begin a new one.
    callbacks: functions f(run, row), called in turn after each generation, on rank 0.  row: the columns of metrics.csv
    but digest to numbers, None where a cell is empty; run.policy() is the policy of this generation.  Where one returns
    True, the run stops with the reason "callback".  Where one raises, the run stops and is saved, and `train` raises
    the same.
    progress: whether to show progress: a bar on a terminal and in a notebook, elsewhere a line a generation.
    settings: overrides by the last part of their keys, where one section alone has it: seed=3, generations=50.

    Raises ConfigError for a mistake in the arguments or the config, RunError where the run directory is damaged,
    RunLocked where another process writes it, EnvironmentProblem or SolverProblem where the user's code is wrong, and
    TrainingFailed where too many episodes fail or the run cannot be written.  On several ranks, an error on one rank
    alone is printed there and ends all of them.

    >>> run = mpies.train("cartpole", "stop.generations=50", out="runs/x")                        # doctest: +SKIP
    >>> run.best(observation)                                                                     # doctest: +SKIP
    """
    called = check_callbacks(callbacks)
    if resume not in RESUME:
        raise ConfigError(f"resume must be one of {', '.join(RESUME)}, but is {resume!r}")
    for override in overrides:
        if not isinstance(override, str):
            raise ConfigError(f'overrides must be texts such as "solver.sigma=0.05", but one of them is {override!r}')
    overrides += tuple(name_settings(settings))
    shown = make_progress() if progress else Progress()
    with fixed_start_folder():
        read_config: Callable[[], Config]
        if isinstance(config, str | Path):
            read_config, name = partial(load_config, config, overrides), str(config)
        else:
            values = read_mapping(config)
            read_config, name = partial(make_config, values, overrides, "config"), name_environment(values)
        folder, callback = read_path("out", out) if out else default_out(name, overrides), callback_in_training(called)
        request = RunRequest(read_config, folder, folder, resume, callback, when_over=draw_in_background)
        if ranks is None:
            return _train_here(request, shown)
        return train_as_job(request, read_whole_number("ranks", ranks, 1), called, shown)


class RunInBackground:
    """A run that a thread of this process trains, and what `mpies.start` returns.

    run: the Run, from its first generation on; None before.  is_running: whether it is being trained.
    """

    def __init__(self, call: Callable[[Callback], Run]) -> None:
        self.run: Run | None = None
        self._must_stop = False
        self._thread = ThreadPoolExecutor(1, "mpies-train")
        self._ending = self._thread.submit(call, self._follow)
        self._thread.shutdown(wait=False)

    def _follow(self, run: Run, row: Numbers) -> bool:
        self.run = self.run or load(run.path)
        return self._must_stop

    @property
    def is_running(self) -> bool:
        return not self._ending.done()

    def wait(self, seconds: float | None = None) -> Run:
        """The run, when it has ended.  Raises what `train` does, and TimeoutError after these seconds."""
        return self._ending.result(seconds)

    def stop(self) -> Run:
        """End the run after the current generation.  Returns it."""
        self._must_stop = True
        return self.wait()

    def __repr__(self) -> str:
        return f"RunInBackground({'before its first generation' if self.run is None else self.run!r})"

    def _repr_html_(self) -> str | None:
        """For notebooks: the curve so far."""
        return None if self.run is None else self.run._repr_html_()


def start(
    config: Any, *overrides: str, callbacks: Iterable[Callback] | Callback = (), **options: Any
) -> RunInBackground:
    """Train in the background, and go on in the notebook: as `train`, whose arguments it takes, but in a thread.

    >>> job = mpies.start("cartpole", ranks=2, out="runs/x")                                      # doctest: +SKIP
    >>> job.run.metrics["eval_mean"], job.stop().best                                             # doctest: +SKIP
    """
    called, options = check_callbacks(callbacks), {"progress": False} | options
    return RunInBackground(lambda follow: train(config, *overrides, callbacks=[follow, *called], **options))


def _train_here(request: RunRequest, progress: Progress) -> Run:
    """Train on this rank, and leave the process as it was."""
    with ranks_of_this_job() as (comm, signals):
        ending = train_run(comm, request, signals, progress, time.monotonic())
        raised = f"a callback raised {describe_error(ending.error)}" if ending.error else ""
        problem = comm.first_error(raised or ending.problem)  # all ranks raise an exception where one does
    if ending.error:
        raise ending.error
    if problem:
        raise TrainingFailed(problem)
    return load(request.folder)


@contextlib.contextmanager
def ranks_of_this_job() -> Iterator[tuple[Communicator, Signals]]:
    """The ranks that this process is one of, and its signals; leaves the process as it was.

    An exception of one rank alone ends all of them; the others would wait.
    """
    with contextlib.ExitStack() as stack:
        signals = Signals(owns_process=False)
        stack.callback(signals.restore)
        comm = connect()
        stack.callback(comm.close)
        if not logging.getLogger().handlers:  # this process has not set up logging
            handler = StandardErrorHandler(logging.WARNING)
            handler.setFormatter(logging.Formatter("%(levelname)s %(who)s: %(message)s"))
            stack.enter_context(log_to(comm, handler))
        if comm.node_rank == 0:
            warn_of_threads(comm.node_size)
        try:
            yield comm, signals
        except CollectiveError as error:
            raise error.mistake from None
        except BaseException:
            abort_with_traceback(comm)
            raise


class RunInTraining(Run):
    """The run that this process trains.  What is read from disk waits until the newest generation is there."""

    def __init__(self, writer: RunWriter, snapshot: Snapshot) -> None:
        super().__init__(writer.path, self._flush)
        self._writer, self.snapshot = writer, snapshot

    def _flush(self) -> float:
        self._writer.flush()
        return math.inf

    def policy(self, generation: int | None = None) -> Policy:
        snapshot = self.snapshot
        if not self._writer.lock.is_held or generation not in (None, snapshot.generation):
            return super().policy(generation)
        attributes = {"generation": snapshot.generation, "config": as_yaml(resolved(self._writer.config))}
        attributes |= evaluation_attributes(snapshot.evaluation)
        return Policy(PolicyFile(self.path, self._writer.config, dict(snapshot.policy), attributes))


def callback_in_training(callbacks: list[Callback]) -> Callable[[RunWriter, Snapshot], bool] | None:
    """The callbacks as training calls them; None without any."""
    if not callbacks:
        return None
    runs: list[RunInTraining] = []  # made at the first generation, when the run directory is there

    def on_generation(writer: RunWriter, snapshot: Snapshot) -> bool:
        if not runs:
            runs.append(RunInTraining(writer, snapshot))
        runs[0].snapshot = snapshot
        return call_all(callbacks, runs[0], as_numbers(snapshot.row))

    return on_generation
