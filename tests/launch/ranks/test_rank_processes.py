"""What ranks print: mpirun's own reports are left out, and output that nobody reads or that is closed ends nothing."""

import io
import subprocess
import sys

import pytest

from mpies.comm import mpiexec
from mpies.launch.ranks.rank_processes import Forwarder
from mpies.runs.reader import RunView
from tests.support import CARTPOLE, environment_module

NOISY_CONFIG = """
environment: {id: 'noisy.py:Noisy'}
policy: {hidden: []}
solver: {population: 40}
noise: {size: 1000}
evaluation: {every: 1, episodes: 2}
checkpoint: {every: 1}
stop: {generations: 3}
"""
RANKS = [[], pytest.param(["--ranks", "2"], marks=pytest.mark.skipif(mpiexec.find() is None, reason="no mpirun"))]


def mpies(*arguments):
    return [sys.executable, "-m", "mpies", *map(str, arguments)]


@pytest.mark.parametrize(("command", "ranks"), [(["train"], 0), (["sweep", "--seeds", "3"], 2)])
def test_a_pipe_that_nobody_reads_any_more(command, ranks, write_config, start_mpies, tmp_path):
    words = *command, "--out", "run", write_config(CARTPOLE), "stop.generations=60"
    process = start_mpies(0, *words, *(["--ranks", ranks, "--restarts", "0"] if ranks else []))
    process.stdout.readline()
    process.stdout.close()
    stderr = process.stderr.read()
    assert process.wait(60) == 0 and "Traceback" not in stderr, stderr
    runs = [tmp_path / "run"] if command == ["train"] else [tmp_path / "run" / f"seed={seed}" for seed in (1, 2, 3)]
    assert [RunView(run).state() for run in runs] == ["finished"] * len(runs)


@pytest.mark.skipif(mpiexec.find() is None, reason="no mpirun")
def test_output_and_errors_that_nobody_reads_any_more(write_config, tmp_path):
    """The environment prints more errors than a pipe holds."""
    (tmp_path / "noisy.py").write_text(environment_module("Noisy", reset='os.write(2, 1000 * b"NOISE" + b"\\n")'))
    config = write_config(NOISY_CONFIG)
    words = mpies("train", "--ranks", "2", "--out", "run", config)
    with subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        for pipe in (process.stdout, process.stderr):
            pipe.readline()
            pipe.close()
        try:
            assert process.wait(60) == 0
        finally:
            process.kill()
    assert RunView(tmp_path / "run").state() == "finished"


@pytest.mark.parametrize("command", [["train"], ["sweep", "--seeds", "2"]])
def test_a_full_disk(command, write_config, start_mpies):
    words = *command, "--out", "run", write_config(CARTPOLE)
    for _ in range(2):  # the second time it is complete
        with open("/dev/full", "w") as full:
            process = start_mpies(0, *words, stdout=full)
        _, stderr = process.communicate(timeout=60)
        assert process.returncode == 0 and "Traceback" not in stderr, stderr


@pytest.mark.parametrize("ranks", RANKS)
def test_closed_descriptors_are_not_taken_by_files_of_the_run(ranks, write_config, tmp_path):
    noise = 'os.write(1, b"NOISE"), os.write(2, b"NOISE")'
    (tmp_path / "noisy.py").write_text(environment_module("Noisy", reset=noise))
    config = write_config(NOISY_CONFIG)
    shell = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh"]
    assert subprocess.run([*shell, *mpies("train", config, "--out", "run", *ranks)], cwd=tmp_path).returncode == 0
    assert RunView(tmp_path / "run").state() == "finished"
    assert not [path for path in (tmp_path / "run").rglob("*") if path.is_file() and b"NOISE" in path.read_bytes()]


def forward(lines):
    """What a Forwarder writes of these lines, in the parts in which it does."""
    written = []
    Forwarder(io.StringIO("".join(lines)), written.append).run()
    return written


def test_what_follows_a_users_line_that_looks_like_the_beginning_of_a_report_is_not_held_back():
    lines = ["-" * 74 + "\n", *(f"line {number}\n" for number in range(1000))]
    written = forward(lines)
    assert [line for part in written for line in part] == lines and len(written) > 800


DASHES, SHORT = "-" * 74 + "\n", "-" * 70 + "\n"
ENDED = [DASHES, "prterun detected that one or more processes exited with non-zero status\n", DASHES]
BARRIER = "NBC_Progress: an error 75 was found during schedule 0x15767360 at row-offset 0 - aborting the schedule\n"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        # A report of an abort, behind an error that has not ended.
        ([f"mpies: no{DASHES}", "MPI_ABORT was invoked on rank 1\n", DASHES, "last\n"], ["mpies: no\n", "last\n"]),
        # What Open MPI says of a barrier, with its empty line.
        (["\n", "one\n", BARRIER, "\n", BARRIER, "\n", "\n", "two\n"], ["\n", "one\n", "\n", "two\n"]),
        # Dashes of a user's.
        ([SHORT, "mine\n", *ENDED, "goes on\n", SHORT], [SHORT, "mine\n", "goes on\n", SHORT]),
    ],
)
def test_reports_of_mpirun_are_left_out_and_nothing_else(lines, expected):
    written = forward(lines)
    assert [line for part in written for line in part] == expected
    assert written[0] == expected[:1]  # at once
