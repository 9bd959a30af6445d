"""The keys that solvers share: how many members a population has, and which of them belong together.

A custom solver finds here the types of its own keys as well, which are those of every section.
"""

import bisect
import math
from typing import Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, create_model, model_validator

from mpies.core.arrays import Int64s
from mpies.core.options import Arguments as Arguments
from mpies.core.options import Count as Count
from mpies.core.options import Flag as Flag
from mpies.core.options import Fraction as Fraction
from mpies.core.options import Integer as Integer
from mpies.core.options import NonNegative as NonNegative
from mpies.core.options import Options as Options
from mpies.core.options import Positive as Positive
from mpies.core.options import Real as Real
from mpies.core.options import Text as Text
from mpies.core.options import WholeNumber as WholeNumber

SMALL_NETWORK = 20_000  # parameters up to which wide noise and large steps are the defaults
MOST_POPULATIONS = 1 << 40  # where count_episodes stops counting; no generation ever draws so many


class Population(Options):
    """The keys of every solver.  It says how many members a population has, and which of them belong together."""

    population: Count | None = Field(None, description="members per generation; default 4 + 3 ln(parameters)")
    episodes: Count = Field(1, description="episodes per member; its return is their mean")

    antithetic: ClassVar[bool] = False  # members come in pairs +z, -z
    overlaps: ClassVar[bool] = False  # a step is valid even if the mean has moved since its members were sampled
    computed: ClassVar[dict[str, str]] = {}  # keys that may be left out, to the methods that then compute them from d
    takes_low_rank: ClassVar[bool] = False  # needs linear moments only, and no independence of the normals

    @property
    def plays_mean(self) -> bool:
        """Whether member 0 is the mean itself, in addition to the population."""
        return False

    @model_validator(mode="after")
    def _check_pairs(self) -> Self:
        if self.antithetic and self.population and self.population % 2:
            raise ValueError(
                f"population must be even (antithetic pairs), but is {self.population}; "
                f"use {self.population - 1 or 2} or {self.population + 1}"
            )
        return self

    def default_population(self, dimension: int) -> int:
        """Members of a population for d parameters where the config names no number."""
        return 4 + int(3 * math.log(dimension))  # (eq. 48) of arXiv 1604.00772

    def computed_defaults(self, dimension: int) -> dict[str, float]:
        found = {} if self.population else {"population": self.members(dimension) - self.plays_mean}
        missing = [key for key in self.computed if getattr(self, key) is None]
        found |= {key: getattr(self, self.computed[key])(dimension) for key in missing}
        optimizer = getattr(self, "optimizer", None)
        return found | (optimizer.computed_defaults(dimension) if isinstance(optimizer, Options) else {})

    def members(self, dimension: int) -> int:
        """Number of members of a population for d parameters."""
        count = self.population or self.default_population(dimension)
        return count + (self.antithetic and count % 2) + self.plays_mean

    def noise_rows(self, dimension: int) -> int:
        """Number of rows of the noise table that these members need: one for each, or for each pair."""
        return (self.members(dimension) - self.plays_mean) // (2 if self.antithetic else 1)

    def early_members(self, share: float, dimension: int) -> int:
        """How many members, the first ones, a share of a population is: whole pairs, and the mean with them."""
        if share >= 1:
            return self.members(dimension)
        size = 2 if self.antithetic else 1
        groups = int(share * self.noise_rows(dimension))
        return groups * size + self.plays_mean if groups else 0

    def groups(self, dimension: int) -> Int64s:
        """The group (n,) of each member; members of a group share their environment seeds."""
        numbers = np.arange(self.members(dimension))
        return (numbers + self.plays_mean) // 2 if self.antithetic else numbers

    def is_complete(self, episodes: int, steps: int) -> bool:
        """Whether a generation may end after so many episodes and environment steps; if not, it needs more members."""
        return True

    def count_episodes(self, dimension: int, length: float) -> int:
        """Episodes of all populations that a generation takes; `length`: mean steps of an episode."""
        population = self.members(dimension) * self.episodes

        def suffices(populations: int) -> bool:
            count = populations * population
            return self.is_complete(count, int(count * max(length, 1)))

        return population * bisect.bisect_left(range(MOST_POPULATIONS), True, lo=1, key=suffices)

    def memory(self, dimension: int) -> int:
        """Bytes that the solver's own state takes on rank 0."""
        return 8 * 4 * dimension

    def refusal(self, dimension: int) -> str:
        """Why the solver cannot run with so many parameters and what to change, in one sentence; '' if it can."""
        return ""


class WholeCandidates(Population):
    """The keys of a solver that does not use the noise table: rank 0 draws whole candidates (n, d)."""

    def noise_rows(self, dimension: int) -> int:
        return 0


class Pairs(Population):
    """The keys of a solver with antithetic pairs +z, -z.  Both members of a pair get the same environment seeds."""

    antithetic: ClassVar[bool] = True


def tagged(options: type[Population], kind: str) -> type[Population]:
    """A subclass of an Options class that accepts this `kind` and no other."""
    this_kind: Any = Literal[kind]
    return create_model(options.__name__, __base__=options, __doc__=options.__doc__, kind=(this_kind, kind))
