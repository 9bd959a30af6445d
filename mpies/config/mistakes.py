"""One-line explanations of what is wrong with a configuration: key, what was expected, what it is, how to mend it."""

import difflib
import re
from collections.abc import Sequence
from typing import Any

import yaml
from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from mpies.config.kinds import kinds_of, list_choices
from mpies.config.schema import Config, walk_sections
from mpies.core.options import Options
from mpies.core.text import one_line

# What a key must be, for the types of pydantic's errors.  Curly braces stand for values of the error's context.
_EXPECTED = {
    "greater_than": "must be greater than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "finite_number": "must be a finite number",
    "list_type": "must be a list",
    "dict_type": "must be a section of keys",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "int_parsing_size": "must be a smaller number",
    "string_type": "must be text",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "tuple_type": "must be a list",
    "enum": "must be {expected}",
}

# Values of the keys that have no default.
_EXAMPLES = {
    "environment": "{id: CartPole-v1}",
    "environment.id": "CartPole-v1",
    "environment.adaptive.start": "100",
    "tracking.wandb.project": "my-project",
    "halving.first": "100000",  # of a sweep
    "policy.module": "path/to/file.py:make_policy",
}


def explain(error: ValidationError, where: str, overridden: Sequence[str], model: type[Options]) -> str:
    """The most telling problem of a ValidationError in one line: place, key, expected, actual value, cure.

    where: the file.  overridden: keys given on the command line, which is then named as the place.  model: of the
    config that was validated.
    """
    problems = error.errors()
    # A union without a discriminator tells of all its kinds; those that are not meant say so.
    others = [each["loc"][:-1] for each in problems if each["type"] == "literal_error" and each["loc"][-1] == "kind"]
    meant = [each for each in problems if not any(each["loc"][: len(other)] == other for other in others)]
    problem = min(meant or problems, key=_urgency)
    section, field, path, rest = _locate(problem["loc"], model)
    if rest[-1:] == ["[key]"]:  # The key itself is the wrong value, so it is no part of the path.
        rest = rest[:-2]
    name = "".join(f"[{part}]" if isinstance(part, int) else f".{_as_key(part)}" for part in path + rest).lstrip(".")
    text = _describe(problem, section, field, name)
    subject = text.split(" ", 1)[0]
    if any(f"{key}.".startswith(f"{subject}.") or subject.startswith((f"{key}.", f"{key}[")) for key in overridden):
        where = "the command line"
    elif problem["type"] == "extra_forbidden":
        owner = ".".join(map(str, path[:-1]))
        if f"{owner}.kind" in overridden:  # the rest of the file's section is for another kind
            text += f"; write {owner}=KIND in place of {owner}.kind=KIND to drop the section's other keys"
    return f"{where}: {one_line(text)}"


def _urgency(problem: ErrorDetails) -> int:
    """Rank of a problem, 0 first: a wrong kind causes unknown keys, and a misspelt key causes a missing one."""
    if problem["loc"][-1:] == ("kind",) or problem["type"].startswith("union_tag"):
        return 0
    return 1 if problem["type"] in ("extra_forbidden", "invalid_key") else 2


def _locate(
    location: tuple[int | str, ...], model: type[Options]
) -> tuple[type[Options], FieldInfo | None, list[int | str], list[int | str]]:
    """(section, field, path, rest) of an error's location.

    path: the keys that lead to the field at fault, without the kinds of sections.  rest: the location inside the
    value of that field.  section: the model that has the field, or lacks it, in which case field is None.
    """
    field, path, parts = None, [], list(location)
    while parts:
        field = model.model_fields.get(str(parts[0]))
        path.append(parts.pop(0))
        kinds = kinds_of(field) if field else {}
        if not parts or not kinds:
            break
        model = next(iter(kinds.values()))
        if len(kinds) > 1:  # the location has the kind, or the name of the class where pydantic tries them all
            tag = str(parts.pop(0))
            model = next((each for kind, each in kinds.items() if tag in (kind, each.__name__)), model)
    return model, field, path, parts


