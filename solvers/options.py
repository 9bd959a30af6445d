"""The base of every section of keys: unknown keys, wrong types and non-finite numbers are refused."""

import math
import re
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, create_model, model_validator

# PyYAML follows YAML 1.1, where 1e-3 is a string; numbers are converted by the type of the key.
_NUMBER = re.compile(r"[-+]?(\d[\d_]*\.?\d*|\.\d+)([eE][-+]?\d+)?")


def _number(value):
    if isinstance(value, bool):
        raise ValueError("must be a number")
    if isinstance(value, str):
        if not _NUMBER.fullmatch(value):
            raise ValueError("must be a number")
        return float(value)
    return value


def _integer(value):
    value = _number(value)
    if isinstance(value, float):
        if not value.is_integer():
            raise ValueError("must be a whole number")
        return int(value)
    return value


def _text(value):
    if not isinstance(value, str):
        raise ValueError("must be a text")
    return value


def _flag(value):
    if not isinstance(value, bool):
        raise ValueError("must be true or false")
    return value


Real = Annotated[float, BeforeValidator(_number), Field(allow_inf_nan=False)]
Positive = Annotated[Real, Field(gt=0)]
NonNegative = Annotated[Real, Field(ge=0)]
Fraction = Annotated[Real, Field(ge=0, le=1)]
Integer = Annotated[int, BeforeValidator(_integer)]
Count = Annotated[Integer, Field(ge=1)]
WholeNumber = Annotated[Integer, Field(ge=0)]
Text = Annotated[str, BeforeValidator(_text)]
Flag = Annotated[bool, BeforeValidator(_flag)]


class Options(BaseModel):
    """A section of keys; each field's description is its documentation and its help text."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


class Population(Options):
    """The keys of every solver, and what its members are to each other."""

    population: Count | None = Field(None, description="members per generation; default 4 + 3 ln(parameters)")
    episodes: Count = Field(1, description="episodes per member; its return is their mean")

    antithetic: ClassVar[bool] = False  # members come in pairs +z, -z
    plays_mean: ClassVar[bool] = False  # member 0 is the mean itself, in front of the others
    overlaps: ClassVar[bool] = False  # a step holds too where the mean has moved on since its members were sampled
    takes_low_rank: ClassVar[bool] = False  # asks for linear moments only, and no normal has to be independent

    @model_validator(mode="after")
    def _even(self):
        if self.antithetic and self.population and self.population % 2:
            raise ValueError(
                f"population must be even (antithetic pairs), but is {self.population}; "
                f"use {self.population - 1 or 2} or {self.population + 1}"
            )
        return self

    def members(self, dimension):
        """How many members a population has for d parameters."""
        count = self.population or 4 + int(3 * math.log(dimension))
        return count + (self.antithetic and count % 2) + self.plays_mean

    def noise_rows(self, dimension):
        """How many rows of the noise table they need."""
        return (self.members(dimension) - self.plays_mean) // (2 if self.antithetic else 1)

    def groups(self, dimension):
        """(n,) int: members of one group share their environment seeds."""
        numbers = np.arange(self.members(dimension))
        return (numbers + self.plays_mean) // 2 if self.antithetic else numbers

    def is_complete(self, episodes, steps):
        """Whether a generation may end with this many episodes and environment steps, or draws more members."""
        return True

    def memory(self, dimension):
        """Bytes of the solver's own state on rank 0."""
        return 8 * 4 * dimension

    def refusal(self, dimension):
        """Why this cannot run with so many parameters, in a sentence with the cure, or ''."""
        return ""


class Candidates(Population):
    """Whole candidates: rows that rank 0 draws, and no noise table."""

    def noise_rows(self, dimension):
        return 0


class Pairs(Population):
    """Antithetic pairs, evaluated with the same environment seeds."""

    antithetic: ClassVar[bool] = True


def tagged(options, kind):
    """A subclass of an Options class whose `kind` is this text and no other."""
    return create_model(options.__name__, __base__=options, __doc__=options.__doc__, kind=(Literal[kind], kind))
