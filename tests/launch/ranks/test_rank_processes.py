"""What ranks print, read or not, and a user's code that takes signals, forks or hangs: training goes on."""

import io
import re
import signal
import subprocess
import sys
import termios
import time

import pytest

from mpies.comm import mpiexec
from mpies.launch.ranks.rank_processes import Forwarder
from mpies.runs.formats.metrics import read_metrics
from mpies.runs.reader import RunView
from tests.support import CARTPOLE, environment_module, read_files, run_on_terminal, wait_for

# Of an environment in room.py.
TRAIN = ["train", "room.py:Room", "--out", "run", "policy.hidden=[]", "noise.size=20000", "solver.population=8"]
TRAIN += ["evaluation.every=0", "evaluation.episodes=1"]
THREE = [*TRAIN, "solver.population=40", "evaluation.every=1", "checkpoint.every=1", "stop.generations=3"]
needs_mpirun = pytest.mark.skipif(mpiexec.find() is None, reason="no mpirun")


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


@needs_mpirun
def test_output_and_errors_that_nobody_reads_any_more(start_mpies, tmp_path):
    """The environment prints more errors than a pipe holds."""
    (tmp_path / "room.py").write_text(environment_module("Room", reset='os.write(2, 1000 * b"NOISE" + b"\\n")'))
    process = start_mpies(0, *THREE, "--ranks", "2", program=("-P", "-m", "mpies"))
    for pipe in (process.stdout, process.stderr):
        pipe.readline()
        pipe.close()
    assert process.wait(60) == 0
    assert RunView(tmp_path / "run").state() == "finished"


@pytest.mark.parametrize("command", [["train"], ["sweep", "--seeds", "2"]])
def test_a_full_disk(command, write_config, start_mpies):
    words = *command, "--out", "run", write_config(CARTPOLE)
    for _ in range(2):  # the second time it is complete
        with open("/dev/full", "w") as full:
            process = start_mpies(0, *words, stdout=full)
        _, stderr = process.communicate(timeout=60)
        assert process.returncode == 0 and "Traceback" not in stderr, stderr


@pytest.mark.parametrize("ranks", [[], pytest.param(["--ranks", "2"], marks=needs_mpirun)])
def test_closed_descriptors_are_not_taken_by_files_of_the_run(ranks, tmp_path):
    noise = 'os.write(1, b"NOISE"), os.write(2, b"NOISE")'
    (tmp_path / "room.py").write_text(environment_module("Room", reset=noise))
    closing = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", sys.executable, "-m", "mpies"]
    assert subprocess.run([*closing, *THREE, *ranks], cwd=tmp_path).returncode == 0
    assert RunView(tmp_path / "run").state() == "finished"
    assert not [path for path, content in read_files(tmp_path / "run").items() if b"NOISE" in content]


def screen(written):
    """The lines that a terminal shows after this text, of which it knows the control sequences that rich uses."""
    lines, row, column = [""], 0, 0
    for sequence, parameter, command, letter in re.findall(r"(\x1b\[\??([\d;]*)([A-Za-z]))|(.)", written, re.DOTALL):
        if command == "K" and parameter == "2":
            lines[row] = ""
        elif command == "A":
            row -= int(parameter or 1)
        elif sequence:
            continue
        elif letter == "\r":
            column = 0
        elif letter == "\n":
            row += 1
            if row == len(lines):
                lines.append("")
        else:
            lines[row] = lines[row][:column].ljust(column) + letter + lines[row][column + 1 :]
            column += 1
    return lines


def test_no_line_of_the_log_is_in_the_live_bar(tmp_path):
    """`stty tostop` stops no rank that prints: they are not in the foreground, so that Ctrl-C does not reach them."""
    # Three of ten episodes fail, each with another message, so that a generation logs several lines.  Episodes take so
    # long that the bar is drawn between generations.  The episode of the evaluation at the end does not fail.
    reset = "time.sleep(0.05)\nself.seed = seed"
    fail = 'raise RuntimeError(f"out of balance by {np.random.default_rng(self.seed).normal():.6f}")'
    step = f"if np.random.default_rng(self.seed).random() < 0.3: {fail}"
    (tmp_path / "room.py").write_text(environment_module("Room", reset=reset, step=step))
    words = ["--ranks", "2", "solver.population=16", "stop.generations=13", "stop.max_failures=0.9"]
    text = run_on_terminal(tmp_path, *TRAIN, *words, mode=termios.TOSTOP).decode(errors="replace")
    assert "all generations done" in text
    first = re.search("generation [1-5]: ", text)  # a busy machine may draw the bar late
    assert first and first.start() < text.index("generation 6, member") < text.rindex("generation 11: "), text
    lines = screen(text)
    logged = [line for line in lines if "out of balance" in line]
    assert len(logged) > 20, lines
    assert [line for line in logged if not line.startswith(("WARNING", "ERROR")) or "━" in line] == []


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


