"""Values of options are parsed, and a command ends with the right exit code."""

import click
import pytest
from click.testing import CliRunner

from mpies.cli.parameters import user_errors
from mpies.core.errors import ConfigError, RunError
from mpies.envs import EnvironmentProblem


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
