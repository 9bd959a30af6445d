"""TAB completes recipes, runs and the keys of overrides: what the shells ask, and real shells in a terminal."""

import contextlib
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from mpies.cli.main import main
from mpies.config.loading import load_config
from mpies.config.recipes import find_recipes, find_recorded_policies
from mpies.config.reference import list_keys
from tests.support import CARTPOLE

ENVIRONMENT = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "TERM": "dumb"}


@pytest.fixture
def folder(tmp_path):
    """A folder with two runs, and a config of another solver."""
    for name in ("first", "sweep/second"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "config.yaml").write_text(CARTPOLE)
    (tmp_path / "own.yaml").write_text("environment: {id: CartPole-v1}\nsolver: {kind: snes}\n")
    return tmp_path


def complete(folder, line, shell="bash"):
    """What mpies offers at the end of a command line, as (type, text)."""
    words = line.split(" ")
    asked = {"COMP_WORDS": line, "COMP_CWORD": words[-1] if shell == "fish" else str(len(words) - 1)}
    with contextlib.chdir(folder):
        done = CliRunner().invoke(main, prog_name="mpies", env={**asked, "_MPIES_COMPLETE": f"{shell}_complete"})
    assert (done.exit_code, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    if shell == "zsh":  # type, text and help, a line each
        return list(zip(lines[::3], lines[1::3], strict=True))
    return [tuple(line.partition("\t")[0].split(",", 1)) for line in lines]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_config_is_completed_with_recipes_and_files(shell, folder):
    assert complete(folder, "mpies train lunar", shell) == [
        ("file", "lunar"),
        ("plain", "lunar_lander"),
        ("plain", "lunar_lander_18"),
        ("plain", "lunar_lander_18-cma_1"),
        ("plain", "lunar_lander_18-cma_5"),
        ("plain", "lunar_lander_18-openai"),
    ]
    assert complete(folder, "mpies train hopper-", shell)[1:] == [("plain", "hopper-openai")]


@pytest.mark.parametrize("command", ["check", "doctor", "verify", "bench", "simulate", "launch slurm", "launch k8s"])
def test_every_command_that_takes_a_config_completes_recipes(command, folder):
    assert complete(folder, f"mpies {command} ")[1:] == [("plain", name) for name in find_recipes()]


@pytest.mark.parametrize("command", ["plot", "evaluate", "play", "export", "compare first", "runs --prune", "report"])
def test_runs_are_completed(command, folder):
    runs = [("plain", "runs/first"), ("plain", "runs/sweep/second")]
    recipes = find_recorded_policies() if command in ("evaluate", "play", "export") else ()
    assert complete(folder, f"mpies {command} ") == [*runs, *(("plain", name) for name in recipes)]
    assert complete(folder, f"mpies {command} runs/sw") == runs[1:]


def test_where_there_is_no_run_files_are_offered(folder):
    assert complete(folder, "mpies evaluate other/") == [("file", "other/")]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_keys_and_their_values_are_completed(shell, folder):
    offered = [text for _, text in complete(folder, "mpies train own.yaml solver.", shell)]
    assert "solver.kind=" in offered and "solver.momentum=" not in offered
    assert complete(folder, "mpies train own.yaml seed=3 policy.activation=r", shell) == [
        ("plain", "policy.activation=relu")
    ]
    assert complete(folder, "mpies check own.yaml policy.bias=", shell)[0] == ("plain", "policy.bias=true")


def test_the_keys_are_those_of_the_config_and_of_the_overrides_before(folder):
    keys = set(list_keys(load_config(folder / "own.yaml")))
    offered = {text.removesuffix("=") for _, text in complete(folder, "mpies train own.yaml ")}
    assert offered == keys and "solver.optimizer.kind" not in keys
    changed = complete(folder, "mpies train own.yaml solver.kind=openai_es solver.optimizer.")
    assert ("plain", "solver.optimizer.kind=") in changed
    of_all_kinds = {text.removesuffix("=") for _, text in complete(folder, "mpies train absent.yaml ")}
    assert of_all_kinds == set(list_keys()) and of_all_kinds > keys


def test_each_key_that_is_listed_is_one(folder):
    config = load_config(folder / "own.yaml")
    for key in list_keys(config):
        value = config
        for part in key.split("."):
            value = getattr(value, part) if value is not None else None  # a section that is left out


def test_completion_takes_less_than_a_second_of_the_processor(folder):
    asked = {"COMP_WORDS": "mpies train own.yaml solver.", "COMP_CWORD": "3", "_MPIES_COMPLETE": "bash_complete"}
    began = os.times().children_user
    done = subprocess.run(["mpies"], cwd=folder, env={**ENVIRONMENT, **asked}, capture_output=True, text=True)
    assert os.times().children_user - began < 1 and "plain,solver.sigma=" in done.stdout, done.stderr


SETUP = {
    "bash": ["bash", "--norc", "--noprofile", "-i"],
    "zsh": ["zsh", "--no-rcs", "-i"],
    "fish": ["fish", "--no-config", "-i"],
}
REGISTER = {
    "bash": 'eval "$(_MPIES_COMPLETE=bash_source mpies)"\n',
    "zsh": 'autoload -Uz compinit; compinit -u; eval "$(_MPIES_COMPLETE=zsh_source mpies)"\n',
    "fish": "_MPIES_COMPLETE=fish_source mpies | source\n",
}


def read_terminal(terminal, pattern, seconds=30):
    """What a terminal shows, up to the first match of a pattern.  Fails where none comes in time."""
    shown, until = "", time.monotonic() + seconds
    while not re.search(pattern, shown):
        ready, _, _ = select.select([terminal], [], [], max(0.0, until - time.monotonic()))
        assert ready, f"no {pattern!r} in {shown!r}"
        shown += os.read(terminal, 4096).decode(errors="replace")
    return shown


@pytest.mark.parametrize("shell", list(SETUP))
def test_a_real_shell_completes_what_is_typed(shell, folder):
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell}")
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(folder)
        os.execvpe(shell, SETUP[shell], ENVIRONMENT | {"HOME": str(folder)})
    try:
        os.write(terminal, (REGISTER[shell] + "echo rea''dy\n").encode())
        read_terminal(terminal, "ready")
        for typed, completed in (
            ("mpies train swimm\t", "<mpies><train><swimmer>"),
            # The key ends with = and no space, so that its value can follow.
            ("mpies train cartpole solver.sigma_d\t0.5", "<mpies><train><cartpole><solver.sigma_decay=0.5>"),
            ("mpies train own.yaml solver.kind=pg\t", "<mpies><train><own.yaml><solver.kind=pgpe>"),
            ("mpies plot runs/sw\t", "<mpies><plot><runs/sweep/second>"),
            ("mpies simul\t", "<mpies><simulate>"),
        ):
            os.write(terminal, f"{typed}\x01printf '<%s>' \n".encode())  # Ctrl-A: to the line's beginning
            assert completed in read_terminal(terminal, r"<mpies>[^\r\n]*>|not found"), shell
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, 9)
        os.waitpid(child, 0)
        os.close(terminal)