def test_reports_of_mpirun_are_left_out_and_nothing_else():
    for lines, expected in (
        # A report of an abort, behind an error that has not ended.
        ([f"mpies: no{DASHES}", "MPI_ABORT was invoked on rank 1\n", DASHES, "last\n"], ["mpies: no\n", "last\n"]),
        # What Open MPI says of a barrier, with its empty line.
        (["\n", "one\n", BARRIER, "\n", BARRIER, "\n", "\n", "two\n"], ["\n", "one\n", "\n", "two\n"]),
        # Dashes of a user's.
        ([SHORT, "mine\n", *ENDED, "goes on\n", SHORT], [SHORT, "mine\n", "goes on\n", SHORT]),
    ):
        written = forward(lines)
        assert [line for part in written for line in part] == expected
        assert written[0] == expected[:1]  # at once


@pytest.fixture
def start(tmp_path, start_mpies):
    """Start `mpies train` of an environment with these lines in its methods, in a folder of its own."""

    def start(*arguments, first="pass", reset="pass", step="pass", **options):
        (tmp_path / "room.py").write_text(environment_module("Room", first, reset, step, length=4))
        return start_mpies(0, *TRAIN, *arguments, **options)

    return start


@pytest.mark.parametrize(
    ("first", "ranks"),
    [
        ("threading.Thread(target=time.sleep, args=(1000,)).start()", []),
        ("import atexit; atexit.register(time.sleep, 1000)", []),
        ("import sys; sys.stdout.close()", ["--ranks", "2"]),
        ("import sys; sys.stdout = type('Log', (), {'write': lambda self, text: len(text)})()", []),
    ],
)
def test_a_run_ends_whatever_goes_on_behind_it_and_standard_output_is(start, first, ranks, tmp_path, monkeypatch):
    """Nor does a file of the folder stand for Python's, or is a home needed."""
    (tmp_path / "queue.py").write_text("mine = 1")
    monkeypatch.delenv("HOME", raising=False)
    job = start("stop.generations=1", *ranks, first=first, program=("-P", "-m", "mpies"))
    assert job.wait(60) == 0, job.stderr.read()
    assert (tmp_path / "run/finished.yaml").exists()


@pytest.mark.parametrize("number", ["SIGINT", "SIGUSR1"])
def test_a_signal_that_an_environment_has_taken_stops_the_run(start, number, tmp_path):
    take = f"Room.episodes == 50 and (signal.signal(signal.{number}, print), signal.raise_signal(signal.{number}))"
    first = f"signal.signal(signal.{number}, print)"
    assert start("stop.generations=1000", first=first, reset=take).wait(60) == 75
    assert 0 < len(read_metrics(tmp_path / "run")) < 20


def test_a_second_signal_ends_compiled_code_that_hangs(start, tmp_path):
    job = start("stop.generations=1000", step="Room.episodes > 100 and sum(range(10**14))")
    wait_for(lambda: len(read_metrics(tmp_path / "run")) > 3, job)
    time.sleep(1)  # the next generation begins, and hangs
    job.send_signal(signal.SIGTERM)
    with pytest.raises(subprocess.TimeoutExpired):
        job.wait(2)
    job.send_signal(signal.SIGTERM)
    assert job.wait(60) == -signal.SIGTERM


def test_a_forked_child_that_has_a_signal_or_starts_no_program_ends_alone(start, tmp_path):
    ended = "(signal.signal(signal.SIGTERM, lambda *_: os._exit(0)), signal.raise_signal(signal.SIGTERM))"
    signalled = f"Room.episodes == 9 and (os.fork() and os.wait() or {ended})"
    failing = "Room.episodes == 19 and os.fork() == 0 and os.execvp('/no/such/program', ['x'])"
    job = start("stop.generations=20", reset=f"{signalled}\n{failing}")
    assert job.wait(60) == 0  # also of the child's pipe to the test, which a clone would hold open
    assert job.stderr.read() == ""
    assert len(read_metrics(tmp_path / "run")) == 20


def test_many_short_steps_are_ended_by_the_limit_of_an_episode(start):
    wait = "time.sleep(0.001); self.steps = 0"
    job = start("stop.generations=1", "environment.episode_timeout=0.3", "stop.max_failures=1", step=wait)
    assert job.wait(60) == 1 and "took more than 0.3 s" in job.stderr.read()
