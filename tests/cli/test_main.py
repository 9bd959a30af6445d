"""The command line is quick to start, knows its commands, checks configs, and refuses what is wrong in one line."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest
import yaml
from click.testing import CliRunner

from mpies.cli.main import main
from mpies.cli.parameters import user_errors
from mpies.core.threads import VARIABLES
from tests.support import CARTPOLE, HOME, assert_refused, invoke, wait_for

COMMANDS = [[name] for name in main.commands] + [["launch", name] for name in main.commands["launch"].commands]
LONG = "o" * 300
TAKE_CONFIGS = "train", "check", "doctor", "verify", "bench", "simulate", "launch slurm", "launch k8s"


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


def test_other_commands_leave_signals_alone():
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


def test_check_prints_a_valid_config_and_what_it_costs(write_config):
    outcome = invoke("check", write_config(CARTPOLE), "solver.sigma=0.5", code=0)
    resolved = yaml.safe_load(outcome.stdout.split("\n\n")[0])
    assert resolved["solver"]["sigma"] == 0.5 and resolved["stop"]["generations"] == 10
    needs = outcome.stdout.split("\n\n")[1]
    parts = "parameters              58\n", "noise of a generation   1,856 B, 58 normals", "memory of a node        "
    assert all(part in needs for part in parts), needs


def test_the_schema_takes_the_configs_that_mpies_takes():
    jsonschema = pytest.importorskip("jsonschema")
    validator = jsonschema.Draft202012Validator(json.loads(invoke("check", "--schema").stdout))
    recipes = [yaml.safe_load(path.read_text()) for path in sorted((HOME / "configs").rglob("*.yaml"))]
    solver = {"population": 32, "sigma": 0.3, "optimizer": {"kind": "adam", "learning_rate": 0.2}}
    whole = {"policy": {"hidden": []}, "solver": solver, "noise": {"size": 100_000}, "stop": {"generations": 20}}
    thermostat = {"environment": {"id": "thermostat.py:Room", "max_steps": 50}} | whole
    cartpole = {"environment": {"id": "CartPole-v1"}}
    brief = [{"solver": {}}, {"noise": "low_rank", "policy": "lstm"}, {"solver": {"optimizer": "sgd"}}]
    own = [{"solver": {"kind": kind, "population": 8}} for kind in ("nevergrad:PSO", "path/to/file.py:Class")]
    for values in (*recipes, thermostat, *(cartpole | section for section in (*brief, *own))):
        assert [error.message for error in validator.iter_errors(values)] == [], values
    misspelt = [{"policy": {"hiden": []}}, {"noise": "low_rang"}, {"solver": {"kind": "snez"}}, {"solver": "x.py:X"}]
    for wrong in (*misspelt, {"policy": {"kind": "mlp", "units": 3}}, {"solver": {"sigma": "x"}}):
        assert not validator.is_valid(cartpole | wrong), wrong
    assert len(recipes) > 30


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("tain", ("no such command 'tain'", "--help")),
        ("train c.yaml --ranks 0", "'--ranks': 0 is not in the range 1<=x<=10000000; see"),
        ("train cartpole --sigma 3", "no such option '--sigma'; settings are KEY=VALUE, such as "),
        ("check cartpole --rank 3", "did you mean '--ranks'? Settings are KEY=VALUE, such as "),
        (["train", "c.yaml", "--hosts", ""], "--hosts is empty; name the hosts, or leave it out"),
        ("simulate 9,9,1,0 --ranks 1..10000000000", "--ranks must be at most 1,000,000, but is '1..1000"),
        (f"check {LONG}", "cannot be read (File name too long); give the path of a YAML file"),
        (f"evaluate {LONG}", "cannot be read or written (File name too long); give another path"),
        (["export", "\x1b[31m\x07"], "missing option '--to'"),
        (["check", "\x1b[31mred\n\x07"], "mpies: \\x1b[31mred \\x07: cannot be read"),
        (["evaluate", "\x1b[31m"], "\\x1b[31m: cannot be read"),
        ("train swimer", "swimer: cannot be read (No such file or directory); the nearest is swimmer"),
        (
            "train x.yaml --seeds 20240101",
            ("seeds: 1..20240101 are 20,240,101", " the one seed 20240101 give 20240101.."),
        ),
        ("train x.yaml --seeds 5..1", ("seeds must be a number such as 5, a range such as", "but is the text '5..1'")),
        ("train x.yaml --seeds 2 seed=3", "--seeds and seed= cannot be used together; leave one out"),
        ("verify x.yaml --ranks 1,0", "--ranks must be like 1,2,36 or 1..10000, but is '1,0'"),
        ("play run --member 3", "--member must be GENERATION,NUMBER such as 12,3, but is '3'"),
        ("dashboard", "runs: is not a folder; give the one that contains your runs"),
        ("doctor --out absent", "--out absent: is not a folder; give an existing one, such as a shared volume"),
        ("train cartpole --min-ranks 4", "--min-ranks needs several hosts: --hosts or --hostfile"),
        ("train cartpole --launcher srun", "--launcher needs several hosts"),
        ("train cartpole --hosts a:2 --launcher srun", "--launcher needs --hosts slurm; leave it out"),
        ("train cartpole --restarts 3", "--restarts needs ranks to start: --ranks, --hosts or --hostfile"),
        ("play run --member 3,1 --episodes 5", "--episodes has no effect with --member; leave it out"),
        ("plot run --umap", "--umap needs --trajectory; add it, or leave it out"),
        ("plot run --trajectory --scale log", "--scale has no effect with --trajectory; leave it out"),
        ("runs --prune run --json", "--json has no effect with --prune; leave it out"),
        ("runs absent", "absent: there is no such folder; give the one that contains your runs"),
        ("runs a b", "runs accepts one folder; to remove runs, use mpies runs --prune RUN ..."),
        ("runs --yes", "--yes needs --prune; add it, or leave it out"),
        ("runs --prune", "--prune needs the runs to remove"),
        ("check", "check needs a config, such as the path of a file or cartpole, or --schema or --keys"),
        ("train cartpole --ranks x", "invalid value for '--ranks': 'x' is not a whole number; see "),
        ("plot run --width x", "invalid value for '--width': 'x' is not a number; see "),
        ("compare run --width nan", "invalid value for '--width': 'nan' is not a number; see"),
        ("train x.yaml --seeds 0", "seeds must be a number such as 5"),
        ("train cartpole --dry-run --hosts h1:2 --ranks 8", "--ranks 8 is more than the 2 slots of h1"),
        ("sweep cartpole --dry-run --hosts h1:8 --ranks 2 --min-ranks 4", "--min-ranks 4 is more than --ranks 2"),
        *((f"{command} hoper", ("hoper: cannot be read", "; the nearest is hopper\n")) for command in TAKE_CONFIGS),
    ],
)
def test_a_wrong_use_is_one_line_and_writes_nothing(arguments, words, here):
    outcome = invoke(*(arguments.split() if isinstance(arguments, str) else arguments))
    assert_refused(outcome, *([words] if isinstance(words, str) else words))
    assert outcome.stderr.rstrip("\n").isprintable()
    assert not list(here.iterdir())


def test_output_that_finds_no_room_is_one_line():
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "mpies", "check", "cartpole"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    words = "mpies: the output cannot be written (No space left on device); make room\n"
    assert (done.returncode, done.stderr) == (1, words)


def test_without_a_command_the_commands_are_listed():
    for arguments in ([], ["launch"]):
        outcome = invoke(*arguments)
        assert outcome.code == 2 and outcome.stderr.startswith("Usage: ")
    assert invoke("--version").code == invoke("--help").code == invoke("train", "-h").code == 0


def test_a_run_directory_with_too_long_a_name_is_refused(here, write_config):
    config = write_config("environment: {id: 'function:sphere', dimension: 2}\nnoise: {size: 1000}\n")
    overrides = ["environment.dimension=2"] * 30  # are part of the default name
    for words in (["--out", LONG], ["--out", f"{LONG}/below"], overrides):
        assert_refused(invoke("train", config, *words), "File name too long", "another")


def test_a_file_whose_name_is_no_text_is_named_all_the_same(run_mpies):
    name = os.fsdecode(b"\xff.yaml")
    assert_refused(run_mpies(0, "check", name), r"\udcff.yaml: cannot be read (No such file or directory)")
