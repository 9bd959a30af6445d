"""Checks of the arguments that functions of the API share: configs, whole numbers, paths and callbacks."""

import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from mpies.config.loading import Values, as_plain
from mpies.config.schema import Config, walk_sections
from mpies.core.errors import ConfigError, UserError
from mpies.core.text import describe_value
from mpies.envs.custom_env import give

C = TypeVar("C", bound=Callable[..., Any])


def read_whole_number(name: str, value: object, least: int, kind: type[UserError] = ConfigError) -> int:
    """An argument as a number of Python's.  Raises `kind` where it is no whole number, or less than `least`."""
    plain = value.item() if isinstance(value, np.ndarray | np.generic) and not value.ndim else value
    if not isinstance(plain, int) or isinstance(plain, bool) or plain < least:
        raise kind(f"{name} must be a whole number from {least} on, but is {plain!r}")
    return plain


def read_optional_number(name: str, value: object, least: int) -> int | None:
    """As `read_whole_number`; None where the argument is left out."""
    return None if value is None else read_whole_number(name, value, least)


def read_numbers(needed: str, value: object) -> npt.NDArray[np.float64]:
    """An argument as float64, NaN for None.  Raises UserError, which begins with `needed`."""
    try:
        return np.array(value, np.float64)
    except (TypeError, ValueError):
        raise UserError(f"{needed}, but is {describe_value(value)}") from None


def read_path(name: str, value: object, kind: type[UserError] = ConfigError) -> Path:
    """An argument as a path.  Raises `kind` where it is neither text nor a pathlib.Path."""
    if isinstance(value, str | os.PathLike):
        path = os.fspath(value)
        if isinstance(path, str):
            return Path(path)
    cure = f"; give its .path, {str(value.path)!r}" if hasattr(value, "path") else ""
    raise kind(f"{name} must be text or a pathlib.Path, but is {describe_value(value)}{cure}")


def read_mapping(config: object) -> Values:
    """A config that is no path, as plain values; of an environment, one that names it.

    Raises ConfigError where it is neither a mapping nor a Config nor an environment, or what makes one.
    """
    if callable(config) or hasattr(config, "observation_space"):
        return {"environment": {"id": give(config)}}
    if not isinstance(config, Mapping | Config):
        raise ConfigError(
            "config must be a path, a recipe's name, a mapping, a Config, or an environment (its class, a function "
            f"that makes it, or an object), but is {config!r}"
        )
    values: Values = as_plain(config)
    section = values.get("environment")
    if isinstance(section, dict) and str(section.get("id")).startswith("__main__:"):
        found = getattr(sys.modules["__main__"], section["id"].removeprefix("__main__:"), None)
        section["id"] = give(found) if callable(found) else section["id"]
    return values


def name_settings(settings: Mapping[str, Any]) -> list[str]:
    """Keyword arguments as overrides: generations=50 is "stop.generations=50".

    policy may be a module of PyTorch: an object, its class, or a function that makes it.
    Raises ConfigError where no section has such a key, or several have.
    """
    sections: dict[str, dict[str, None]] = {}
    for path, _, model in walk_sections():
        for key in model.model_fields:
            sections.setdefault(key, {})[f"{path}.{key}".lstrip(".")] = None
    overrides = []
    for name, value in settings.items():
        if name == "policy" and callable(value):
            value = {"kind": "torch", "module": give(value)}
        keys = [name] if name in Config.model_fields else [*sections.get(name, ())]
        text = json.dumps(as_plain(value), default=str)
        if len(keys) != 1:
            which = f"may be {' or '.join(keys)}" if keys else "is no key of a config"
            example = f"{keys[0]}={text}" if keys else "solver.sigma=0.05"
            raise ConfigError(f"{name}: {which}; give the whole key as text, such as {example!r}")
        overrides.append(f"{keys[0]}={text}")
    return overrides


def name_environment(values: Values) -> str:
    """The environment's id, by which a run is called whose config has no name."""
    environment = values.get("environment")
    return str((environment.get("id") if isinstance(environment, dict) else None) or "run")


def check_callbacks(callbacks: Iterable[C] | C, form: str = "f(run, row)") -> list[C]:
    """The callbacks as a list.  form: how they are called.  Raises ConfigError where one of them cannot be called."""
    if not callable(callbacks) and not isinstance(callbacks, Iterable):
        raise ConfigError(f"callbacks must be a function {form}, or a list of such, but is {callbacks!r}")
    given = [callbacks] if callable(callbacks) else list(callbacks)
    for callback in given:
        if not callable(callback):
            raise ConfigError(f"callbacks must be functions {form}, but one of them is {callback!r}")
    return given


def call_all(callbacks: Iterable[Callable[..., object]], subject: object, row: Mapping[str, Any]) -> bool:
    """Call each with the run or search, and a row of its own.  Returns whether one says True, Python's or NumPy's."""
    answers = [callback(subject, dict(row)) for callback in callbacks]
    return any(isinstance(answer, bool | np.bool_) and bool(answer) for answer in answers)
