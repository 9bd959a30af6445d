"""Values of options are parsed, and a command ends with the right exit code."""

import click
import pytest
from click.testing import CliRunner

from mpies.cli.parameters import end, user_errors
from mpies.cli.policies import parse_member
from mpies.core.errors import ConfigError, RunError
from mpies.envs import EnvironmentProblem
from tests.support import assert_refused, invoke


@pytest.mark.parametrize(("text", "member"), [("12,3", (12, 3)), ("1,0", (1, 0))])
def test_a_member_is_a_generation_and_a_number(text, member):
    assert parse_member(text) == member


@pytest.mark.parametrize("text", ["", "12", "12,", ",3", "0,3", "1,2,3", "1,-1", "a,b"])
def test_a_member_that_is_not_is_refused(text):
    with pytest.raises(ConfigError) as caught:
        parse_member(text)
    assert str(caught.value) == f"--member must be GENERATION,NUMBER such as 12,3, but is {text!r}"


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


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train", "cartpole", "--min-ranks", "4"], "--min-ranks needs several hosts: --hosts or --hostfile"),
        (["train", "cartpole", "--ranks", "2", "--wait", "60"], "--wait needs several hosts"),
        (["train", "cartpole", "--launcher", "srun"], "--launcher needs several hosts"),
        (["train", "cartpole", "--hosts", "a:2", "--launcher", "srun"], "--launcher needs --hosts slurm; leave it out"),
        (["train", "cartpole", "--restarts", "3"], "--restarts needs ranks to start: --ranks, --hosts or --hostfile"),
        (["play", "run", "--member", "3,1", "--episodes", "5"], "--episodes has no effect with --member; leave it out"),
        (["plot", "run", "--umap"], "--umap needs --trajectory; add it, or leave it out"),
        (["plot", "run", "--trajectory", "--scale", "log"], "--scale has no effect with --trajectory; leave it out"),
        (["runs", "--prune", "run", "--json"], "--json has no effect with --prune; leave it out"),
    ],
)
def test_an_option_without_effect_is_refused(words, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert_refused(invoke(*words), message)
    assert not list(tmp_path.iterdir())
