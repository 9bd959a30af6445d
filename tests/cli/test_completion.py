"""TAB completes commands, options and files, by click's own means."""

import pytest
from click.testing import CliRunner

from mpies.cli.main import main


def complete(words, shell="bash"):
    """What mpies offers at the end of a command line, as lines."""
    asked = {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split(" ")) - 1)}
    done = CliRunner().invoke(main, prog_name="mpies", env={**asked, "_MPIES_COMPLETE": f"{shell}_complete"})
    assert (done.exit_code, done.stderr) == (0, "")
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("mpies simul", ["plain,simulate"]),
        ("mpies launch s", ["plain,slurm"]),
        ("mpies train --res", ["plain,--resume", "plain,--restarts"]),
        ("mpies train --resume m", ["plain,must"]),
        ("mpies train configs/ca", ["file,configs/ca"]),
        ("mpies plot runs/first runs/", ["file,runs/"]),
    ],
)
def test_commands_options_and_files_are_completed(words, offered):
    assert complete(words) == offered