def _describe(problem: ErrorDetails, section: type[Options], field: FieldInfo | None, name: str) -> str:
    """What is wrong with the key `name`; may hold line breaks where the user's keys do."""
    kind, value = problem["type"], problem["input"]
    message = problem["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
    if kind == "assertion_error":  # of a solver of the user's
        if not message:
            return f"{name} is refused by a validator of its class"
        kind = "value_error"
    if kind == "value_error" and not message.startswith("must "):  # a complete sentence about keys of this section
        return f"{name}.{message}" if name else message
    if kind == "missing":
        key = name.rpartition(".")[2]
        return f"{name} is missing; add {key}: {_EXAMPLES.get(name, '...')}"
    if field is None or kind in ("extra_forbidden", "invalid_key"):
        word, _, value = str(problem["loc"][-1]).partition(":")
        if value and word in section.model_fields:
            return f"{name} is not a key; put a space after the colon: {word}: {value}"
        return f"{name} is not a key; {'remove it' if field else _nearest_key(section, name)}"
    kinds = kinds_of(field)
    if kind.startswith("union_tag") and isinstance(value, dict):
        file = str(value.get("kind"))
        if name == "solver" and file.endswith(".py"):
            return f"solver.kind must name the class in {file} as well, in the form {file}:Class"
        return _describe_choice(f"{name}.kind", sorted(map(str, kinds)), value.get("kind"))
    if kind == "literal_error" and (choices := list_choices(field.annotation)):
        return _describe_choice(name, choices, value)
    if problem["loc"][-1] == "[key]":
        return f"{name} has the key {quoted(value)}, which must be text; quote or remove it"
    if kinds and isinstance(value, str) and len(kinds) > 1:
        return _describe_choice(f"{name}.kind", sorted(map(str, kinds)), value)
    if kinds:
        expected = "must be a section of keys"
    elif kind == "value_error":
        expected = message
    else:
        expected = _EXPECTED.get(kind, "must be of another type").format_map(problem.get("ctx", {}))
    found = "" if ", but is " in expected else f", but is {quoted(value)}"
    return f"{name} {expected}{found}; {_cure(field, name)}"


def _describe_choice(name: str, choices: list[str], value: Any) -> str:
    close = difflib.get_close_matches(str(value), choices, n=1)
    listed = f"one of {', '.join(choices)}" if len(choices) > 1 else choices[0]
    cure = f"did you mean {close[0]}?" if close else f"use {choices[0]}, for instance"
    return f"{name} must be {listed}, but is {quoted(value)}; {cure}"


def _nearest_key(model: type[Options], name: str) -> str:
    """A hint for an unknown key.

    The first of these that exists: its longer form, the same key of other kinds or of another section, the only key
    that begins like it, the nearest, all keys of the section.
    """
    section, _, key = name.rpartition(".")
    start = f"{section}." if section else ""
    if longer := [known for known in model.model_fields if known == f"{key}_init"]:
        return f"did you mean {start}{longer[0]}?"
    is_of_run = section.partition(".")[0] in Config.model_fields if section else issubclass(model, Config)
    having = [
        (path, other)
        for path, _, other in (walk_sections() if is_of_run else ())  # a sweep file has other sections
        if key in other.model_fields and key != "kind"
    ]
    kinds = [other for path, other in having if path == section and "kind" in other.model_fields]
    if kinds:
        listed = dict.fromkeys(str(other.model_fields["kind"].default) for other in kinds)
        return f"it belongs to {'kind:' if len(listed) == 1 else 'the kinds'} {', '.join(listed)}"
    if having:
        path = having[0][0]
        return f"did you mean {path}.{key}?" if path else f"did you mean {key}?"
    begun = [known for known in model.model_fields if known.startswith(key)] if len(key) > 2 else []
    close = begun if len(begun) == 1 else difflib.get_close_matches(key, model.model_fields, n=1)
    if close:
        return f"did you mean {start}{close[0]}?"
    return f"{section or 'the top level'} has {', '.join(model.model_fields)}"


def _cure(field: FieldInfo, name: str) -> str:
    """How to mend a wrong value: an example, or the default."""
    if field.is_required():
        return f"for instance {name}: {_EXAMPLES.get(name, '...')}"
    if isinstance(field.default, Options):
        values = field.default.model_dump(exclude={"kind"}, exclude_none=True)
        key = next(iter(values))
        return f"for instance {name}: {{{key}: {_as_yaml(values[key])}}}"
    if (default := field.get_default(call_default_factory=True)) is not None:
        return f"the default is {_as_yaml(default)}"
    stated = re.search("; default (.*)", field.description or "")
    return f"leave it out for the default, {stated[1]}" if stated else "leave it out for none"


def _as_key(part: str) -> str:
    """A key as it is, or quoted where it would not read as one."""
    return part if part.replace("-", "_").isidentifier() else repr(part)


def quoted(value: Any) -> str:
    """A value as an error shows it: with its type where that helps, and at most 60 characters long."""
    if value is None:
        return "empty"
    names: dict[type, str] = {list: "the list ", dict: "the section ", str: "the text "}
    text = repr(value) if isinstance(value, str) else _as_yaml(value)
    return names.get(type(value), "") + (text if len(text) <= 60 else text[:57] + "...")


def _as_yaml(value: Any) -> str:
    """A value on one line, as YAML writes it."""
    if isinstance(value, int) and value.bit_length() > 4000:  # Python writes it in no other way
        return hex(value)
    if isinstance(value, (bool, int, float)):
        return str(value).lower()
    if isinstance(value, str):
        return value
    try:
        return one_line(yaml.safe_dump(value, default_flow_style=True, width=1000))
    except (yaml.YAMLError, RecursionError):
        return repr(value)
