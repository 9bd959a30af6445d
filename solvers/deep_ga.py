"""Deep GA (Petroski Such et al. 2017, arXiv 1712.06567): mutation and truncation, no gradient and no crossover.

A member is its parent plus sigma times a noise row.  So a parent can be sent as a snapshot of parameters and a chain of
noise indices, the mutations since.  Every generation sends the chains.  When one of them is full, rank 0 adds the
mutations up to new snapshots, and these are sent once to each node.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from mpies.core.arrays import FloatArray, Int64s
from mpies.core.streams import SOLVER, stream
from mpies.solvers.base import Proposal, Results, Solver
from mpies.solvers.moments import norm
from mpies.solvers.options import Count, Population, Positive
from mpies.solvers.shaping import best_first


class DeepGAOptions(Population):
    """Deep GA: mutants of the best members; for sparse or deceptive rewards."""

    kind: Literal["deep_ga"] = "deep_ga"
    population: Annotated[Count, Field(ge=2)] = Field(
        1000, description="members per generation; the first is the elite, unchanged"
    )
    parents: Count = Field(20, description="best members that have offspring (the paper's T)")
    sigma: Positive = Field(0.002, description="standard deviation of a mutation, in units of the parameters")
    initial_sigma: Positive | None = Field(
        None, description="standard deviation of the first population around the first parameters; default sigma"
    )
    snapshot: Count = Field(
        10, description="number of mutations in a chain after which parents are sent as parameters again"
    )

    @model_validator(mode="after")
    def _check_parents(self) -> Self:
        if self.parents > self.population:
            raise ValueError(
                f"parents must be at most the population, {self.population}, but is {self.parents}; "
                f"use {max(1, self.population // 50)}, for instance"
            )
        return self

    def memory(self, dimension: int) -> int:
        return (2 * 4 * dimension + 12 * self.snapshot) * self.parents


@dataclass(frozen=True)
class Ancestry(Proposal):
    """The parents, as snapshots and mutations, and the parent of each member.  The rows are the snapshots.

    roots: (t,) row of each parent's snapshot.
    chains: (t * l,) noise indices of each parent's mutations in order, -1 in free places.
    scales: (t * l,) standard deviations of these mutations.
    picks: (n,) number of each member's parent.  sigma: (1,) standard deviation of this generation's mutations.
    """

    roots: Int64s
    chains: Int64s
    scales: FloatArray
    picks: Int64s
    sigma: FloatArray


class DeepGA(Solver[DeepGAOptions, Ancestry]):
    """Deep GA on the noise table.  The mean is the elite, the best member of the last generation.

    Member 0 is the elite, unchanged.
    """

    Options = DeepGAOptions
    Proposal = Ancestry
    state_fields = ("mean", "snapshots", "roots", "chains", "scales", "picks")

    @property
    def rows(self) -> int:
        return self.options.parents

    def begin(self) -> None:
        parents = self.options.parents
        self.snapshots: FloatArray = np.tile(self.mean, (parents, 1))  # (t, d)
        self.roots: Int64s = np.zeros(parents, np.int64)  # (t,)
        self._clear_chains()
        self.picks = self._pick(0)

    def _clear_chains(self) -> None:
        self.chains: Int64s = np.full((self.options.parents, self.options.snapshot), -1)  # (t, l)
        self.scales: FloatArray = np.zeros(self.chains.shape, self.dtype)  # (t, l)
        self._are_snapshots_sent = False

    def _pick(self, generation: int) -> Int64s:
        """A random parent (n,) for each member."""
        return stream(self.seed, SOLVER, generation).integers(self.options.parents, size=self.options.population)

    def _sigma(self) -> np.floating:
        first = self.options.initial_sigma if self.generation == 0 else None
        return self.dtype(first or self.options.sigma)

    def propose(self) -> Ancestry:
        rows = None if self._are_snapshots_sent else self.snapshots
        self._are_snapshots_sent = True
        scales = self.scales.ravel()
        sigma = np.full(1, self._sigma(), self.dtype)
        return Ancestry(self.mean, self.roots, self.chains.ravel(), scales, self.picks, sigma, rows=rows)

    def write(self, proposal: Ancestry, indices: Int64s, member: int, out: FloatArray) -> Sequence[float]:
        assert proposal.rows is not None  # whoever evaluates members keeps the rows that were sent last
        parent, length = int(proposal.picks[member]) if member else 0, self.options.snapshot
        chain = slice(parent * length, (parent + 1) * length)
        self._add_up(proposal.rows, proposal.roots[parent], proposal.chains[chain], proposal.scales[chain], out)
        if member:
            out += self.noise(indices[member]) * proposal.sigma
        return ()

    def _add_up(self, snapshots: FloatArray, root: int, chain: Int64s, scales: FloatArray, out: FloatArray) -> None:
        """Write a snapshot plus the mutations of a chain (l,) into `out` (d,)."""
        out[:] = snapshots[root]
        for index, scale in zip(chain[chain >= 0], scales, strict=False):
            out += self.noise(index) * scale

    def update(self, proposal: Ancestry, results: Results, moments: FloatArray) -> None:
        options = self.options
        indices = self.population_indices(self.generation, 0)
        best = best_first(results.returns)[: options.parents]  # the next parents
        parents = np.where(best > 0, self.picks[best], 0)  # theirs; that of the elite is itself
        roots, chains, scales = self.roots[parents], self.chains[parents], self.scales[parents]
        for row, member in enumerate(best):
            if member:
                end = int((chains[row] >= 0).sum())
                chains[row, end], scales[row, end] = indices[member], self._sigma()
        self.roots, self.chains, self.scales = roots, chains, scales
        self._add_up(self.snapshots, roots[0], chains[0], scales[0], self.mean)
        if (chains[:, -1] >= 0).any():  # a chain is full
            snapshots = np.empty_like(self.snapshots)
            for row in range(options.parents):
                self._add_up(self.snapshots, roots[row], chains[row], scales[row], snapshots[row])
            self.snapshots, self.roots = snapshots, np.arange(options.parents)
            self._clear_chains()
        self.picks = self._pick(self.generation + 1)

    def report(self) -> dict[str, float]:
        return {"parameter_norm": norm(self.mean), "chain_length": float((self.chains >= 0).sum(axis=1).mean())}
