"""Statistics over seeds: averages of runs of one config, with their intervals and bands."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mpies.core.errors import ConfigError
from mpies.report.curves import Floats

# The 97.5 % quantiles of Student's t of 1, 2, ... degrees of freedom.
T_QUANTILES = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)


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


def interquartile_mean(values: Floats) -> Floats:
    """The mean over the first axis (runs, ...) without the lowest and the highest quarter of the runs (...)."""
    return np.asarray(_import_stats().trim_mean(values, 0.25, axis=0), dtype=float)


def bootstrap_interval(values: Floats) -> tuple[Floats, Floats]:
    """The 95 % interval of `interquartile_mean` over runs (runs, ...), by a percentile bootstrap over the runs.

    As Agarwal et al. 2021 ("Deep Reinforcement Learning at the Edge of the Statistical Precipice") recommend for few
    seeds.  The same values give the same interval.  Of a single run it is that run.
    """
    if len(values) < 2:
        return interquartile_mean(values), interquartile_mean(values)
    stats = _import_stats()

    def statistic(resampled: Floats, axis: int) -> Floats:
        return np.asarray(stats.trim_mean(resampled, 0.25, axis=axis), dtype=float)

    found = stats.bootstrap((values,), statistic, n_resamples=2000, method="percentile", axis=0, batch=200, rng=0)
    return np.asarray(found.confidence_interval.low), np.asarray(found.confidence_interval.high)


# Bands of figures: their words, and the line over the runs (runs, points) with the lower and upper end of its band.
BANDS: dict[str, tuple[str, Callable[[Floats], tuple[Floats, Floats, Floats]]]] = {
    "bootstrap": (
        "interquartile mean over seeds, 95 % bootstrap interval",
        lambda values: (interquartile_mean(values), *bootstrap_interval(values)),
    ),
    "range": (
        "mean over seeds, from the worst to the best seed",
        lambda values: (values.mean(axis=0), values.min(axis=0), values.max(axis=0)),
    ),
}


def _import_stats() -> Any:
    """The statistics of SciPy.  Raises ConfigError where it is not installed."""
    try:
        from scipy import stats
    except ImportError:
        raise ConfigError(
            'statistics over seeds need SciPy, which is not installed: pip install "mpies[plots]"'
        ) from None
    return stats
