"""NS-ES, NSR-ES and NSRA-ES (Conti et al. 2018, arXiv 1712.06560): search for new behaviour.

There are a few means, and one of them is updated in each generation.  Its members are ranked by novelty, the distance
of their behaviour from an archive of behaviours of earlier means, or by a blend of novelty and return.  The mean itself
is evaluated as member 0, so that its behaviour can be added to the archive.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from mpies.core.arrays import Float32s, Float64s, FloatArray
from mpies.core.streams import SOLVER, stream
from mpies.solvers.base import Gaussian, Results, Solver
from mpies.solvers.moments import Weights, fold_pairs, no_square, norm
from mpies.solvers.optimizers import AdamOptions, AnyOptimizer, first_rate, make_optimizer
from mpies.solvers.options import Count, Fraction, NonNegative, Pairs, Positive
from mpies.solvers.shaping import best_first, centred_ranks


class NoveltyESOptions(Pairs):
    """NS-ES, NSR-ES, NSRA-ES: reward for new behaviour, against deceptive rewards."""

    kind: Literal["novelty_es"] = "novelty_es"
    takes_low_rank: ClassVar[bool] = True
    population: Annotated[Count, Field(ge=2)] = Field(
        128, description="members per generation besides the mean; must be even"
    )
    variant: Literal["ns", "nsr", "nsra"] = Field(
        "nsra", description="ns: novelty alone; nsr: half novelty, half return; nsra: a share that adapts to success"
    )
    means: Count = Field(
        5, description="number of means; each generation trains one, novel ones more often (the paper's M)"
    )
    neighbours: Count = Field(10, description="novelty is the mean distance to this many nearest in the archive")
    archive: Count = Field(1000, description="number of behaviours kept; the oldest are removed first")
    sigma: Positive = Field(0.02, description="standard deviation of the noise, in units of the parameters")
    weight_decay: NonNegative = Field(
        0.005, description="weight decay: the gradient is reduced by this times the parameters"
    )
    change: Annotated[Fraction, Field(gt=0)] = Field(
        0.05, description="nsra: step by which the share of the return changes"
    )
    patience: Count = Field(
        50, description="nsra: number of generations without a better return after which novelty counts more"
    )
    optimizer: AnyOptimizer = Field(AdamOptions.model_construct(), description="gradient rule, one for each mean")

    @property
    def plays_mean(self) -> bool:
        return True

    def memory(self, dimension: int) -> int:
        return (3 * self.means + 6) * 4 * dimension


@dataclass(frozen=True)
class Turn(Gaussian):
    """Members around the mean whose turn it is.

    past: (a * b,) the archive.  share: (1,) weight of the return in the ranking; novelty has the rest.
    """

    past: Float32s
    share: Float32s


def novelty(behaviours: npt.ArrayLike, archive: FloatArray, neighbours: int) -> Float64s:
    """Mean distance (n,) of behaviours (n, b) to their nearest `neighbours` in the archive (a, b); 0 if a is 0."""
    behaviours = np.asarray(behaviours, np.float64)
    if not len(archive):
        return np.zeros(len(behaviours))
    count = min(neighbours, len(archive))
    result = np.empty(len(behaviours))
    for row, behaviour in enumerate(behaviours):
        difference = archive - behaviour
        result[row] = np.sort(np.sqrt((difference * difference).sum(axis=1)))[:count].mean()
    return result


class NoveltyES(Solver[NoveltyESOptions, Turn]):
    """NS-ES, NSR-ES or NSRA-ES on the noise table.  The mean that is reported is the one with the highest last return.

    Solver.mean is that one; `means` has all of them.
    """

    Options = NoveltyESOptions
    Proposal = Turn
    wants_behaviour = True

    @property
    def state_fields(self) -> tuple[str, ...]:
        optimizers = tuple(f"optimizer_{k}" for k in range(self.options.means))
        return ("mean", "means", "past", "behaviours", "last", "best", "share", "stalled", *optimizers)

    def begin(self) -> None:
        options, count = self.options, self.options.means
        self.means: FloatArray = np.tile(self.mean, (count, 1))  # (m, d)
        for k in range(1, count):
            self.means[k] += self.dtype(options.sigma) * stream(self.seed, SOLVER, 0, k).standard_normal(
                self.dimension, dtype=np.float32
            )
        self.past: Float32s = np.zeros((0, 0), np.float32)  # (a, b), the archive
        self.behaviours: Float32s = np.zeros((count, 0), np.float32)  # (m, b), of each mean
        self.last = np.full(count, -np.inf)  # (m,) last return of each mean
        self.best, self.stalled = float("-inf"), 0
        self.gradient_norm = float("nan")
        self.share = {"ns": 0.0, "nsr": 0.5, "nsra": 1.0}[options.variant]
        for k in range(count):
            setattr(self, f"optimizer_{k}", make_optimizer(options.optimizer, self.dimension))

    def _turn(self) -> int:
        """The mean to update: each once, then at random in proportion to novelty (section 3.1)."""
        if self.generation < len(self.means):
            return self.generation
        novelties = novelty(self.behaviours, self.past, self.options.neighbours)
        if not novelties.sum() > 0:  # none is novel: all have the same chance
            novelties = np.ones(len(self.means))
        chance = stream(self.seed, SOLVER, self.generation).random() * novelties.sum()
        return min(int(np.searchsorted(np.cumsum(novelties), chance, side="right")), len(self.means) - 1)

    def propose(self) -> Turn:
        scale = np.full(1, self.options.sigma, self.dtype)
        past, share = self.past.ravel(), np.full(1, self.share, np.float32)
        return Turn(self.means[self._turn()], scale, past, share)

    def compute_weights(self, results: Results, proposal: Turn) -> Weights:
        width = max(1, results.behaviours.shape[1])
        archive = proposal.past.reshape(-1, width).astype(np.float64)
        returns = results.returns[1:]
        novelties = novelty(results.behaviours[1:], archive, self.options.neighbours)
        share = float(proposal.share[0])
        ranks = share * centred_ranks(returns).astype(np.float64)
        # A behaviour that is not finite is never archived, so it would stay the most novel one for ever.
        is_known = np.isfinite(novelties) & ~np.isnan(returns)
        ranks += (1 - share) * centred_ranks(np.where(is_known, novelties, np.nan)).astype(np.float64)
        return fold_pairs(ranks[None].astype(self.dtype), no_square(len(ranks)))

    def update(self, proposal: Turn, results: Results, moments: FloatArray) -> None:
        options, turn = self.options, self._turn()
        gradient = moments[0] / self.dtype(options.population)
        self.gradient_norm = norm(gradient)
        gradient -= self.dtype(options.weight_decay) * self.means[turn]
        self.means[turn] += getattr(self, f"optimizer_{turn}").step(
            gradient, first_rate(options.optimizer, self.dimension)
        )

        played, width = results.returns[0], results.behaviours.shape[1]  # member 0 is the mean before the step
        behaviour = results.behaviours[:1].astype(np.float32)  # (1, b)
        if self.behaviours.shape[1] != width:
            self.behaviours = np.zeros((options.means, width), np.float32)
        if np.isfinite(played) and np.isfinite(behaviour).all():
            self.past = np.concatenate([self.past.reshape(-1, width), behaviour])[-options.archive :]
            self.behaviours[turn], self.last[turn] = behaviour[0], played
            self._adapt_share(float(played))
        self.mean = self.means[best_first(self.last)[0]].copy()

    def _adapt_share(self, played: float) -> None:
        """NSRA-ES: more weight on the return while it improves, more on novelty when it stalls (algorithm 3)."""
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

    def report(self) -> dict[str, float]:
        return {
            "parameter_norm": norm(self.mean),
            "gradient_norm": self.gradient_norm,
            "archive": float(len(self.past)),
            "return_share": self.share,
        }
