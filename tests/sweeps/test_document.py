"""Each command of docs/sweeps.md runs, one after the other, with the files that the page shows."""

import ast
import re
import shlex
import textwrap

import pytest
import yaml

import mpies
from tests.support import HOME, invoke, mpiexec_or_skip
from tests.test_documents import commands

PAGE = HOME / "docs" / "sweeps.md"


@pytest.fixture
def run(here):
    """Function of a command that runs it in a folder with the sweep files of the page.  Returns what it printed."""
    for name, text in re.findall(r"`(\w+\.yaml)`:\n\n((?:    .*\n|\n)+)", PAGE.read_text()):
        (here / name).write_text(textwrap.dedent(text))

    def run_command(command):
        words = shlex.split(command)
        assert words[0] == "mpies"
        return invoke(*words[1:], code=0).stdout

    return run_command


def shortened(command):
    """The command with fewer generations, into the folder that it would write, or where they take minutes dry."""
    if re.match("mpies sweep cartpole (?!.*--dry)", command):
        out = " --out runs/cartpole_sweep_solver.sigma" if "solver.sigma" in command else ""
        return f"{command} stop.generations=2 evaluation.episodes=3{out}"
    return f"{command} --dry-run" if command.startswith("mpies sweep lunar_lander") else command


def test_the_commands_run_one_after_the_other(run, tmp_path):
    mpiexec_or_skip()
    shown = commands(PAGE)
    assert len(shown) >= 7
    printed = {command: run(shortened(command)) for command in shown}
    assert next(text for command, text in printed.items() if "--ranks 128" in command).count(" new ") == 200
    assert (tmp_path / "comparison" / "ranking.csv").exists()


def test_what_the_page_has_slurm_start_and_its_file_are_sweeps(run):
    found = re.findall(r"^    sbatch .* slurm/(sweep\.sbatch) (.+)$", PAGE.read_text(), re.MULTILINE)
    assert len(found) >= 2
    for script, words in {*found}:
        assert (HOME / "slurm" / script).exists()
        assert "200, of which 200 are to be trained" in run(f"mpies sweep {words} --dry-run")
    assert "60, of which 60 are to be trained" in run("mpies sweep my_sweep.yaml --dry-run")


def test_the_python_of_the_page_finds_the_settings_that_it_shows(here):
    block = re.search(r"## Python\n\n((?:    .*\n)+)", PAGE.read_text())[1]
    short = yaml.safe_load((HOME / "configs" / "cartpole.yaml").read_text())
    short |= {"environment": {"id": "CartPole-v1", "max_steps": 100}, "evaluation": {"every": 3, "episodes": 10}}
    short |= {"stop": {"generations": 3}}
    names = {"mpies": mpies, "short": short}
    exec(textwrap.dedent(block).replace(", ranks=4", "").replace('"cartpole"', "short"), names)
    shown = re.search(r"found\.best +# (\{.*\})", block)[1]
    assert names["found"].best == ast.literal_eval(shown)
