"""Deep GA (Petroski Such et al. 2017, arXiv 1712.06567): mutation and truncation, no gradient and no crossover.

A member is its parent plus sigma times a noise row.  So a parent is a chain of noise indices behind a
snapshot of parameters, and what travels per generation is chains.  When they have grown long, rank 0 adds
them up into new snapshots, which go once to each node.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, model_validator

from solvers import noise
from solvers.base import Proposal, Solver
from solvers.moments import norm
from solvers.options import Count, Population, Positive
from solvers.shaping import best_first
from solvers.streams import SOLVER, stream


class DeepGAOptions(Population):
    """Deep GA: mutants of the best members; for rewards that say little of the direction."""

    kind: Literal["deep_ga"] = "deep_ga"
    population: Annotated[Count, Field(ge=2)] = Field(
        1000, description="members per generation; the first is the elite, unchanged"
    )
    parents: Count = Field(20, description="best members that have offspring (the paper's T)")
    sigma: Positive = Field(0.002, description="standard deviation of a mutation, in units of the parameters")
    initial_sigma: Positive | None = Field(
        None, description="standard deviation of the first population around the first parameters; default sigma"
    )
    snapshot: Count = Field(10, description="mutations of a chain before parents are sent as parameters again")

    @model_validator(mode="after")
    def _parents_fit(self):
        if self.parents > self.population:
            raise ValueError(
                f"parents must be at most the population, {self.population}, but is {self.parents}; "
                f"use {max(1, self.population // 50)}, for instance"
            )
        return self

    def memory(self, dimension):
        return 2 * 4 * dimension * self.parents


@dataclass(frozen=True)
class Ancestry(Proposal):
    """Parents as snapshots and mutations; who is whose child.

    roots: (t,) int64 row of each parent's snapshot.  chains: (t * l,) int64 noise indices of its mutations
    in order, -1 where there are no more.  scales: (t * l,) their standard deviations.  picks: (n,) int64 the
    parent of each member.  sigma: (1,) of this generation's mutations.
    """

    roots: np.ndarray
    chains: np.ndarray
    scales: np.ndarray
    picks: np.ndarray
    sigma: np.ndarray


class DeepGA(Solver):
    """Deep GA on the noise table; the mean is the elite."""

    Options = DeepGAOptions
    Proposal = Ancestry
    remembers = ("mean", "snapshots", "roots", "chains", "scales", "picks")

    @property
    def rows(self):
        return self.options.parents

    def begin(self):
        parents = self.options.parents
        self.snapshots = np.tile(self.mean, (parents, 1))  # (t, d)
        self.roots = np.zeros(parents, np.int64)
        self._cut()
        self.picks = self._pick(0)

    def _cut(self):
        self.chains = np.full((self.options.parents, self.options.snapshot), -1)
        self.scales = np.zeros(self.chains.shape, self.dtype)
        self._sent = False  # the snapshots, to the nodes

    def _pick(self, generation):
        return stream(self.seed, SOLVER, generation).integers(self.options.parents, size=self.options.population)

    def _sigma(self):
        first = self.options.initial_sigma if self.generation == 0 else None
        return self.dtype(first or self.options.sigma)

    def propose(self):
        rows = None if self._sent else self.snapshots
        self._sent = True
        scales = self.scales.ravel()
        sigma = np.full(1, self._sigma(), self.dtype)
        return Ancestry(self.mean, self.roots, self.chains.ravel(), scales, self.picks, sigma, rows=rows)

    def write(self, proposal, indices, member, out):
        parent, length = int(proposal.picks[member]) if member else 0, self.options.snapshot
        part = slice(parent * length, (parent + 1) * length)
        self._express(proposal.rows, proposal.roots[parent], proposal.chains[part], proposal.scales[part], out)
        if member:
            out += self.noise(indices[member]) * proposal.sigma
        return ()

    def _express(self, snapshots, root, chain, scales, out):
        out[:] = snapshots[root]
        for index, scale in zip(chain[chain >= 0], scales, strict=False):
            out += self.noise(index) * scale

    def update(self, proposal, results, sums):
        options = self.options
        indices = noise.sample_indices(
            self.seed, self.generation, 0, options.population, len(self.table), self.dimension
        )
        best = best_first(results.returns)[: options.parents]
        parents = np.where(best > 0, self.picks[best], 0)
        roots, chains, scales = self.roots[parents], self.chains[parents], self.scales[parents]
        for row, member in enumerate(best):
            if member:
                end = int((chains[row] >= 0).sum())
                chains[row, end], scales[row, end] = indices[member], self._sigma()
        self.roots, self.chains, self.scales = roots, chains, scales
        self._express(self.snapshots, roots[0], chains[0], scales[0], self.mean)
        if (chains[:, -1] >= 0).any():
            grown = np.empty_like(self.snapshots)
            for row in range(options.parents):
                self._express(self.snapshots, roots[row], chains[row], scales[row], grown[row])
            self.snapshots, self.roots = grown, np.arange(options.parents)
            self._cut()
        self.picks = self._pick(self.generation + 1)

    def report(self):
        return {"parameter_norm": norm(self.mean), "chain_length": float((self.chains >= 0).sum(axis=1).mean())}
