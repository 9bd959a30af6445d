"""The batches of settings that a sampler has proposed for a sweep, in its folder: batches.yaml.

A batch is proposed when all trials of the ones before have ended.  Whoever finds that so writes it down; all would
write the same.  The evaluations that it was proposed from are kept with it, since they may change later: with further
seeds, with a later end, or where a trial that has failed is trained again.
"""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mpies.config.loading import as_yaml, read_yaml
from mpies.core.errors import ConfigError
from mpies.runs.files import write_atomically
from mpies.runs.metrics import parse_number, read_metrics
from mpies.runs.reader import RunView
from mpies.sweeps.sampler import Batch, Sampler
from mpies.sweeps.trials import Sweep, Trial

FILE = "batches.yaml"


class Proposals:
    """The batches of a sweep.

    folder: of the sweep.  has_failed: whether a trial has failed, which is on record.
    batches: what has been proposed so far.  values: the evaluations of all of them but the newest.
    """

    def __init__(self, folder: Path, sweep: Sweep, has_failed: Callable[[Trial], bool]) -> None:
        assert sweep.sampler
        sweep.check_keys()
        self._folder, self._sweep, self._has_failed = folder, sweep, has_failed
        self.sampler = Sampler(sweep.sampler.kind, sweep.sampler.batch, sweep.vary, sweep.draw_seed)
        self._stamp: Any = None
        self.batches: list[Batch] = []
        self.values: list[list[float]] = []
        if not self.read():
            self.batches = [self.sampler.propose([], [], sweep.trials or 0)]

    @property
    def left(self) -> int:
        """How many settings are still to be proposed."""
        return max(0, (self._sweep.trials or 0) - sum(map(len, self.batches)))

    def read(self) -> bool:
        """Read what is on record.  Returns whether that is new.  Raises ConfigError where it is no such file."""
        stamp = RunView(self._folder).stamp(FILE)
        if stamp is None or stamp == self._stamp:
            return False
        file = self._folder / FILE
        try:
            content = read_yaml(file)
            self.batches = [self.sampler.with_fixed(batch) for batch in content["batches"]]
        except (ConfigError, KeyError, TypeError):
            raise ConfigError(
                f"{file}: does not hold settings of this sweep; remove it, and the sampler proposes them again from "
                "the evaluations of the trials"
            ) from None
        self.values, self._stamp = content.get("values", []), stamp
        return True

    def extend(self, trials: list[Trial]) -> bool:
        """Propose the next batch where all of these trials have ended.  Returns whether it did."""
        if not self.left:
            return False
        scores: dict[str, list[float]] = {}
        for trial in trials:
            score = self._score(trial)
            if score is None:
                return False
            scores.setdefault(str(trial.settings), []).append(score)
        for batch in self.batches[len(self.values) :]:
            self.values.append([sum(scores[str(one)]) / len(scores[str(one)]) for one in batch])
        self.batches.append(self.sampler.propose(self.batches, self.values, self.left))
        self.write()
        return True

    def write(self) -> None:
        """Put what has been proposed on record.  Raises OSError."""
        write_atomically(self._folder / FILE, as_yaml({"batches": self.batches, "values": self.values}).encode())
        self._stamp = RunView(self._folder).stamp(FILE)

    def _score(self, trial: Trial) -> float | None:
        """The evaluation of a trial's end; NaN for one that has failed, None for one under way."""
        if self._has_failed(trial):
            return math.nan
        view = RunView(self._folder / trial.name)
        rows = read_metrics(view.folder) if view.finished() else []
        return parse_number(rows[-1]["eval_mean"]) if rows else None
