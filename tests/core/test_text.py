"""Messages are one line, whatever a user's code says."""

import numpy as np
import pytest

from mpies.core.errors import ConfigError, EnvironmentProblem
from mpies.core.text import LONGEST, describe_error, describe_value, message_of, one_line, unbroken


class Silent(Exception):
    def __str__(self):
        raise RuntimeError("no words")


def test_a_message_is_one_line_without_control_characters_is_cut_and_never_fails():
    assert one_line(" a\n  b\tc ") == "a b c" and one_line("a\x1b[31mb") == r"a\x1b[31mb"
    assert message_of(ValueError("no screen\n\t  found\n")) == "no screen found"
    assert message_of(ValueError("x" * 1000)) == "x" * LONGEST + " ..."
    assert message_of(Silent()) == "(its message cannot be shown)"


def test_an_error_is_its_type_and_its_message_and_a_users_mistake_the_message_alone():
    assert describe_error(ValueError("no\nscreen")) == "ValueError: no screen"
    assert describe_error(ValueError()) == "ValueError"
    assert describe_error(EnvironmentProblem("as it is")) == "as it is"


def test_a_value_is_shown_with_its_type_or_shape():
    assert [describe_value(value) for value in (None, True, 0.5, np.float32(0.5))] == ["None", "True", "0.5", "0.5"]
    assert describe_value(np.ones((2, 3), np.float32)) == "an array of shape (2, 3) of float32"
    assert [describe_value(value) for value in ([1, 2], "red", {})] == ["a list of 2", "the text 'red'", "a dict"]


@pytest.mark.parametrize("odd", ["\n", "\r", "\x00", "\x1b", "\x85", "\u2028"])
def test_a_text_of_a_script_has_no_control_character(odd):
    assert unbroken("Größe 1; $(x) 'y'", "--out") == "Größe 1; $(x) 'y'"
    with pytest.raises(ConfigError, match=r"^--out: '.*' has a newline or another control character; give one without"):
        unbroken(f"a{odd}touch b", "--out")
