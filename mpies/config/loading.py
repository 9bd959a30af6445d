"""A run's configuration from a YAML file and overrides, and back to YAML.

`load_config` reads a file, applies KEY=VALUE overrides and returns a Config.  It raises ConfigError with one line:
where, what was expected, what it is, how to mend it.
"""

import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from pydantic import Field, ValidationError, create_model

from mpies.config.kinds import kinds_of
from mpies.config.mistakes import explain, quoted
from mpies.config.recipes import find_config, is_environment_id
from mpies.config.schema import BACKEND, Config, ConfigType, any_solver, is_free
from mpies.config.trust import find_code, find_refusal
from mpies.core.errors import ConfigError, RunError, UserError
from mpies.core.options import Options
from mpies.core.paths import absolute
from mpies.core.text import describe_error, one_line
from mpies.solvers.registry import find_solver

Values = dict[str, Any]  # a section as plain values: numbers, texts, flags, lists and sections

SEEDS = ("seed", "seeds", "draw_seed")  # keys
MOST_DIGITS = 1000  # of a whole number: Python writes no number of more than 4300
# No more is parsed of YAML: deep nesting would end this process by a signal, aliases of aliases would fill its memory.
MAX_LEVELS, MAX_VALUES, MAX_VALUE = 50, 2**20, 2**16  # levels; values, with those of aliases; characters of a value

_EXAMPLE = "environment: {id: CartPole-v1}"
_Parser = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times faster where libyaml is there


def load_config(path: str | Path, overrides: Sequence[str] = (), trains: bool = True) -> Config:
    """The Config of a YAML file, with overrides such as "solver.sigma=0.05" applied.  Raises ConfigError.

    path: of the file, a recipe's name, or an environment's id.
    trains: whether the user asks to train it; if not, RunError is raised for that of a run whose code is not trusted.
    """
    path = find_config(path)
    values = read_config(path)
    is_saved = not trains and os.path.isfile(absolute(path)) and _is_of_run(saved := read_yaml(path))
    if is_saved and (refusal := find_refusal(values, signature_of(saved), str(path))):
        raise RunError(refusal)
    if "base" in values and "environment" not in values:
        raise ConfigError(f"{path}: is a sweep file; train it with mpies sweep {shlex.quote(str(path))}")
    return make_config(values, overrides, str(path))


def read_config(path: str | Path) -> Values:
    """The values of a config that `find_config` found; of a run's config, without the versions.  Raises ConfigError."""
    is_id = is_environment_id(path) and not os.path.exists(absolute(path))  # false for a name that no file can have
    if is_id:
        return {"environment": {"id": str(path)}}
    if Path(path).suffix == ".py":
        raise ConfigError(f"{path}: is a Python file; name the class or function in it, such as {path}:NAME")
    file = Path(path) / "config.yaml"
    if os.path.isfile(absolute(file)) and _is_of_run(read_yaml(file)):
        command = shlex.join(["mpies", "train", str(file), "--out", str(path)])
        raise ConfigError(f"{path}: is the folder of a run; continue it with {command}")
    values = read_yaml(path)
    if _is_of_run(values):
        del values["versions"]
    _find_beside(values, Path(path).parent)
    return values


def _find_beside(values: Values, folder: Path) -> None:
    """Where a config names FILE.py:NAME and that file is not here, but beside the config, name it there."""
    for section, key in (("environment", "id"), ("policy", "module"), ("solver", "kind")):
        part = values.get(section)
        if not isinstance(part, dict):
            continue
        file, _, name = str(part.get(key)).rpartition(":")
        if file.endswith(".py") and not os.path.exists(absolute(file)) and os.path.exists(absolute(folder / file)):
            part[key] = f"{folder / file}:{name}"


def signature_of(values: Mapping[str, Any]) -> object:
    """The signature in a run's config.yaml (mpies.config.trust); None where it has none."""
    versions = values.get("versions")
    return versions.get("signature") if isinstance(versions, dict) else None


def validate_saved(values: Mapping[str, Any], signature: object, where: str) -> Config:
    """The Config that a run directory or a policy file was saved with.  Raises ConfigError.

    signature: what is saved beside it.  where: begins the line of an error.
    Where its code is not trusted, this raises RunError if that is a solver's, which alone knows the keys of the
    section; else Config.require_trust will.
    """
    refusal = find_refusal(values, signature, where)
    if refusal and "solver.kind" in find_code(values):
        raise RunError(refusal)
    config = validate_config(values, where)
    config.refuse_code(refusal)
    return config


def _is_of_run(values: Values) -> bool:
    """Whether these are the values of a run's config.yaml, which lists the versions of packages."""
    versions = values.get("versions")
    return isinstance(versions, dict) and "mpies" in versions


