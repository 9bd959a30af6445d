"""What training hands to the run directory: values that do not change any more."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from mpies.core.arrays import Float64s, Int64s
from mpies.core.text import counted
from mpies.runs.formats.metrics import Row

CONFIDENCE = 1.96  # standard errors on either side of a mean that make its 95 % confidence interval


def half_interval(std: Any, episodes: Any) -> Any:
    """Half the width of the 95 % confidence interval of the mean of so many returns with this standard deviation.

    A number, or an array (n,) of them for arrays (n,).  NaN for a single episode, which tells nothing of it.
    """
    with np.errstate(all="ignore"):
        return CONFIDENCE * std / np.sqrt(np.where(np.greater(episodes, 1), episodes, np.nan))


@dataclass(frozen=True, repr=False)
class Evaluation:
    """Held-out episodes of the mean.

    returns: (episodes,) float64, of the episodes that worked.  lengths: (episodes,) int64, in steps.
    confirmed: whether the mean return reaches the target, and again over 100 fresh episodes at least.
    failures: how many episodes failed; the mean leaves them out, so it is neither the best nor confirmed.
    """

    returns: Float64s
    lengths: Int64s
    confirmed: bool = False
    failures: int = 0

    @classmethod
    def of(cls, totals: Float64s, steps: Int64s) -> "Evaluation":
        """The Evaluation of these episodes.  totals: (k,) returns, not finite where one failed.  steps: (k,)."""
        works = np.isfinite(totals)
        return cls(totals[works], steps[works], failures=int(len(totals) - works.sum()))

    @property
    def mean(self) -> float:
        return float(np.mean(self.returns))

    @property
    def length(self) -> float:
        """Mean length in steps."""
        return float(np.mean(self.lengths))

    @property
    def std(self) -> float:
        """Sample standard deviation of the returns."""
        return float(np.std(self.returns, ddof=1)) if len(self.returns) > 1 else 0.0

    @property
    def interval(self) -> float:
        """Half the width of the 95 % confidence interval of the mean, as of `half_interval`."""
        return float(half_interval(self.std, len(self.returns)))

    def __repr__(self) -> str:
        failed = f", {self.failures} failed" if self.failures else ""
        return f"Evaluation(mean {self.mean:g} +- {self.interval:.3g}, {counted(len(self.returns), 'episode')}{failed})"

    def rank_among(self, returns: Float64s) -> float:
        """The share of a generation's `returns` (n,) below an episode of the mean: 0.5 where noise changes nothing."""
        return float(np.searchsorted(np.sort(returns), self.returns).mean() / max(len(returns), 1))


def evaluation_attributes(evaluation: Evaluation | None) -> dict[str, Any]:
    """What a policy file records of the evaluation of its generation; {} without one."""
    if evaluation is None:
        return {}
    return {"eval_mean": evaluation.mean, "eval_std": evaluation.std, "eval_episodes": len(evaluation.returns)}


@dataclass(frozen=True)
class Snapshot:
    """The learner after a generation, copied, so that training may go on while it is written.

    state: names to arrays, all that the next generation depends on; the digest covers it.
    progress: what a checkpoint holds besides: statistics, clock, limit and the best evaluation.
    results: what the members returned, as the ledger records it; {} where no generation has been made.
    policy: names to arrays of a portable policy.
    row: of metrics.csv, without its digest.  evaluation: of this generation, None where none was due.
    is_best: whether that evaluation is the best so far.
    idle: (ranks,) share of the generation's time in which a rank played nothing.
    """

    generation: int
    state: Mapping[str, Any]
    progress: Mapping[str, Any]
    policy: Mapping[str, Any]
    results: Mapping[str, Any]
    row: Row
    evaluation: Evaluation | None = None
    is_best: bool = False
    idle: Float64s | None = None
