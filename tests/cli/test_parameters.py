"""Values of options are parsed, and a command ends with the right exit code."""

import click
import pytest
from click.testing import CliRunner

from mpies.cli.parameters import end, user_errors
from mpies.core.errors import ConfigError, RunError
from mpies.envs import EnvironmentProblem
from tests.support import assert_refused, invoke


@pytest.mark.parametrize("text", ["", "12", "12,", ",3", "0,3", "1,2,3", "1,-1", "a,b"])
def test_a_member_that_is_not_is_refused(text):
    refused = invoke("play", "run", "--member", text)
    assert_refused(refused, f"--member must be GENERATION,NUMBER such as 12,3, but is {text!r}")


@pytest.mark.parametrize("error", [ConfigError, RunError, EnvironmentProblem])
def test_a_users_error_is_one_line_on_standard_error_and_exit_code_2(error):
    @click.command()
    @user_errors
    def fail():
        raise error("it is wrong; mend it")

    ended = CliRunner().invoke(fail)
    assert (ended.exit_code, ended.stdout, ended.stderr) == (2, "", "mpies: it is wrong; mend it\n")


def test_an_error_of_mpies_itself_keeps_its_traceback():
    @click.command()
    @user_errors
    def fail():
        raise ZeroDivisionError

    assert isinstance(CliRunner().invoke(fail).exception, ZeroDivisionError)


@pytest.mark.parametrize(("is_good", "code"), [(True, 0), (False, 1)])
def test_the_exit_code_says_whether_the_answer_is_good(is_good, code):
    with pytest.raises(SystemExit) as caught:
        end(is_good)
    assert caught.value.code == code
