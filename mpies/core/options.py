"""The base of every section of keys.  Unknown keys, wrong types and non-finite numbers are refused."""

import math
import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StrictBool

# PyYAML follows YAML 1.1, which reads 1e-3 as a string.  So a string is converted if its key is a number.
_NUMBER = re.compile(r"[-+]?(\d+(_\d+)*\.?\d*|\.\d+)([eE][-+]?\d+)?")


def _number(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("must be a number")
    if isinstance(value, str):
        if not _NUMBER.fullmatch(value):
            raise ValueError("must be a number")
        return float(value)
    return value


def _number_or_auto(value: Any) -> Any:
    if isinstance(value, str) and value == "auto":
        return value
    try:
        if math.isfinite(number := float(_number(value))):
            return number
    except (OverflowError, TypeError, ValueError):
        pass
    raise ValueError("must be a number or auto")


def _integer(value: Any) -> Any:
    value = _number(value)
    if isinstance(value, float):
        if not value.is_integer():
            raise ValueError("must be a whole number")
        return int(value)
    if isinstance(value, int) and value.bit_length() > 4000:  # Python writes no number of more than 4300 digits
        raise ValueError("must be a smaller number")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("must be text")
    if "\0" in value:  # the system takes no such path
        raise ValueError("must be text without the character 0")
    return value


def _require_plain(value: Any, name: str) -> None:
    """Raise ValueError unless config.yaml and JSON keep the value as it is.  name: the key that has it."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise ValueError(f"{name} has the key {key}, which must be text; quote or remove it")
            _require_plain(inner, f"{name}.{key}")
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            _require_plain(inner, f"{name}[{number}]")
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{name} accepts only finite numbers, but is {value}; give a large number, or remove it")
    elif value is not None and not isinstance(value, bool | int | float | str):
        raise ValueError(
            f"{name} accepts only numbers, text, true, false, lists and sections, but is a {type(value).__name__}; "
            "quote or remove it"
        )


def _arguments(values: dict[str, Any]) -> dict[str, Any]:
    for key, value in values.items():
        _require_plain(value, key)
    return values


Real = Annotated[float, BeforeValidator(_number), Field(allow_inf_nan=False)]
RealOrAuto = Annotated[float | Literal["auto"], BeforeValidator(_number_or_auto)]
Positive = Annotated[Real, Field(gt=0)]
NonNegative = Annotated[Real, Field(ge=0)]
Fraction = Annotated[Real, Field(ge=0, le=1)]
Integer = Annotated[int, BeforeValidator(_integer)]
Count = Annotated[Integer, Field(ge=1, lt=2**63)]
WholeNumber = Annotated[Integer, Field(ge=0)]
Text = Annotated[str, BeforeValidator(_text)]
Flag = StrictBool
Arguments = Annotated[dict[str, Any], AfterValidator(_arguments)]  # keyword arguments of a function of the user's


class Options(BaseModel):
    """A section of keys.  The description of a field is its documentation and its help text."""

    # A section as a default is made by model_construct: `()` would build a validator when it is imported.

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, defer_build=True)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(
            f"{name} cannot be set: a config does not change; name the key and its new value where the config is used, "
            'such as mpies.train(config, "solver.sigma=0.05")'
        )

    def computed_defaults(self, dimension: int) -> dict[str, float]:
        """The values of keys that the config leaves out and that d parameters decide; by dotted keys of the solver."""
        return {}

    def describe_defaults(self, dimension: int) -> str:
        """The keys of `computed_defaults` with their values, in one line."""
        return ", ".join(f"{key} {value:g}" for key, value in self.computed_defaults(dimension).items())
