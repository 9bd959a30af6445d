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
    ("key", "conversions"),
    [
        # YAML 1.1 reads the second one as a text.
        ("number", {"1_000e-3": 1.0, "1e-3": 0.001, "-2.5E+2": -250.0, ".5": 0.5, 3: 3.0}),
        ("count", {"1e3": 1000, 5.0: 5}),
        ("whole", {"1_000": 1000}),
        ("text", {"1e-3": "1e-3"}),
        ("either", {"1e-3": 0.001, -2: -2.0, "auto": "auto"}),
    ],
)
def test_values_are_converted_by_the_type_of_their_key(key, conversions):
    for given, expected in conversions.items():
        value = getattr(Section(**{key: given}), key)
        assert value == expected and type(value) is type(expected), given


@pytest.mark.parametrize(
    ("key", "message", "values"),
    [
        ("number", "must be a number", [True, "fast", "0x10", "1_e5", "1__0e5"]),
        ("number", "finite number", [math.inf, "1e999"]),
        ("either", "must be a number or auto", [True, "Auto", "1e999", [1], 10**999, math.inf]),
        ("positive", "greater than 0", [0]),
        ("count", "greater than or equal to 1", [0]),
        ("count", "must be a whole number", [2.5]),
        ("text", "must be text", [5]),
    ],
)
def test_wrong_values_are_refused(key, message, values):
    for given in values:
        with pytest.raises(ValidationError, match=message):
            Section(**{key: given})
