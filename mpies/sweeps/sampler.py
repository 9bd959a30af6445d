"""Settings that Optuna proposes in batches, from the evaluations of all batches before, and their record.

A study is never stored.  It is made again from the sweep's seed and the values so far, in the order of the trials, so
the same sweep proposes the same settings on any number of ranks and after any interruption.

A batch is proposed when all trials of the ones before have ended.  Whoever finds that so writes it to batches.yaml in
the sweep's folder; all would write the same.  The evaluations that it was proposed from are kept with it, since they
may change later: with further seeds, with a later end, or where a trial that has failed is trained again.
"""

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mpies.config.loading import as_yaml, read_yaml
from mpies.core.errors import ConfigError, import_extra
from mpies.report.compare.ranking import Trial
from mpies.runs.files import write_atomically
from mpies.runs.formats.metrics import parse_number, read_metrics
from mpies.runs.reader import RunView
from mpies.sweeps.settings import Distribution, Settings, read_values
from mpies.sweeps.trials import Sweep

FILE = "batches.yaml"

Batch = list[Settings]


class Sampler:
    """Proposes settings.  Raises ConfigError where Optuna is not installed, or cannot draw from what varies.

    kind: tpe or cma.  size: of a batch.  vary: keys to what `settings.read_values` takes; of a list, Optuna chooses.
    """

    def __init__(self, kind: str, size: int, vary: Mapping[str, Any], seed: int) -> None:
        self._kind, self._size, self._seed = kind, size, seed
        given = {key: read_values(key, values) for key, values in vary.items()}
        self._fixed = {key: one[0] for key, one in given.items() if isinstance(one, list) and len(one) == 1}
        self._drawn = {
            key: one if isinstance(one, Distribution) else Distribution("choice", one)
            for key, one in given.items()
            if key not in self._fixed
        }
        choices = [key for key, one in self._drawn.items() if one.kind == "choice"]
        if not self._drawn:
            raise ConfigError(
                "sampler: nothing varies; give a key several values, or a range such as {uniform: [0, 1]}"
            )
        if kind == "cma" and choices:
            raise ConfigError(f"sampler: cma can draw only numbers, but {choices[0]} is a choice; use kind tpe")
        if kind == "cma" and size < 2:
            raise ConfigError(f"sampler: batch must be at least 2 for cma, but is {size}; raise it, or use kind tpe")

    def propose(self, batches: Sequence[Batch], values: Sequence[Sequence[float]], count: int) -> Batch:
        """The next settings, `count` at most.

        batches: those before, each with its values: the higher the better, NaN for what has failed.
        """
        study = self._make_study()
        for number, (batch, told) in enumerate(zip(batches, values, strict=True)):
            asked = [study.ask(self._distributions) for _ in batch]
            if [self._settings(one.params) for one in asked] != batch:
                raise ConfigError(
                    f"sampler: this version of Optuna proposes other settings for batch {number + 1} than the version "
                    "that this sweep began with; install that one, or choose another --out"
                )
            for one, value in zip(asked, told, strict=True):
                if math.isfinite(value):
                    study.tell(one, value)
                else:
                    study.tell(one, state=self._optuna.trial.TrialState.FAIL)
        return [self._settings(study.ask(self._distributions).params) for _ in range(min(count, self._size))]

    def with_fixed(self, batch: Batch) -> Batch:
        """A batch on record with today's values of the keys that are not drawn, such as a later end."""
        return [self._fixed | {key: one[key] for key in self._drawn} for one in batch]

    def corners(self) -> Batch:
        """Settings with the lowest and the highest numbers and all choices, to see whether a config takes them."""
        ends = {key: one.values for key, one in self._drawn.items()}
        longest = max(map(len, ends.values()))
        return [
            self._fixed | {key: one[min(number, len(one) - 1)] for key, one in ends.items()}
            for number in range(longest)
        ]

    def _make_study(self) -> Any:
        self._optuna = optuna = import_extra("optuna", "sampler: needs Optuna, which is not installed", "optuna")
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._distributions = {key: self._as_distribution(one) for key, one in self._drawn.items()}
        samplers = optuna.samplers
        if self._kind == "cma":
            sampler: Any = samplers.CmaEsSampler(seed=self._seed, popsize=self._size, warn_independent_sampling=False)
        else:
            sampler = samplers.TPESampler(seed=self._seed, constant_liar=True)
        return optuna.create_study(direction="maximize", sampler=sampler)

    def _as_distribution(self, given: Distribution) -> Any:
        kinds = self._optuna.distributions
        if given.kind == "choice":  # by number: Optuna takes no lists as values
            return kinds.CategoricalDistribution(tuple(range(len(given.values))))
        if given.kind == "integer":
            return kinds.IntDistribution(*given.values)
        return kinds.FloatDistribution(*map(float, given.values), log=given.kind == "log_uniform")

    def _settings(self, params: Mapping[str, Any]) -> Settings:
        """The settings of a draw.  Numbers are rounded as those that mpies draws, which Optuna need not know."""
        found = dict(self._fixed)
        for key, one in self._drawn.items():
            value = params[key]
            if one.kind == "choice":
                value = one.values[value]
            elif one.kind != "integer":
                value = one.round(value)
            found[key] = value
        return copy.deepcopy(found)  # YAML would write what several settings share as a reference


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
