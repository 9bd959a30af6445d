"""The base of every section of keys: unknown keys, wrong types and non-finite numbers are refused."""

import re
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

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
