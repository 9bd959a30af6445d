"""Successive halving: train all settings a little, go on with the best of them, and so on.

Jamieson and Talwalkar 2016 (arXiv 1502.07943), Li et al. 2018 (arXiv 1603.06560), section 2: of n settings, the best
n / eta are trained eta times as long, until one is left or the next budget is a whole run.  Rungs are synchronous: the
best are chosen when all have ended, so they depend on neither the number of ranks nor on interruptions.  What has been
decided is not written down: it follows from the metrics.csv of the trials.
"""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from mpies.config.schema import StopSection
from mpies.core.errors import ConfigError
from mpies.report.compare.ranking import Trial
from mpies.runs.formats.metrics import parse_count, parse_number, read_metrics
from mpies.runs.reader import RunView
from mpies.sweeps.trials import HalvingOptions, Sweep
from mpies.training.control import rule_that_holds
from mpies.training.learner import Clock

Row = tuple[int, float]  # how far a run was, in the unit of the budgets, and its evaluation then; NaN where it had none


class Halving:
    """How far a sweep with halving is.

    folder: of the sweep.  has_failed: whether a trial has failed, which is on record.
    rung: the present one, counted from 0.
    """

    def __init__(
        self,
        options: HalvingOptions,
        folder: Path,
        sweep: Sweep,
        trials: Sequence[Trial],
        has_failed: Callable[[Trial], bool],
    ) -> None:
        self.options, self._folder, self._sweep, self._has_failed = options, folder, sweep, has_failed
        self._by_label: dict[str, list[Trial]] = {}
        for trial in trials:
            self._by_label.setdefault(trial.label, []).append(trial)
        self._rungs: dict[str, int] = {}  # the last rung of each of the settings so far
        self._stops: dict[str, StopSection] = {}
        self._rows: dict[str, tuple[Any, list[Row], Clock]] = {}  # name to the stamp of metrics.csv and its content
        self.forget()

    def forget(self) -> None:
        """Decide anew from the first rung on, because trials are tried again."""
        self.rung, self._rungs = 0, dict.fromkeys(self._by_label, 0)
        self._budgets: dict[int, int | None] = {}  # of rungs
        self._scores: dict[str, float] = {}  # of the present rung, by name

    @property
    def budget(self) -> int | None:
        """Where trials of the present rung end, in units; None where they are trained to their own end."""
        if self.rung not in self._budgets:
            labels = [label for label, rung in self._rungs.items() if rung == self.rung]
            budget = self.options.first * self.options.eta**self.rung
            ends = [self._end(label) for label in labels]
            is_whole = all(end is not None and end <= budget for end in ends)
            self._budgets[self.rung] = None if is_whole or len(labels) == 1 else budget
        return self._budgets[self.rung]

    def check(self) -> None:
        """Raise ConfigError where halving has no effect: the first budget is a whole run, or there is one setting."""
        first, unit = self.options.first, self.options.unit
        for label in self._by_label:
            end = self._end(label)
            if end is not None and end <= first:
                raise ConfigError(
                    f"halving: first is {first}, but {label or 'the config'} ends after {end} {unit} anyway; lower "
                    f"first, or raise stop.{unit}"
                )
        if len(self._by_label) == 1:
            raise ConfigError(
                "halving: there is only one setting, so none can be dropped; give a key several values, or leave "
                "halving out"
            )

    def refresh(self) -> None:
        """Go on to the next rung where all trials of the present one have ended."""
        while self.budget is not None:
            labels = [label for label, rung in self._rungs.items() if rung == self.rung]
            means = {}
            for label in labels:
                scores = [self._score(trial) for trial in self._by_label[label]]
                if any(score is None for score in scores):
                    return
                means[label] = sum(score for score in scores if score is not None) / len(scores)
            # Python sorts stably: settings with equal means keep the order of the sweep, and NaN comes last.
            best = sorted(labels, key=lambda label: (math.isnan(means[label]), -means[label]))
            self.rung += 1
            self._scores = {}
            kept = best[: max(1, len(labels) // self.options.eta)]
            self._rungs |= dict.fromkeys(kept, self.rung)

    def rung_of(self, trial: Trial) -> int:
        """The last rung of a trial so far."""
        return self._rungs[trial.label]

    def is_dropped(self, trial: Trial) -> bool:
        """Whether a trial is trained no further, as others were better."""
        return self._rungs[trial.label] < self.rung

    def is_done(self, trial: Trial) -> bool:
        """Whether a trial of the present rung has ended."""
        return self._score(trial) is not None

    def is_complete(self, trial: Trial) -> bool:
        """Whether a trial that has ended is complete, apart from later rungs: a stop rule may have been changed."""
        reason = RunView(self._folder / trial.name).finished().get("reason")
        rows, clock = self._read(trial)
        if reason == self.options.unit or not rows:  # `_find_score` knows whether it goes on
            return True
        solved = rows[-1][1] if reason == "solved" else -math.inf
        return bool(rule_that_holds(self._stop(trial.label), clock, solved))

    def overrides(self, trial: Trial, budget: int) -> list[str]:
        """What the config of a trial has besides its settings, so that it ends with this budget."""
        end = self._end(trial.label)
        return [] if end is not None and end <= budget else [f"stop.{self.options.unit}={budget}"]

    def _stop(self, label: str) -> StopSection:
        if label not in self._stops:
            self._stops[label] = self._sweep.config(self._by_label[label][0]).stop
        return self._stops[label]

    def _end(self, label: str) -> int | None:
        """Where a whole run ends, in units; None where the config does not say."""
        end: int | None = getattr(self._stop(label), self.options.unit)
        return end

    def _score(self, trial: Trial) -> float | None:
        """The evaluation at the end of the present rung; NaN for a trial that has failed, None for one under way."""
        if trial.name in self._scores:
            return self._scores[trial.name]
        score = self._find_score(trial)
        if score is not None:
            self._scores[trial.name] = score
        return score

    def _find_score(self, trial: Trial) -> float | None:
        rows, clock = self._read(trial)
        if self.budget is not None:
            at_end = next((mean for count, mean in rows if count >= self.budget), None)
            if at_end is not None:
                return at_end  # also of one that failed in a later rung: that changes no earlier choice
        if self._has_failed(trial):
            return math.nan
        ending = RunView(self._folder / trial.name).finished()
        if not rows or not ending:
            return None
        # A run that reached the budget of an earlier rung goes on, unless another rule holds as well.
        is_whole = ending.get("reason") != self.options.unit
        is_whole = is_whole or bool(rule_that_holds(self._stop(trial.label), clock, -math.inf))
        return rows[-1][1] if is_whole else None

    def _read(self, trial: Trial) -> tuple[list[Row], Clock]:
        """The rows of a trial, and its clock at the last one."""
        view = RunView(self._folder / trial.name)
        stamp = (view.stamp("metrics.csv"), view.stamp("finished.yaml"))  # the former may not be readable for a moment
        if trial.name not in self._rows or self._rows[trial.name][0] != stamp:
            column = "generation" if self.options.unit == "generations" else "steps"
            texts, clock = read_metrics(view.folder), Clock()
            for row in texts[-1:]:
                clock = Clock(int(row["generation"]), 0, parse_count(row["steps"]), parse_number(row["seconds"], 0.0))
            rows = [(parse_count(row[column]), parse_number(row["eval_mean"])) for row in texts]
            self._rows[trial.name] = stamp, rows, clock
        return self._rows[trial.name][1:]
