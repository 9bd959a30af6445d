"""The schema describes each key, and its sections fit together."""

import re

import pytest

from mpies.config.environment import EnvironmentSection
from mpies.config.loading import resolved, validate_config
from mpies.config.reference import describe_keys
from mpies.config.schema import walk_sections
from mpies.core.errors import ConfigError
from mpies.core.options import Options


def test_every_key_has_a_description_and_a_row_in_the_table_of_its_section():
    tables = {table.partition("\n")[0]: table for table in re.split(r"\n###? ", describe_keys())}
    for path, kind, model in walk_sections():
        shown = tables[path or "top level"] + (tables[f"{path} (kind: {kind})"] if kind else "")
        for key, field in model.model_fields.items():
            assert field.description or key == "kind", f"{path}.{key}"
            assert f"\n| `{key}` |" in shown, f"{path}.{key}"


@pytest.mark.parametrize(
    ("section", "function"),
    [
        ({"id": "CartPole-v1"}, None),
        ({"id": "function:sphere", "dimension": 5}, "sphere"),
        ({"id": "file.py:name", "dimension": 5}, "file.py:name"),
        ({"id": "file.py:name"}, None),
    ],
)
def test_a_dimension_or_function_in_the_id_makes_a_function_of_an_environment(section, function):
    assert EnvironmentSection(**section).function == function


@pytest.mark.parametrize("default", [None, False])
def test_a_config_that_names_the_earlier_tracker_without_using_it_is_read(default):
    config = validate_config({"environment": {"id": "CartPole-v1"}, "tracking": {"mlflow": default, "json": True}}, "x")
    assert config.tracking.json and "mlflow" not in config.tracking.model_dump()


@pytest.mark.parametrize("value", [True, {}, {"experiment": "mine"}])
def test_the_earlier_tracker_is_refused_with_the_example_that_takes_its_place(value):
    with pytest.raises(ConfigError, match=r"^x: tracking\.mlflow is a callback .*examples/mlflow_callback\.py; remove"):
        validate_config({"environment": {"id": "CartPole-v1"}, "tracking": {"mlflow": value}}, "x")


def test_sections_that_are_defaults_are_what_validation_makes():
    defaults = [f.default for _, _, model in walk_sections() for f in model.model_fields.values()]
    sections = [default for default in defaults if isinstance(default, Options)]
    assert len(sections) > 7
    for section in sections:
        made = type(section)()
        assert section == made and repr(section) == repr(made) and resolved(section) == resolved(made)
