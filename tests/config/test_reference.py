"""The page of all keys is complete, and names no key twice where kinds share it."""

import re

from mpies.config.reference import describe_keys
from mpies.config.schema import walk_sections


def tables():
    """The page as {title: (first line, rows)}."""
    found = {}
    for part in re.split(r"\n###? ", describe_keys())[1:]:
        title, _, line, *table = part.rstrip("\n").split("\n")
        table = [row for row in table if row.startswith("|")]
        assert table[:2] in (["| key | default | meaning |", "|---|---|---|"], [])
        found[title] = line, table[2:]
    return found


def names(title):
    return [row.split("`")[1] for row in tables()[title][1]]


def test_every_key_of_every_section_has_a_row_there_or_among_those_that_kinds_share():
    for path, kind, model in walk_sections():
        listed = set(names(path or "top level"))
        if kind:
            own = names(f"{path} (kind: {kind})")
            assert set(own) <= set(model.model_fields)
            assert not {"kind"} & set(own)
            listed |= set(own)
        assert set(model.model_fields) <= listed
