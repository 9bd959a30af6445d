"""What is to be played: a batch of rollouts, and the record of a rollout's result."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mpies.core.arrays import Float32s, Int64s

NEVER = 2**62  # steps: an episode without a limit


# Writes the parameters of a rollout's policy into a vector (d,) and returns its payload, as Solver.write does.
Write = Callable[[int, Float32s], Sequence[float]]


@dataclass(frozen=True)
class RolloutBatch:
    """Rollouts 0 .. r-1.

    first: the number of rollout 0 where the batch is a part of a population; its results are sent under these numbers.
    seeds: (r,) environment seed of each.  write: writes the parameters of the policy that plays each.
    sampled: (r,) bool, whether its observations feed the observation statistics.
    normalization: (2, o) float32 mean and standard deviation of observations; None where they are not normalised.
    action_seeds: (r,) seeds of what the policy leaves to chance; None for a deterministic policy.
    is_training: whether rewards are changed as the config says of training.
    limit: steps after which an episode ends; None for no limit.
    payload_size: q, numbers that `write` returns.  behaviour_size: b, numbers kept of how an episode ended.
    """

    seeds: Int64s
    write: Write
    sampled: npt.NDArray[np.bool_]
    normalization: Float32s | None = None
    action_seeds: Int64s | None = None
    is_training: bool = False
    limit: int | None = None
    payload_size: int = 0
    behaviour_size: int = 0
    first: int = 0

    def __len__(self) -> int:
        return len(self.seeds)


def evaluation_batch(mean: Float32s, seeds: Int64s, normalization: Float32s | None = None) -> RolloutBatch:
    """A RolloutBatch of one episode of `mean` (d,) for each of the seeds (r,)."""

    def write(rollout: int, out: Float32s) -> Sequence[float]:
        out[:] = mean
        return ()

    return RolloutBatch(seeds, write, np.zeros(len(seeds), bool), normalization)


def rollout_record(payload_size: int = 0, behaviour_size: int = 0) -> np.dtype[Any]:
    """What a rank sends of each rollout.

    total: sum of rewards; NaN where the episode failed.  signs: sum of the rewards' signs.
    """
    return np.dtype(
        [
            *(("rollout", "i8"), ("total", "f8"), ("signs", "f8"), ("steps", "i8")),
            *(("payload", "f8", (payload_size,)), ("behaviour", "f8", (behaviour_size,))),
        ]
    )


def observation_record(size: int) -> np.dtype[Any]:
    """What a rank sends of each sampled rollout: the sums over its observations (size,) and over their squares."""
    return np.dtype([("rollout", "i8"), ("count", "f8"), ("total", "f8", (size,)), ("squares", "f8", (size,))])