def make_config(values: Mapping[str, Any], overrides: Sequence[str], where: str) -> Config:
    """The Config of a mapping, with overrides applied.  Raises ConfigError, whose line begins with `where`."""
    values = dict(values)
    for override in overrides:
        _apply(values, override)
    return validate_config(values, where, [override.partition("=")[0] for override in overrides])


def validate_config(values: Mapping[str, Any], where: str, overridden: Sequence[str] = ()) -> Config:
    """The Config of a mapping.  Raises ConfigError.

    where: begins the line of an error, unless the key at fault is one of `overridden`.
    """
    try:
        model = _find_model(values)
    except ValueError as error:
        raise ConfigError(f"{where}: solver.kind {one_line(error)}") from None
    try:
        config = model.model_validate(dict(values))
        resolved(config)  # fails where values cannot be written to config.yaml
    except ValidationError as error:
        raise ConfigError(explain(error, where, overridden, model)) from None
    except (RecursionError, ValueError):
        raise ConfigError(
            f"{where}: environment.kwargs accepts only numbers, text, true, false, lists and sections; fix or remove it"
        ) from None
    except UserError:
        raise
    except Exception as error:  # of a custom solver's Options, which may raise anything
        raise ConfigError(f"{where}: solver: its Options raised {describe_error(error)}") from error
    return config


ConfigType.read = lambda values: validate_config(as_plain(values), "mpies.Config")


def as_plain(value: Any) -> Any:
    """A copy of a value of Python's as YAML would have it: lists for tuples and arrays, Python's numbers, texts.

    Of a Config or a section of one, its keys.  Raises ConfigError where it is nested without end.
    """
    try:
        if isinstance(value, Options):
            return value.model_dump(mode="json")
        if isinstance(value, Mapping):
            return {key: as_plain(inner) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return [as_plain(inner) for inner in value]
        if isinstance(value, np.ndarray | np.generic):
            return value.tolist()
    except RecursionError:
        raise ConfigError("config: is nested too deeply; a config has three levels") from None
    return str(value) if isinstance(value, Path) else value


def read_yaml(path: str | Path) -> Values:
    """The mapping in a YAML file, as plain values.  Raises ConfigError."""
    path = Path(path)
    try:
        text = absolute(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); give the path of a YAML file") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: is not a text file; give the path of a YAML file") from None
    values = parse_value(text, str(path))
    if values is None:
        raise ConfigError(f"{path}: is empty; it needs at least {_EXAMPLE}")
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: must hold sections such as {_EXAMPLE}, but is {quoted(values)}")
    return values


def as_yaml(values: Mapping[str, Any]) -> str:
    """A mapping as YAML text, in the order of its keys."""
    return yaml.safe_dump(values, sort_keys=False, default_flow_style=None, width=100)


def resolved(config: Config) -> Values:
    """The config with every default filled in, as plain values."""
    return config.model_dump(mode="json")


