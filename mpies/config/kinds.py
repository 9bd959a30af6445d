"""Sections that come in kinds, such as the solver: which ones a key may hold, and which one is meant without `kind`."""

from typing import Any

from pydantic.fields import FieldInfo

from mpies.solvers.options import Options


def kinds_of(field: FieldInfo) -> dict[str | None, type[Options]]:
    """The sections that a key may hold: `kind` to model.  The kind is None where there is only one."""
    annotation = field.annotation
    models = [m for m in getattr(annotation, "__args__", (annotation,)) if isinstance(m, type)]
    return {
        m.model_fields["kind"].default if "kind" in m.model_fields else None: m
        for m in models
        if issubclass(m, Options)
    }


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
            section = {"kind": field.default.kind, **section}
            kind = section["kind"]
        inner = kinds.get(kind) if kind is None or isinstance(kind, str) else None
        values[key] = with_kinds(section, inner) if inner else section
    return values
