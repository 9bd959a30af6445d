"""Commands at their edges: numbers that are none or too large, and why a training that failed has failed."""

import json

import pytest

from mpies.launch.train_again import find_reason


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            ("train", "cartpole", "--ranks", "x"),
            "invalid value for '--ranks': 'x' is not a whole number; see ",
        ),
        (("plot", "run", "--width", "x"), "invalid value for '--width': 'x' is not a number; see "),
        (("simulate", "9,9,1,0.5", "--ranks", "1..10000000000"), "--ranks must be at most 1,000,000, but is '1..1000"),
    ],
)
def test_a_number_that_cannot_be_used_is_one_line(arguments, line, run_mpies):
    outcome = run_mpies(0, *arguments)
    assert outcome.code == 2 and outcome.stderr.startswith(f"mpies: {line}"), outcome.stderr
    assert len(outcome.stderr.splitlines()) == 1


def test_the_reason_is_the_error_and_not_the_warnings_before_it():
    entries = ("WARNING", "one"), ("WARNING", "two"), ("ERROR", "the evaluation failed"), ("WARNING", "three")
    lines = [json.dumps({"severity": severity, "rank": 0, "message": message}) for severity, message in entries]
    assert find_reason("\n".join([*lines, "drawing"])) == "the evaluation failed"
    assert find_reason("\n".join([*lines[:2], "mpies: no room", ""])) == "mpies: no room"
