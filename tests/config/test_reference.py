"""The page of all keys is complete."""

import pytest

from mpies.config.reference import describe_keys
from mpies.config.schema import walk_sections


def tables():
    """The page as {title: (first line, rows)}."""
    found = {}
    for part in describe_keys().split("\n## ")[1:]:
        title, _, line, _, *table = part.rstrip("\n").split("\n")
        assert table[:2] == ["| key | default | meaning |", "|---|---|---|"]
        found[title] = line, table[2:]
    return found


def test_every_section_has_a_table_with_a_row_for_each_key():
    expected = {path or "top level": list(model.model_fields) for path, _, model in walk_sections()}
    assert {title: [row.split("`")[1] for row in rows] for title, (_, rows) in tables().items()} == expected


@pytest.mark.parametrize(
    ("title", "row"),
    [
        ("environment", "| `max_steps` | none | time limit of an episode,"),
        ("environment", "| `id` | required | a gymnasium id such as"),
        ("environment", "| `action_repeat` | 1 | "),
        ("top level", "| `noise` | see noise | "),
        ("solver (kind: openai_es)", "| `optimizer` | see solver (kind: openai_es).optimizer | "),
        ("noise (kind: full)", "| `kind` | full | which kind of section this is |"),
        ("tracking", "| `tensorboard` | `false` | "),
    ],
)
def test_a_row_names_the_key_its_default_and_its_meaning(title, row):
    assert any(each.startswith(row) for each in tables()[title][1])


def test_a_section_begins_with_the_first_line_of_its_docstring():
    assert tables()["checkpoint"][0] == "Complete states on disk."
