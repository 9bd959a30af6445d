"""Whatever is wrong with a command line is one line that begins with `mpies:`, and exit code 2."""

import os
import subprocess
import sys

import pytest

from tests.support import assert_refused, invoke

LONG = "o" * 300
TAKE_CONFIGS = "train", "check", "doctor", "verify", "bench", "simulate", "launch slurm", "launch k8s"


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
