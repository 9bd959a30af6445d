"""The command line is quick to start, knows its commands, and refuses what it cannot read."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from mpies.cli.main import main
from mpies.cli.parameters import user_errors
from mpies.core.threads import VARIABLES
from tests.support import CARTPOLE, assert_refused, invoke, wait_for

COMMANDS = [[name] for name in main.commands] + [["launch", name] for name in main.commands["launch"].commands]


def run_python(program, **variables):
    """The output of a Python program, started without any limit on threads."""
    environment = {name: value for name, value in os.environ.items() if name not in VARIABLES} | variables
    return subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)


@pytest.mark.parametrize("command", [[], *COMMANDS])
def test_each_command_and_each_of_its_options_explains_itself(command):
    ended = CliRunner().invoke(main, [*command, "--help"])
    assert ended.exit_code == 0 and ended.stdout.startswith("Usage: ")
    found = main
    for name in command:
        found = found.commands[name]
    assert found.help
    for option in found.params:
        assert option.param_type_name == "argument" or option.help, option.name


@pytest.mark.parametrize("module", ["mpies.cli.main", "mpies.launch.supervisor"])
def test_help_and_the_supervisor_import_nothing_that_is_slow(module):
    slow = "{'numpy', 'pydantic', 'yaml', 'mpi4py', 'rich', 'gymnasium'}"
    program = f"import sys, {module}; print(*{slow} & sys.modules.keys())"
    assert run_python(program).stdout.split() == []


WATCH_NUMPY = """
import os, sys
from mpies.cli.main import main
from mpies.cli.parameters import user_errors

class Watch:
    def find_spec(self, name, path=None, target=None):
        if name == "numpy":
            print("NumPy comes to", os.environ.get("OPENBLAS_NUM_THREADS"), "threads")

sys.meta_path.insert(0, Watch())
main(["check", "--keys"])
"""


@pytest.mark.parametrize(("variables", "count"), [({}, "1"), ({"OMP_NUM_THREADS": "3"}, "3")])
def test_a_command_limits_threads_before_numpy_is_imported(variables, count):
    assert run_python(WATCH_NUMPY, **variables).stdout.splitlines()[0] == f"NumPy comes to {count} threads"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGUSR1])
def test_a_signal_while_training_is_imported_is_a_stop(number, write_config, tmp_path):
    command = [sys.executable, "-m", "mpies", "train", write_config(CARTPOLE), "--out", "run"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        status = Path(f"/proc/{process.pid}/status")
        caught = 1 << signal.SIGUSR1 - 1  # its handler is the last
        wait_for(lambda: int(re.search(r"SigCgt:\s*(\w+)", status.read_text())[1], 16) & caught, process)
        process.send_signal(number)
        assert process.stderr.read() == ""
    assert process.returncode == 75 and not (tmp_path / "run").exists()


def test_other_commands_leave_signals_alone(tmp_path):
    program = (
        "import signal, sys, mpies.__main__; sys.argv[1:] = ['--version']\n"
        "try: mpies.__main__.main()\n"
        "finally: print(signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL)"
    )
    assert run_python(program).stdout.splitlines()[-1] == "True"


def test_without_a_working_directory_a_relative_path_is_refused(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    for line in ("train cartpole", "train cartpole --ranks 2", "check cartpole", "runs", "doctor cartpole"):
        assert_refused(invoke(*line.split()), "cannot be read", "(the working directory was removed)")


def test_an_error_of_mpies_itself_keeps_its_traceback():
    @click.command()
    @user_errors
    def fail():
        raise ZeroDivisionError

    assert isinstance(CliRunner().invoke(fail).exception, ZeroDivisionError)


def test_options_and_files_are_completed():
    for words, offered in (("mpies train --resume m", "plain,must"), ("mpies train configs/ca", "file,configs/ca")):
        asked = {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1), "_MPIES_COMPLETE": "bash_complete"}
        done = CliRunner().invoke(main, prog_name="mpies", env=asked)
        assert (done.exit_code, done.stdout, done.stderr) == (0, f"{offered}\n", "")
