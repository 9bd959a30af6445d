import math

import pytest
from pydantic import ValidationError

from mpies.core.options import Count, Options, Positive, Real, RealOrAuto, Text, WholeNumber


class Section(Options):
    number: Real = 0.0
    positive: Positive = 1.0
    count: Count = 1
    whole: WholeNumber = 0
    text: Text = ""
    either: RealOrAuto = 0.0


@pytest.mark.parametrize(
    ("key", "given", "expected"),
    [
        ("number", "1_000e-3", 1.0),
        ("number", "1e-3", 0.001),  # YAML 1.1 reads it as a text
        ("number", "-2.5E+2", -250.0),
        ("number", ".5", 0.5),
        ("number", 3, 3.0),
        ("count", "1e3", 1000),
        ("count", 5.0, 5),
        ("whole", "1_000", 1000),
        ("text", "1e-3", "1e-3"),
        ("either", "1e-3", 0.001),
        ("either", -2, -2.0),
        ("either", "auto", "auto"),
    ],
)
def test_values_are_converted_by_the_type_of_their_key(key, given, expected):
    value = getattr(Section(**{key: given}), key)
    assert value == expected and type(value) is type(expected)


@pytest.mark.parametrize(
    ("key", "given", "message"),
    [
        ("number", True, "must be a number"),
        *(("either", value, "must be a number or auto") for value in (True, "Auto", "1e999", [1], 10**999, math.inf)),
        ("number", "fast", "must be a number"),
        ("number", "0x10", "must be a number"),
        ("number", "1_e5", "must be a number"),
        ("number", "1__0e5", "must be a number"),
        ("number", float("inf"), "finite number"),
        ("number", "1e999", "finite number"),
        ("positive", 0, "greater than 0"),
        ("count", 0, "greater than or equal to 1"),
        ("count", 2.5, "must be a whole number"),
        ("text", 5, "must be text"),
    ],
)
def test_wrong_values_are_refused(key, given, message):
    with pytest.raises(ValidationError, match=message):
        Section(**{key: given})
