"""Checks of the arguments that functions of the API share: configs, whole numbers and paths."""

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from mpies.config.loading import Values, as_plain
from mpies.config.schema import Config
from mpies.core.errors import ConfigError, UserError
from mpies.core.text import describe_value


def read_whole_number(name: str, value: object, least: int, kind: type[UserError] = ConfigError) -> int:
    """An argument as a number of Python's.  Raises `kind` where it is no whole number, or less than `least`."""
    plain = value.item() if isinstance(value, np.ndarray | np.generic) and not value.ndim else value
    if not isinstance(plain, int) or isinstance(plain, bool) or plain < least:
        raise kind(f"{name} must be a whole number from {least} on, but is {plain!r}")
    return plain


def read_optional_number(name: str, value: object, least: int) -> int | None:
    """As `read_whole_number`; None where the argument is left out."""
    return None if value is None else read_whole_number(name, value, least)


def read_path(name: str, value: object, kind: type[UserError] = ConfigError) -> Path:
    """An argument as a path.  Raises `kind` where it is neither text nor a pathlib.Path."""
    if isinstance(value, str | os.PathLike):
        path = os.fspath(value)
        if isinstance(path, str):
            return Path(path)
    cure = f"; give its .path, {str(value.path)!r}" if hasattr(value, "path") else ""
    raise kind(f"{name} must be text or a pathlib.Path, but is {describe_value(value)}{cure}")


def read_mapping(config: object) -> Values:
    """A config that is no path, as plain values.  Raises ConfigError where it is neither a mapping nor a Config."""
    if not isinstance(config, Mapping | Config):
        raise ConfigError(f"config must be a path, a recipe's name, a mapping or a Config, but is {config!r}")
    values: Values = as_plain(config)
    return values


def name_environment(values: Values) -> str:
    """The environment's id, by which a run is called whose config has no name."""
    environment = values.get("environment")
    return str((environment.get("id") if isinstance(environment, dict) else None) or "run")
