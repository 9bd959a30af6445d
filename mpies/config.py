"""The configuration of a run: one YAML file, its keys those of `keys`.

`load` reads a file, applies KEY=VALUE overrides and returns a Config, or raises ConfigError with one
line: where, what was expected, what was found, how to mend it.
"""

from pathlib import Path

import yaml
from pydantic import Field, ValidationError, create_model

from mpies.keys import FREE_SECTIONS, Config, any_solver, kinds_of
from mpies.mistakes import explain, one_line, quoted
from solvers import find_solver


class ConfigError(ValueError):
    """A user's mistake in a configuration, said in one line."""


def read(path):
    """The mapping in a YAML file, as plain values.  Raises ConfigError."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); give the path of a YAML file") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: is not a text file; give the path of a YAML file") from None
    values = _parse(text, str(path))
    if values is None:
        raise ConfigError(f"{path}: is empty; the least it needs is environment: {{id: CartPole-v1}}")
    if not isinstance(values, dict):
        raise ConfigError(
            f"{path}: must hold sections such as environment: {{id: CartPole-v1}}, but is {quoted(values)}"
        )
    return values


def load(path, overrides=()):
    """The Config of a YAML file with overrides ("section.key=value", values in YAML) applied."""
    values = read(path)
    for override in overrides:
        _apply(values, override)
    return validate(values, str(path), [override.partition("=")[0] for override in overrides])


def config_model(values):
    """Config, or for a mapping whose solver.kind is nevergrad:NAME or path/to/file.py:Class one that knows its keys.

    Raises ValueError where there is no such solver.
    """
    section = values.get("solver")
    kind = section.get("kind") if isinstance(section, dict) else None
    if not isinstance(kind, str) or ":" not in kind:
        return Config
    own, field = find_solver(kind), Config.model_fields["solver"]
    return create_model(
        "Config", __base__=Config, solver=(any_solver(own), Field(field.default, description=field.description))
    )


def validate(values, where, overridden=()):
    """The Config of a mapping.

    where begins the line of an error, unless the key at fault is one of `overridden`.
    """
    environment = values.get("environment")
    if isinstance(environment, dict) and (
        str(environment.get("id", "")).startswith("function:") or environment.get("dimension") is not None
    ):
        values = {"policy": {"kind": "none"}, **values}
    try:
        model = config_model(values)
    except ValueError as error:
        raise ConfigError(f"{where}: solver.kind {one_line(error)}") from None
    try:
        config = model.model_validate(_with_kinds(values, model))
        resolved(config)  # refuses what cannot be written down again
    except ValidationError as error:
        raise ConfigError(explain(error, where, overridden, model)) from None
    except (RecursionError, ValueError):
        raise ConfigError(
            f"{where}: environment.kwargs must hold numbers, texts, flags, lists and sections only; mend or remove it"
        ) from None
    return config


def _with_kinds(values, model):
    """`values` with the default's kind in each section that names none, so that recipes need not repeat it."""
    values = dict(values)
    for key, field in model.model_fields.items():
        section, kinds = values.get(key), kinds_of(field)
        if isinstance(section, str) and section in kinds:  # noise: low_rank is short for noise: {kind: low_rank}
            section = values[key] = {"kind": section}
        if isinstance(section, dict) and kinds:
            if None not in kinds:
                section = {"kind": field.default.kind, **section}
            kind = section.get("kind") if None not in kinds else None
            inner = kinds.get(kind) if kind is None or isinstance(kind, str) else None
            values[key] = _with_kinds(section, inner) if inner else section
    return values


class _Loader(yaml.SafeLoader):
    """YAML's safe loader, refusing a key that stands twice."""

    def construct_mapping(self, node, deep=False):
        seen = set()
        for key_node, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            key = key_node.value
            if isinstance(key, str) and key != "<<":
                if key in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"key {key!r} stands twice; remove one", key_node.start_mark
                    )
                seen.add(key)
        return super().construct_mapping(node, deep)


def _parse(text, where):
    try:
        return yaml.load(text, _Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = f" line {mark.line + 1}" if mark else ""
        raise ConfigError(f"{where}:{line} is not YAML ({one_line(error.problem or error.context)})") from None
    except yaml.reader.ReaderError as error:
        raise ConfigError(f"{where}: is not YAML (character number {error.position + 1}: {error.reason})") from None
    except RecursionError:
        raise ConfigError(f"{where}: is nested too deeply; a config has three levels") from None
    # PyYAML lets through what it meets in a number or a date that is none.
    except (yaml.YAMLError, ArithmeticError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError(f"{where}: is not YAML ({one_line(error)})") from None


def _apply(values, override):
    name, equals, text = override.partition("=")
    *sections, key = name.split(".")
    if not equals or not key or not all(sections):
        raise ConfigError(f"the command line: {override!r} must be KEY=VALUE, for instance solver.sigma=0.05")
    value = _parse(text, f"the command line, {name}")
    for number, section in enumerate(sections):
        inner = values.get(section)
        if inner is None:
            inner = values[section] = {}
        if not isinstance(inner, dict):
            path = ".".join(sections[: number + 1])
            raise ConfigError(f"the command line: {name} is not a key, since {path} is {quoted(inner)} and no section")
        values = inner
    values[key] = value


def as_yaml(values):
    """A mapping as YAML text, in the order of its keys."""
    return yaml.safe_dump(values, sort_keys=False, default_flow_style=None, width=100)


def resolved(config):
    """The config with every default filled in, as plain values."""
    return config.model_dump(mode="json")


def differences(old, new):
    """The keys in which two resolved configs differ in what is computed: list of (key, old, new)."""

    def flatten(values, prefix=""):
        for key, value in values.items():
            if isinstance(value, dict):
                yield from flatten(value, f"{prefix}{key}.")
            else:
                yield prefix + key, value

    one, two = (
        dict(flatten({key: value for key, value in values.items() if key not in FREE_SECTIONS}))
        for values in (old, new)
    )
    missing = "(absent)"
    return [
        (key, one.get(key, missing), two.get(key, missing))
        for key in sorted(one.keys() | two.keys())
        if one.get(key, missing) != two.get(key, missing)
    ]
