"""Fitness shaping: from returns to weights.  Higher is better; NaN is always worst.

Names follow OpenAI's `return_proc_mode`.
"""

import numpy as np


def centred_ranks(fitness):
    """Ranks of `fitness` scaled to [-0.5, 0.5], summing to zero (Salimans et al. 2017, section 2.1).

    fitness: (n,) higher is better; NaN ranks last, ties share their mean rank.
    Returns (n,) float32.  Raises ValueError for fewer than two values.
    """
    fitness = np.asarray(fitness, np.float64)
    if fitness.ndim != 1 or len(fitness) < 2:
        raise ValueError(f"centred ranks need a vector of two or more values, but got shape {fitness.shape}")
    keyed = np.where(np.isnan(fitness), -np.inf, fitness)
    # -inf may be an honest value: NaN sorts below it by a second key.
    order = np.lexsort((~np.isnan(fitness), keyed))
    sorted_keys = np.stack([keyed[order], ~np.isnan(fitness)[order]])
    starts = np.flatnonzero(np.r_[True, np.any(sorted_keys[:, 1:] != sorted_keys[:, :-1], axis=0)])
    stops = np.r_[starts[1:], len(fitness)]
    ranks = np.empty(len(fitness))
    ranks[order] = np.repeat((starts + stops - 1) / 2, stops - starts)
    return (ranks / (len(fitness) - 1) - 0.5).astype(np.float32)


def best_first(fitness):
    """Member numbers (n,) from the best to the worst: ties in member order, NaN last."""
    fitness = np.asarray(fitness, np.float64)
    failed = np.isnan(fitness)
    return np.lexsort((np.where(failed, 0.0, -fitness), failed))


def bounded(fitness):
    """Fitness (n,) float64 with the worst finite value in place of NaN and -inf, the best in place of inf."""
    fitness = np.asarray(fitness, np.float64)
    finite = fitness[np.isfinite(fitness)]
    if not len(finite):
        return np.zeros_like(fitness)
    return np.clip(np.where(np.isnan(fitness), -np.inf, fitness), finite.min(), finite.max())


def z_scores(fitness):
    """Fitness with mean 0 and standard deviation 1; zeros when all are equal.  Returns (n,) float32."""
    fitness = bounded(fitness)
    centred = fitness - fitness.mean()
    deviation = centred.std()
    return (centred / deviation if deviation > 0 else np.zeros_like(centred)).astype(np.float32)


def raw(fitness):
    """Fitness as it is, NaN and infinite values replaced by the worst or best.  Returns (n,) float32."""
    return bounded(fitness).astype(np.float32)


def shape(kind, returns, sign_returns):
    """Shaped fitness (n,) float32.

    returns: (n,) undiscounted returns.  sign_returns: (n,) sums of the signs of the rewards, which
    the two sign modes use instead (robust to the scale of single rewards).
    kind: centred_rank | sign | centred_sign_rank | z_score | raw.
    """
    return SHAPINGS[kind](returns, sign_returns)


SHAPINGS = {
    "centred_rank": lambda returns, sign_returns: centred_ranks(returns),
    "sign": lambda returns, sign_returns: raw(np.where(np.isnan(returns), np.nan, sign_returns)),
    "centred_sign_rank": lambda returns, sign_returns: centred_ranks(np.where(np.isnan(returns), np.nan, sign_returns)),
    "z_score": lambda returns, sign_returns: z_scores(returns),
    "raw": lambda returns, sign_returns: raw(returns),
}
