"""Sections that come in kinds, such as the solver: which ones a key may hold, and which one is meant without `kind`."""

from collections.abc import Iterator
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from mpies.core.options import Options


def kinds_of(field: FieldInfo) -> dict[str | None, type[Options]]:
    """The sections that a key may hold: `kind` to model.  The kind is None where there is only one."""
    models = _sections_in(field.annotation)
    return {m.model_fields["kind"].default if "kind" in m.model_fields else None: m for m in models}


def _sections_in(annotation: Any) -> Iterator[type[Options]]:
    """The sections among the alternatives of a type."""
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from _sections_in(get_args(annotation)[0])
    elif origin in (Union, UnionType):
        for alternative in get_args(annotation):
            yield from _sections_in(alternative)
    elif isinstance(annotation, type) and origin is None and issubclass(annotation, Options):
        yield annotation


def list_choices(annotation: Any) -> list[str]:
    """The values of the first Literal in a type, such as Literal["a", "b"] | None, as text; [] without one."""
    if get_origin(annotation) is Literal:
        return [str(value) for value in get_args(annotation)]
    return next((found for inner in get_args(annotation) if (found := list_choices(inner))), [])


def with_kinds(values: dict[str, Any], model: type[Options]) -> dict[str, Any]:
    """`values` with the default kind filled in where a section names none, so that recipes need not repeat it."""
    values = dict(values)
    for key, field in model.model_fields.items():
        section, kinds = values.get(key), kinds_of(field)
        if isinstance(section, str) and section in kinds:  # noise: low_rank is short for noise: {kind: low_rank}
            section = values[key] = {"kind": section}
        if not kinds or not isinstance(section, dict):
            continue
        kind = None
        if None not in kinds:
            if default := getattr(field.default, "kind", None):  # a solver of the user's may have none
                section = {"kind": default, **section}
            kind = section.get("kind")
        inner = kinds.get(kind) if kind is None or isinstance(kind, str) else None
        values[key] = with_kinds(section, inner) if inner else section
    return values
