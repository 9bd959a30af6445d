"""What callbacks of training get: each generation's row, and the run with its newest policy."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from mpies.api.policy import Policy
from mpies.api.run import Run
from mpies.config.loading import as_yaml, resolved
from mpies.core.errors import ConfigError
from mpies.runs.hdf5 import Arrays
from mpies.runs.metrics import Numbers, as_numbers
from mpies.runs.policy_file import PolicyFile
from mpies.runs.reader import Columns
from mpies.runs.snapshot import Snapshot
from mpies.runs.writer import RunWriter, evaluation_attributes

Callback = Callable[[Run, Numbers], object]


C = TypeVar("C", bound=Callable[..., Any])


def check_callbacks(callbacks: Iterable[C] | C, form: str = "f(run, row)") -> list[C]:
    """The callbacks as a list.  form: how they are called.  Raises ConfigError where one of them cannot be called."""
    if not callable(callbacks) and not isinstance(callbacks, Iterable):
        raise ConfigError(f"callbacks must be a function {form}, or a list of such, but is {callbacks!r}")
    given = [callbacks] if callable(callbacks) else list(callbacks)
    for callback in given:
        if not callable(callback):
            raise ConfigError(f"callbacks must be functions {form}, but one of them is {callback!r}")
    return given


def any_true(answers: Iterable[object]) -> bool:
    """Whether one of the callbacks' answers is True, Python's or NumPy's, which stops the run or the search."""
    return any(isinstance(answer, bool | np.bool_) and bool(answer) for answer in answers)


def call_all(callbacks: Iterable[Callback], run: Run, row: Mapping[str, float | int | None]) -> bool:
    """Call all of them.  Returns whether one of them returned True, which stops the run."""
    return any_true([callback(run, dict(row)) for callback in callbacks])


class RunInTraining(Run):
    """The run that this process trains, after a generation that may not be on disk yet.

    What is asked for on disk waits until it is there.  When training has ended it is a Run like any other, which reads
    what is on disk.
    """

    def __init__(self, writer: RunWriter) -> None:
        super().__init__(writer.path)
        self._writer = writer
        self._snapshot: Snapshot | None = None
        self._config = as_yaml(resolved(writer.config))

    def go_on(self, snapshot: Snapshot) -> None:
        """Take note of the newest generation."""
        self._snapshot = snapshot

    @property
    def _newest(self) -> Snapshot | None:
        """The newest generation while training goes on; else None."""
        return self._snapshot if self._writer.lock.is_held else None

    @property
    def generation(self) -> int:
        snapshot = self._newest
        return snapshot.generation if snapshot else super().generation

    @property
    def metrics(self) -> Columns:
        self._writer.flush()
        return super().metrics

    @property
    def best(self) -> Policy:
        self._writer.flush()
        return super().best

    def _read_record(self, generation: int) -> Arrays:
        self._writer.flush()
        return super()._read_record(generation)

    def report(self, out: str | Path | None = None) -> Path:
        self._writer.flush()
        return super().report(out)

    def _repr_html_(self) -> str:
        self._writer.flush()
        return super()._repr_html_()

    def policy(self, generation: int | None = None) -> Policy:
        snapshot = self._newest
        if snapshot is None or generation not in (None, snapshot.generation):
            self._writer.flush()
            return super().policy(generation)
        attributes = {"generation": snapshot.generation, "config": self._config}
        attributes |= evaluation_attributes(snapshot.evaluation)
        return Policy(PolicyFile(self.path, self._writer.config, dict(snapshot.policy), attributes))


def callback_in_training(callbacks: list[Callback]) -> Callable[[RunWriter, Snapshot], bool] | None:
    """The callbacks as training calls them; None without any."""
    if not callbacks:
        return None
    runs: list[RunInTraining] = []  # made at the first generation, when the run directory is there

    def on_generation(writer: RunWriter, snapshot: Snapshot) -> bool:
        if not runs:
            runs.append(RunInTraining(writer))
        runs[0].go_on(snapshot)
        return call_all(callbacks, runs[0], as_numbers(snapshot.row))

    return on_generation
