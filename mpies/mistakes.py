"""What is wrong with a configuration, in one line: where, what was expected, what was found, how to mend it."""

import difflib
import re

import yaml

from mpies.keys import Config, kinds_of, walk_sections
from solvers.options import Options


def explain(error, where, overridden, model):
    """The most telling problem of a ValidationError in one line: where, key, expected, found, cure."""
    problem = min(error.errors(), key=_urgency)
    model, field, path, rest = _locate(problem["loc"], model)
    if rest[-1:] == ["[key]"]:  # the key is what was found, and no part of the path
        rest = rest[:-2]
    name = "".join(f"[{part}]" if isinstance(part, int) else f".{_plain(part)}" for part in path + rest).lstrip(".")
    text = _problem(problem, model, field, name)
    subject = text.split(" ", 1)[0]
    if any(f"{key}.".startswith(f"{subject}.") or subject.startswith((f"{key}.", f"{key}[")) for key in overridden):
        where = "the command line"
    return f"{where}: {one_line(text)}"


def _urgency(problem):
    """A wrong kind explains unknown keys, and a misspelt key explains a missing one."""
    if problem["loc"][-1:] == ("kind",) or problem["type"].startswith("union_tag"):
        return 0
    return 1 if problem["type"] in ("extra_forbidden", "invalid_key") else 2


def _locate(location, model):
    """(model, field, path, rest) of an error: the section and the key that `path` leads to, without tags.

    rest: what follows inside the value of that key.  model is None where there is no such section.
    """
    field, path, parts = None, [], list(location)
    while parts and model:
        field = model.model_fields.get(parts[0])
        path.append(parts.pop(0))
        kinds = kinds_of(field) if field else {}
        if not parts or not kinds:
            break
        model = kinds[parts.pop(0)] if len(kinds) > 1 else next(iter(kinds.values()))
    return model, field, path, parts


def _problem(problem, model, field, name):
    """What is wrong with the key `name`, in words; no line breaks but those of the user's own keys."""
    kind, found, context = problem["type"], problem["input"], problem.get("ctx", {})
    message = problem["msg"].removeprefix("Value error, ")
    if kind == "value_error" and not message.startswith("must "):  # a sentence of its own, about keys of this section
        return f"{name}.{message}" if name else message
    if kind in ("extra_forbidden", "invalid_key"):
        return f"{name} is not a key; {_known(model, name)}"
    if kind == "missing":
        example = "{id: CartPole-v1}" if name == "environment" else "CartPole-v1"
        return f"{name} is missing; add {name.rpartition('.')[2]}: {example}"
    if kind.startswith("union_tag") and isinstance(found, dict):
        return _choice(f"{name}.kind", sorted(map(str, kinds_of(field))), found.get("kind"))
    if kind == "literal_error":
        return _choice(name, list(field.annotation.__args__), found)
    expected = {
        "value_error": message,
        "greater_than": f"must be greater than {context.get('gt')}",
        "greater_than_equal": f"must be at least {context.get('ge')}",
        "less_than": f"must be less than {context.get('lt')}",
        "less_than_equal": f"must be at most {context.get('le')}",
        "finite_number": "must be a finite number",
        "list_type": "must be a list",
        "float_type": "must be a number",
        "float_parsing": "must be a number",
        "int_type": "must be a whole number",
        "int_parsing": "must be a whole number",
        "int_parsing_size": "must be a smaller number",
    }.get(kind)
    if problem["loc"][-1] == "[key]":
        return f"{name} has the key {quoted(found)}, which must be a text; quote or remove it"
    if kinds_of(field) or kind == "dict_type":
        expected = "must be a section of keys"
    return f"{name} {expected or 'must be of another type'}, but is {quoted(found)}; {_cure(field, name)}"


def _choice(name, choices, found):
    close = difflib.get_close_matches(str(found), choices, n=1)
    listed = f"one of {', '.join(choices)}" if len(choices) > 1 else choices[0]
    cure = f"did you mean {close[0]}?" if close else f"use {choices[0]}, for instance"
    return f"{name} must be {listed}, but is {quoted(found)}; {cure}"


def _known(model, name):
    """A hint for an unknown key: the same one of another section or kind, the nearest, or all there are."""
    section, _, key = name.rpartition(".")
    for place, _, other in walk_sections(Config, "", ""):
        if key in other.model_fields and key != "kind":
            place = re.sub(r" \(kind: \w+\)", "", place)
            if place == section:
                return f"it belongs to kind: {other.model_fields['kind'].default}"
            return f"did you mean {place}.{key}?"
    close = difflib.get_close_matches(key, model.model_fields, n=1)
    if close:
        return f"did you mean {section + '.' if section else ''}{close[0]}?"
    return f"{section or 'the top level'} has {', '.join(model.model_fields)}"


def _cure(field, name):
    if field.is_required():
        return f"for instance {name}: {'{id: CartPole-v1}' if name == 'environment' else 'CartPole-v1'}"
    if isinstance(field.default, Options):
        key = next(key for key in type(field.default).model_fields if key != "kind")
        return f"for instance {name}: {{{key}: {_yaml(getattr(field.default, key))}}}"
    return "leave it out for none" if field.default is None else f"the default is {_yaml(field.default)}"


def _plain(part):
    """A key as it is, or quoted where it would not read as one."""
    return part if isinstance(part, str) and part.replace("-", "_").isidentifier() else repr(part)


def quoted(value):
    """A value as an error shows it."""
    if value is None:
        return "empty"
    names = {list: "the list ", dict: "the section ", str: "the text ", bool: "the flag "}
    text = repr(value) if isinstance(value, str) else _yaml(value)
    return names.get(type(value), "") + (text if len(text) <= 60 else text[:57] + "...")


def _yaml(value):
    """A value on one line, as YAML writes it."""
    if isinstance(value, (bool, int, float)):
        return str(value).lower()
    if isinstance(value, str):
        return value
    try:
        return one_line(yaml.safe_dump(value, default_flow_style=True, width=1000))
    except (yaml.YAMLError, RecursionError):
        return repr(value)


def one_line(text):
    return " ".join(str(text).split())