def flatten(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The dotted key and the value of each key of nested sections.  prefix: begins the keys."""
    for key, value in values.items():
        if isinstance(value, dict):
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def flatten_settings(values: Mapping[str, Any]) -> Values:
    """Dotted keys of a resolved config to their values, without those that a resumed run may change."""
    return {key: value for key, value in flatten(values) if not is_free(key)}


def is_same(key: str, old: Any, new: Any) -> bool:
    """Whether a new value of a dotted key is the one of a run; a backend of auto is what the run began with."""
    return bool(old == new) or (key, new) == (BACKEND, "auto")


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """(key, old, new) of each key that two resolved configs differ in, without those that a resumed run may change."""
    one, two, absent = flatten_settings(old), flatten_settings(new), "(absent)"
    both = [(key, one.get(key, absent), two.get(key, absent)) for key in sorted(one.keys() | two.keys())]
    return [found for found in both if not is_same(*found)]


def _find_model(values: Mapping[str, Any]) -> type[Config]:
    """The class that validates `values`: Config, or one that also has the keys of a solver outside the registry.

    Such a solver.kind is nevergrad:NAME or path/to/file.py:Class.  Raises ValueError where there is no such solver.
    """
    section = values.get("solver")
    kind = section.get("kind") if isinstance(section, dict) else None
    if not isinstance(kind, str) or ":" not in kind:
        return Config
    custom, field = find_solver(kind), Config.model_fields["solver"]
    return create_model(
        "Config", __base__=Config, solver=(any_solver(custom), Field(field.default, description=field.description))
    )


def _apply(values: Values, override: str) -> None:
    """Put an override such as "solver.sigma=0.05" into `values`.  Raises ConfigError."""
    name, equals, text = override.partition("=")
    *sections, key = name.split(".")
    if not equals or not key or not all(sections):
        raise ConfigError(f"the command line: {override!r} must be KEY=VALUE, for instance solver.sigma=0.05")
    value = parse_value(decimal_seeds(name, text), f"the command line, {name}")
    for number, section in enumerate(sections):
        inner, field = values.get(section), None if number else Config.model_fields.get(section)
        if inner is None:
            inner = values[section] = {}
        elif field and isinstance(inner, str) and inner in kinds_of(field):
            inner = values[section] = {"kind": inner}
        if not isinstance(inner, dict):
            path = ".".join(sections[: number + 1])
            raise ConfigError(
                f"the command line: {name} is not a key, since {path} is {quoted(inner)} and not a section"
            )
        values[section] = values = dict(inner)  # by an alias of YAML's the same section may stand elsewhere, too
    values[key] = value


def decimal_seeds(key: str, text: str) -> str:
    """A value as typed, or, of a key for seeds, without zeros in front: YAML would read the seed 010 as the octal 8."""
    return re.sub(r"(?<![\w.])0[0_]*(?=\d)", "", text) if key in SEEDS else text


class _Loader(yaml.SafeLoader):
    """YAML's safe loader, which also refuses a key that appears twice in a mapping, and values that no file can hold.

    Seeds are decimal.
    """

    def construct_scalar(self, node: yaml.ScalarNode | yaml.MappingNode) -> Any:
        if node.tag == "tag:yaml.org,2002:int" and len(node.value) > MOST_DIGITS:
            problem = f"a whole number of more than {MOST_DIGITS} characters; make it smaller"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
        value = super().construct_scalar(node)
        if isinstance(value, str) and any("\ud800" <= letter <= "\udfff" for letter in value):
            raise yaml.constructor.ConstructorError(None, None, "half a character; fix or remove it", node.start_mark)
        return value

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key_node, value in node.value if isinstance(node, yaml.MappingNode) else ():
            key = key_node.value
            for part in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                if isinstance(part, yaml.ScalarNode) and part.style is None and key in SEEDS:
                    part.value = decimal_seeds(key, part.value)
                    part.tag = self.resolve(yaml.ScalarNode, part.value, (True, False))
            if isinstance(key, str) and key != "<<":
                if key in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"key {key!r} appears twice; remove one", key_node.start_mark
                    )
                seen.add(key)
        return super().construct_mapping(node, deep)


def parse_settings(text: str, loader: Any = _Parser) -> Any:
    """The values of a YAML text that a program has written.  All YAML of files is read here.

    Raises ConfigError where there is more of them than a parser can bear, and what PyYAML raises where it is damaged.
    """
    values, sizes, opened = 0, dict[str | None, int](), list[tuple[str | None, int]]()
    for event in yaml.parse(text, loader):
        if isinstance(event, yaml.AliasEvent) and event.anchor not in sizes:
            raise ConfigError(f"*{event.anchor} names what contains it, or nothing")
        values += sizes[event.anchor] if isinstance(event, yaml.AliasEvent) else 1
        if isinstance(event, yaml.ScalarEvent):
            sizes[event.anchor] = 1
        elif isinstance(event, yaml.CollectionStartEvent):
            opened.append((event.anchor, values))
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, first = opened.pop()
            sizes[anchor] = values - first
        if len(opened) > MAX_LEVELS:
            raise ConfigError("is nested too deeply; a config has three levels")
        if values > MAX_VALUES or len(getattr(event, "value", "")) > MAX_VALUE:
            raise ConfigError("has too many values, or one that is too long")
    return yaml.load(text, loader)


def parse_value(text: str, where: str) -> Any:
    """The value of a YAML text that a user has written.  Raises ConfigError, whose line begins with `where`."""
    try:
        return parse_settings(text, _Loader)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None
    except yaml.MarkedYAMLError as error:
        problem = one_line(error.problem or error.context)
        # A key without its colon is noticed in the line below it.
        mark = error.context_mark if error.context == "while scanning a simple key" else error.problem_mark
        line = f" line {mark.line + 1}" if mark else ""
        cure = "; indent with spaces, not with tabs" if r"'\t'" in problem else ""
        raise ConfigError(f"{where}:{line} is not valid YAML ({problem}){cure}") from None
    except yaml.reader.ReaderError as error:
        raise ConfigError(
            f"{where}: is not valid YAML (character number {error.position + 1}: {error.reason})"
        ) from None
    # PyYAML raises these itself for malformed numbers and dates.
    except (yaml.YAMLError, ArithmeticError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError(f"{where}: is not valid YAML ({one_line(error)})") from None
