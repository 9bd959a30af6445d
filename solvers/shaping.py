"""Fitness shaping: from returns to the fitness that a solver learns from.  Higher is better, NaN (failed) is worst.

The kinds are named after `return_proc_mode` of OpenAI's evolution-strategies-starter.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from mpies.core.arrays import Float32s, Float64s, Int64s


def centred_ranks(fitness: npt.ArrayLike) -> Float32s:
    """Ranks of `fitness` scaled to [-0.5, 0.5], summing to zero (Salimans et al. 2017, arXiv 1703.03864, section 2.1).

    fitness: (n,), higher is better; NaN ranks last, ties share their mean rank.
    Returns (n,).  Raises ValueError for fewer than two values.
    """
    fitness = np.asarray(fitness, np.float64)
    if fitness.ndim != 1 or len(fitness) < 2:
        raise ValueError(f"centred ranks need a vector of two or more values, but got shape {fitness.shape}")
    keyed = np.where(np.isnan(fitness), -np.inf, fitness)
    # The second key puts NaN below a fitness of -inf, which a member can reach without failing.
    order = np.lexsort((~np.isnan(fitness), keyed))
    sorted_keys = np.stack([keyed[order], ~np.isnan(fitness)[order]])
    starts = np.flatnonzero(np.r_[True, np.any(sorted_keys[:, 1:] != sorted_keys[:, :-1], axis=0)])
    stops = np.r_[starts[1:], len(fitness)]
    ranks = np.empty(len(fitness))
    ranks[order] = np.repeat((starts + stops - 1) / 2, stops - starts)
    return (ranks / (len(fitness) - 1) - 0.5).astype(np.float32)


def best_first(fitness: npt.ArrayLike) -> Int64s:
    """Member numbers (n,) from the best to the worst.  Ties stay in member order, NaN comes last."""
    fitness = np.asarray(fitness, np.float64)
    failed = np.isnan(fitness)
    return np.lexsort((np.where(failed, 0.0, -fitness), failed))


def bounded(fitness: npt.ArrayLike) -> Float64s:
    """Fitness (n,) with NaN and -inf replaced by the worst finite value, inf by the best; zeros if none is finite."""
    fitness = np.asarray(fitness, np.float64)
    finite = fitness[np.isfinite(fitness)]
    if not len(finite):
        return np.zeros_like(fitness)
    return np.clip(np.where(np.isnan(fitness), -np.inf, fitness), finite.min(), finite.max())


def z_scores(fitness: npt.ArrayLike) -> Float32s:
    """Bounded fitness (n,) scaled to mean 0 and standard deviation 1; zeros if all values are equal."""
    fitness = bounded(fitness)
    centred = fitness - fitness.mean()
    deviation = centred.std()
    return (centred / deviation if deviation > 0 else np.zeros_like(centred)).astype(np.float32)


def raw(fitness: npt.ArrayLike) -> Float32s:
    """Bounded fitness (n,), not scaled."""
    return bounded(fitness).astype(np.float32)


def shape(kind: str, returns: Float64s, sign_returns: Float64s) -> Float32s:
    """Shaped fitness (n,).

    kind: a key of SHAPINGS.  returns: (n,) undiscounted returns.
    sign_returns: (n,) sums of the signs of the rewards.  The two sign kinds use them instead of the returns, because
    they do not depend on the scale of single rewards.
    """
    return SHAPINGS[kind](np.where(np.isnan(returns), np.nan, sign_returns) if "sign" in kind else returns)


SHAPINGS: dict[str, Callable[[Float64s], Float32s]] = {
    "centred_rank": centred_ranks,
    "sign": raw,
    "centred_sign_rank": centred_ranks,
    "z_score": z_scores,
    "raw": raw,
}
