"""What a generation passes between the ranks: what its members are sampled from, and what their episodes returned."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import numpy as np

from mpies.core.arrays import Array, Float32s, Float64s, Int64s
from mpies.solvers.base import Proposal, Results

# The newest mean (d,), and mean and standard deviation (2, o) of observations; None where they are not normalised.
MeanPolicy = tuple[Float32s, Float32s | None]


@dataclass(frozen=True)
class GenerationSpec:
    """What every rank must know to play a generation.

    normalization: (2, o) float32 mean and standard deviation of observations; None where they are not normalised.
    limit: steps of a training episode; None for no limit.
    """

    proposal: Proposal
    normalization: Float32s | None = None
    limit: int | None = None

    def vectors(self) -> list[Array]:
        """The spec as vectors, for a broadcast or a checkpoint; the rows of whole candidates are not among them."""
        normalization = np.zeros(0, np.float32) if self.normalization is None else self.normalization.ravel()
        return [*self.proposal.vectors(), normalization, np.array([self.limit or 0], np.int64)]

    @classmethod
    def from_vectors(cls, vectors: Sequence[Array], proposal_type: type[Proposal], rows: Any = None) -> Self:
        """The spec that `vectors` returned.  rows: (r, d) of whole candidates, or None."""
        *proposal, normalization, limit = vectors
        return cls(
            proposal_type(*proposal, rows=rows),
            normalization.reshape(2, -1) if len(normalization) else None,
            int(limit[0]) or None,
        )


@dataclass(frozen=True)
class Part:
    """Members [start, stop) of a generation's first population that are sampled from the same spec.

    Without overlap all members are one part.  With overlap the early members are a part of their own, whose spec was
    fixed before the results of the previous generation.
    """

    spec: GenerationSpec
    start: int
    stop: int


class QueueKey(NamedTuple):
    """Identifies a queue, the same on every rank.

    generation: how many generations were complete before it.  kind: training or evaluation.
    batch: number of the batch of members, or of the attempt to evaluate.  first: the first member of the part.
    """

    generation: int
    kind: str
    batch: int
    first: int = 0


@dataclass(frozen=True)
class PlayedGeneration:
    """The members of a generation and what their episodes returned, in member order, the same on every rank.

    indices: (k,) int64, where each member's (or pair's) noise begins in the noise table.
    observations: on rank 0, the observation sums of the sampled rollouts, batch by batch, as `observation_record` has
    them; empty elsewhere.
    busy: (ranks,) seconds that each rank played.
    record: for a population that was read from the ledger, its record; the sums and seconds above are then absent.
    """

    results: Results
    indices: Int64s
    observations: Sequence[Array] = ()
    busy: Float64s = field(default_factory=lambda: np.zeros(1))
    record: Mapping[str, Any] | None = None
