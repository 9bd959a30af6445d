"""What callbacks of training get: each generation's row, and the run with its newest policy."""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import numpy as np

from mpies.api.policy import Policy
from mpies.api.run import Run
from mpies.config.loading import as_yaml, resolved
from mpies.core.errors import ConfigError
from mpies.runs.metrics import Numbers, as_numbers
from mpies.runs.policy_file import PolicyFile
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
