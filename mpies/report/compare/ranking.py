"""The settings of a sweep ranked by their results.  The sweep's tables, its page and `mpies compare` all show this."""

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from mpies.report.compare.run_groups import Settings
from mpies.runs.formats.metrics import round_number

BEST = 10  # settings whose curves are drawn; the tables have all
# The 97.5 % quantiles of Student's t of 1, 2, ... degrees of freedom.
T_QUANTILES = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)


def table_as_csv(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """A table as text of a CSV file; None and what a row lacks are empty, and what is no column is left out."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


@dataclass(frozen=True)
class Trial:
    """A run of a sweep.

    name: of its directory.  label: of its settings, the same for all its seeds.  overrides: all in which its config
    differs from the base, as KEY=VALUE.
    """

    name: str
    label: str
    settings: Settings
    seed: int
    overrides: tuple[str, ...]


@dataclass(frozen=True)
class Result:
    """How far a trial is.

    state: one of sweeps.folder.STATES, or solved.  core_seconds: of training, summed over the ranks.
    eval_mean, eval_interval: of the newest evaluation and half the width of its 95 % confidence interval, NaN before
    the first one.  reason: why it has failed, or the stop rule that ended it; '' before.
    rung: that it came to, with halving, counted from 0.
    """

    trial: Trial
    state: str
    generations: int = 0
    steps: int = 0
    core_seconds: float = 0.0
    eval_mean: float = math.nan
    eval_interval: float = math.nan
    reason: str = ""
    rung: int = 0

    @property
    def is_finished(self) -> bool:
        return self.state in ("finished", "solved")

    @property
    def has_ended(self) -> bool:
        """Whether nobody trains it any more."""
        return self.is_finished or self.state in ("dropped", "failed")

    @property
    def is_ranked(self) -> bool:
        """Whether its evaluation counts: that of its end, or, with halving, of a rung."""
        return self.is_finished or self.state in ("dropped", "waiting") or (self.rung > 0 and self.state != "failed")


@dataclass(frozen=True)
class Standing:
    """The results of the same settings with all seeds.

    mean: of the evaluations of its finished trials, NaN without any.  interval: half the width of its 95 % confidence
    interval over the seeds; with one seed, over the episodes.  rank: 1 for the best mean, 0 where there is none; with
    halving, those that came to a later rung are better.
    """

    results: list[Result]
    mean: float
    interval: float
    rank: int

    @property
    def settings(self) -> Settings:
        return self.results[0].trial.settings

    def describe(self, keys: Sequence[str]) -> dict[str, Any]:
        """Names and values for JSON, None for what is not known; `settings` has those of the keys.

        mean and interval are over the seeds that have finished.  steps and core_seconds are sums over all seeds.
        """
        states = [result.state for result in self.results]
        return {
            "rank": self.rank or None,
            "settings": {key: self.settings[key] for key in keys},
            "mean": round_number(self.mean),
            "interval": round_number(self.interval),
            "seeds": len(self.results),
            "finished": sum(result.is_finished for result in self.results),
            "solved": states.count("solved"),
            "failed": states.count("failed"),
            "steps": sum(result.steps for result in self.results),
            "core_seconds": round(sum(result.core_seconds for result in self.results), 3),
            "trials": [_describe(result) for result in self.results],
        }


def _describe(result: Result) -> dict[str, Any]:
    values = {name: value for name, value in asdict(result).items() if name != "trial"}
    values = {name: round_number(value) if isinstance(value, float) else value for name, value in values.items()}
    return {"name": result.trial.name, "seed": result.trial.seed, **values}


def rank_settings(results: Sequence[Result]) -> list[Standing]:
    """The Standing of each of the settings, the best first.  Equal means share a rank; those without one come last."""
    by_label: dict[str, list[Result]] = {}
    for result in results:
        by_label.setdefault(result.trial.label, []).append(result)
    found = [(group, *_average(group)) for group in by_label.values()]
    found.sort(key=lambda one: _order(one[0], one[1]))
    orders = [_order(group, mean) for group, mean, _ in found]
    return [
        Standing(group, mean, interval, 0 if math.isnan(mean) else 1 + orders.index(_order(group, mean)))
        for group, mean, interval in found
    ]


def _order(group: Sequence[Result], mean: float) -> tuple[int, int, float]:
    """What the Standings are sorted by: those with a mean first, then by rung, then by the mean."""
    return (1, 0, 0.0) if math.isnan(mean) else (0, -group[0].rung, -mean)


def _average(group: Sequence[Result]) -> tuple[float, float]:
    """Mean and interval of those whose evaluation counts."""
    ranked = [one for one in group if one.is_ranked and not math.isnan(one.eval_mean)]
    return average_seeds([one.eval_mean for one in ranked], [one.eval_interval for one in ranked])


def average_seeds(means: Sequence[float], intervals: Sequence[float]) -> tuple[float, float]:
    """The mean of the evaluations of n seeds, and half the width of its 95 % confidence interval, by Student's t.

    means, intervals: (n,) of each seed.  Of one seed both are its own; without any they are NaN.
    """
    if len(means) < 2:
        return (means[0], intervals[0]) if means else (math.nan, math.nan)
    values = np.array(means)
    freedom = len(values) - 1
    if freedom <= len(T_QUANTILES):
        quantile = T_QUANTILES[freedom - 1]
    else:  # Abramowitz and Stegun 1964, 26.7.5
        quantile = 1.96 + 2.372 / freedom + 2.823 / freedom**2
    return float(values.mean()), float(quantile * values.std(ddof=1) / math.sqrt(len(values)))
