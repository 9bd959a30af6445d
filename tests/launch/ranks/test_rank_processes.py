"""What ranks print: mpirun's own reports are left out, and output that nobody reads or that is closed ends nothing."""

import io
import subprocess
import sys

import pytest

from mpies.comm import mpiexec
from mpies.launch.ranks.rank_processes import Forwarder
from mpies.runs.reader import RunView
from tests.support import CARTPOLE

NOISY = """
import os, gymnasium, numpy as np

class Noisy(gymnasium.Env):
    observation_space, action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32), gymnasium.spaces.Discrete(2)
    def reset(self, seed=None, options=None):
        os.write(1, b"NOISE"), os.write(2, b"NOISE")
        return np.zeros(2, np.float32), {}
    def step(self, action):
        return np.ones(2, np.float32), float(action), True, False, {}
"""
RANKS = [[], pytest.param(["--ranks", "2"], marks=pytest.mark.skipif(mpiexec.find() is None, reason="no mpirun"))]


def mpies(*arguments):
    return [sys.executable, "-m", "mpies", *map(str, arguments)]


@pytest.mark.parametrize(("command", "ranks"), [(["train"], "0"), (["train"], "2"), (["sweep", "--seeds", "3"], "2")])
@pytest.mark.skipif(mpiexec.find() is None, reason="no mpirun")
def test_a_pipe_that_nobody_reads_any_more(command, ranks, write_config, tmp_path):
    config = write_config(CARTPOLE)
    started = [] if ranks == "0" else ["--ranks", ranks]
    words = mpies(*command, *started, "--out", "run", config, "stop.generations=60")
    with subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        process.stdout.readline()
        process.stdout.close()
        stderr = process.stderr.read()
    assert process.returncode == 0 and "Traceback" not in stderr, stderr
    assert stderr.count("restart ") <= 1
    runs = [tmp_path / "run"] if command == ["train"] else [tmp_path / "run" / f"seed={seed}" for seed in (1, 2, 3)]
    assert [RunView(run).state() for run in runs] == ["finished"] * len(runs)


@pytest.mark.skipif(mpiexec.find() is None, reason="no mpirun")
def test_standard_error_that_nobody_reads_any_more(write_config, tmp_path):
    """The environment prints more on it than a pipe holds."""
    (tmp_path / "noisy.py").write_text(NOISY.replace('b"NOISE")\n', '1000 * b"NOISE" + b"\\n")\n'))
    config = write_config(
        "environment: {id: 'noisy.py:Noisy'}\npolicy: {hidden: []}\nsolver: {population: 40}\nnoise: {size: 1000}\n"
        "evaluation: {every: 0, episodes: 2}\nstop: {generations: 3}\n"
    )
    words = mpies("train", "--ranks", "2", "--out", "run", config)
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    with subprocess.Popen(words, cwd=tmp_path, **pipes) as process:
        process.stderr.readline()
        process.stderr.close()
        try:
            assert process.wait(60) == 0
        finally:
            process.kill()
    assert RunView(tmp_path / "run").state() == "finished"


@pytest.mark.parametrize("command", [["train"], ["sweep", "--seeds", "2"]])
def test_a_full_disk(command, write_config, tmp_path):
    with open("/dev/full", "w") as full:
        words = mpies(*command, "--out", "run", write_config(CARTPOLE))
        for _ in range(2):  # the second time it is complete
            done = subprocess.run(words, cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True)
            assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr


@pytest.mark.parametrize("ranks", RANKS)
def test_closed_descriptors_are_not_taken_by_files_of_the_run(ranks, write_config, tmp_path):
    (tmp_path / "noisy.py").write_text(NOISY)
    config = write_config(
        "environment: {id: 'noisy.py:Noisy'}\npolicy: {hidden: []}\nsolver: {population: 4}\nnoise: {size: 1000}\n"
        "evaluation: {every: 1, episodes: 2}\ncheckpoint: {every: 1}\nstop: {generations: 3}\n"
    )
    shell = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh"]
    assert subprocess.run([*shell, *mpies("train", config, "--out", "run", *ranks)], cwd=tmp_path).returncode == 0
    assert RunView(tmp_path / "run").state() == "finished"
    assert not [path for path in (tmp_path / "run").rglob("*") if path.is_file() and b"NOISE" in path.read_bytes()]


def test_what_follows_a_users_line_that_looks_like_the_beginning_of_a_report_is_not_held_back():
    lines, written = ["-" * 74 + "\n", *(f"line {number}\n" for number in range(1000))], []
    Forwarder(io.StringIO("".join(lines)), written.append).run()
    assert [line for part in written for line in part] == lines and len(written) > 800


def test_a_report_of_an_abort_behind_an_error_that_has_not_ended_is_left_out():
    dashes, written = "-" * 74, []
    text = f"mpies: it is wrong{dashes}\nMPI_ABORT was invoked on rank 1\n{dashes}\nlast\n"
    forwarder = Forwarder(io.StringIO(text), written.extend)
    forwarder.run()
    assert written == ["mpies: it is wrong\n", "last\n"]


def test_what_open_mpi_says_of_a_barrier_is_left_out_with_its_empty_line():
    noise = "NBC_Progress: an error 75 was found during schedule 0x15767360 at row-offset 0 - aborting the schedule\n"
    lines, written = ["\n", "one\n", noise, "\n", noise, "\n", "\n", "two\n"], []
    Forwarder(io.StringIO("".join(lines)), written.extend).run()
    assert written == ["\n", "one\n", "\n", "two\n"]


def test_a_users_line_of_dashes_is_none_of_mpiruns():
    report = ["-" * 74, "prterun detected that one or more processes exited with non-zero status", "-" * 74]
    lines = ["-" * 70, "my simulator", *report, "INFO rank 0: continues", "-" * 80]
    written = []
    Forwarder(io.StringIO("".join(f"{line}\n" for line in lines)), written.append).run()
    assert [line for part in written for line in part] == [f"{lines[at]}\n" for at in (0, 1, 5, 6)]
    assert written[0] == ["-" * 70 + "\n"]  # at once
