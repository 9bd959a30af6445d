"""NS-ES, NSR-ES and NSRA-ES (Conti et al. 2018, arXiv 1712.06560): search for new behaviour.

A few means take turns.  Members are ranked by how far their behaviour is from an archive of behaviours of
earlier means, or by a blend of that and of their return.  The mean of the turn is itself played, as member 0:
that is how its behaviour gets into the archive.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from solvers.base import Gaussian, Solver
from solvers.moments import fold_pairs, no_square, norm
from solvers.optimizers import AdamOptions, AnyOptimizer, make_optimizer
from solvers.options import Count, Fraction, NonNegative, Pairs, Positive
from solvers.shaping import best_first, centred_ranks
from solvers.streams import SOLVER, stream


class NoveltyESOptions(Pairs):
    """NS-ES and its kin: reward for novel behaviour, against rewards that lead into a trap."""

    kind: Literal["novelty_es"] = "novelty_es"
    takes_low_rank: ClassVar[bool] = True
    plays_mean: ClassVar[bool] = True
    population: Annotated[Count, Field(ge=2)] = Field(128, description="members per generation besides the mean; even")
    variant: Literal["ns", "nsr", "nsra"] = Field(
        "nsra", description="ns: novelty alone; nsr: half novelty, half return; nsra: a share that adapts to success"
    )
    means: Count = Field(5, description="means that take turns, novel ones more often (the paper's M)")
    neighbours: Count = Field(10, description="novelty is the mean distance to this many nearest in the archive")
    archive: Count = Field(1000, description="behaviours kept; the oldest go first")
    sigma: Positive = Field(0.02, description="standard deviation of the noise, in units of the parameters")
    weight_decay: NonNegative = Field(0.005, description="the gradient is reduced by this times the parameters")
    change: Annotated[Fraction, Field(gt=0)] = Field(0.05, description="nsra: how much the share of the return moves")
    patience: Count = Field(50, description="nsra: generations without a better return before novelty counts more")
    optimizer: AnyOptimizer = Field(AdamOptions(), description="gradient rule, one for each mean")

    def memory(self, dimension):
        return (3 * self.means + 6) * 4 * dimension


@dataclass(frozen=True)
class Turn(Gaussian):
    """Members around the mean whose turn it is.

    past: (a * b,) float32 archive.  share: (1,) of the return in the ranking; the rest is novelty's.
    """

    past: np.ndarray
    share: np.ndarray


def novelty(behaviours, archive, neighbours):
    """Mean distance (n,) float64 of behaviours (n, b) to their nearest `neighbours` in archive (a, b); 0 for a = 0."""
    if not len(archive):
        return np.zeros(len(behaviours))
    count = min(neighbours, len(archive))
    result = np.empty(len(behaviours))
    for row, behaviour in enumerate(np.asarray(behaviours, np.float64)):
        difference = archive - behaviour
        result[row] = np.sort(np.sqrt((difference * difference).sum(axis=1)))[:count].mean()
    return result


class NoveltyES(Solver):
    """NS-ES, NSR-ES or NSRA-ES on the noise table; the mean reported is the one whose last return was highest."""

    Options = NoveltyESOptions
    Proposal = Turn
    wants_behaviour = True

    @property
    def remembers(self):
        optimizers = tuple(f"optimizer_{k}" for k in range(self.options.means))
        return ("mean", "means", "past", "behaviours", "last", "best", "share", "stalled", *optimizers)

    def begin(self):
        options, count = self.options, self.options.means
        self.means = np.tile(self.mean, (count, 1))  # (m, d)
        for k in range(1, count):
            self.means[k] += self.dtype(options.sigma) * stream(self.seed, SOLVER, 0, k).standard_normal(
                self.dimension, dtype=np.float32
            )
        self.past = np.zeros((0, 0), np.float32)  # (a, b)
        self.behaviours = np.zeros((count, 0), np.float32)  # (m, b)
        self.last = np.full(count, -np.inf)  # return of each mean when last played
        self.best, self.stalled = float("-inf"), 0
        self.share = {"ns": 0.0, "nsr": 0.5, "nsra": 1.0}[options.variant]
        for k in range(count):
            setattr(self, f"optimizer_{k}", make_optimizer(options.optimizer, self.dimension))

    def _turn(self):
        """Whose turn it is: each once, then by chance in proportion to novelty (section 3.1)."""
        if self.generation < len(self.means):
            return self.generation
        new = novelty(self.behaviours, self.past, self.options.neighbours)
        chance = stream(self.seed, SOLVER, self.generation).random() * new.sum()
        return min(int(np.searchsorted(np.cumsum(new), chance, side="right")), len(self.means) - 1)

    def propose(self):
        scale = np.full(1, self.options.sigma, self.dtype)
        past, share = self.past.ravel(), np.full(1, self.share, np.float32)
        return Turn(self.means[self._turn()], scale, past, share)

    def weigh(self, results, proposal):
        width = max(1, results.behaviours.shape[1])
        archive = proposal.past.reshape(-1, width).astype(np.float64)
        returns = results.returns[1:]
        new = novelty(results.behaviours[1:], archive, self.options.neighbours)
        share = float(proposal.share[0])
        ranks = share * centred_ranks(returns).astype(np.float64)
        ranks += (1 - share) * centred_ranks(np.where(np.isnan(returns), np.nan, new)).astype(np.float64)
        return fold_pairs(ranks[None].astype(self.dtype), no_square(len(ranks)))

    def update(self, proposal, results, sums):
        options, turn = self.options, self._turn()
        gradient = sums[0] / self.dtype(options.population)
        gradient -= self.dtype(options.weight_decay) * self.means[turn]
        self.means[turn] += getattr(self, f"optimizer_{turn}").step(gradient, options.optimizer.learning_rate)

        played, width = results.returns[0], results.behaviours.shape[1]
        seen = results.behaviours[:1].astype(np.float32)
        if self.behaviours.shape[1] != width:
            self.behaviours = np.zeros((options.means, width), np.float32)
        if np.isfinite(played) and np.isfinite(seen).all():
            self.past = np.concatenate([self.past.reshape(-1, width), seen])[-options.archive :]
            self.behaviours[turn], self.last[turn] = seen[0], played
            self._adapt(float(played))
        self.mean = self.means[best_first(self.last)[0]].copy()

    def _adapt(self, played):
        """NSRA: more weight on the return while it improves, on novelty when it does not (algorithm 3)."""
        options = self.options
        if played > self.best:
            self.best, self.stalled = played, 0
            change = options.change
        else:
            self.stalled += 1
            change = -options.change if self.stalled >= options.patience else 0.0
            self.stalled %= options.patience
        if options.variant == "nsra":
            self.share = min(1.0, max(0.0, self.share + change))

    def report(self):
        return {"parameter_norm": norm(self.mean), "archive": float(len(self.past)), "return_share": self.share}
