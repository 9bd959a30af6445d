"""The fixtures of all tests: real MPI runs, of one test or of the command line."""

import contextlib
import fcntl
import functools
import gc
import hashlib
import importlib.metadata
import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from mpies.comm import mpiexec
from mpies.runs.formats.metrics import read_digests
from tests.support import HOME, INSIDE, WARM_START, Outcome, mpiexec_or_skip, skip_without_programs, train

ALLOWED_SKIPS = Path(__file__).with_name("allowed_skips.txt")

# A job in the background of a shell ignores SIGINT, and its children would too; the tests send it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


HANDLERS = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)}


def put_handlers_back():
    """Undo what commands have done to the handlers of signals in this process: children inherit ignored signals."""
    for number, handler in HANDLERS.items():
        if handler is not None:  # not Python's own; it could not be put back
            signal.signal(number, handler)


@pytest.fixture(autouse=True)
def signal_handlers():
    """Each test has the handlers that the process began with, also after fixtures of a module that ran commands."""
    put_handlers_back()
    yield
    put_handlers_back()


def pytest_configure(config):
    config.addinivalue_line("markers", "mpi(n): run this one test on n ranks of a real mpiexec")
    config.addinivalue_line("markers", "k8s: run the manifests or check them against Kubernetes; see make test-k8s")
    config.addinivalue_line("markers", "nodes: lose nodes in network namespaces, as root; see make test-nodes")
    config.addinivalue_line("markers", "browser: look at the live page in a headless Chromium; see make test-page")
    config.addinivalue_line("markers", "flaky(reruns, reason): needs time or luck; may run twice, at most five tests")
    config.addinivalue_line("markers", "wheel: install the wheel into fresh environments; see make test-wheel")


def pytest_collection_finish():
    """What was imported stays: collections of garbage need not look at it, nor each run at what packages say."""
    gc.freeze()
    importlib.metadata.version = functools.cache(importlib.metadata.version)


def pytest_runtest_setup(item):
    if flaky := item.get_closest_marker("flaky"):
        item.user_properties.append(("flaky", flaky.kwargs["reason"]))


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session):
    """In .ci/run: write what was skipped and what may run twice into a file, and fail where a reason to skip is new."""
    if "MPIES_CI_REPORT" not in os.environ or hasattr(session.config, "workerinput"):
        return
    found = session.config.pluginmanager.get_plugin("terminalreporter").stats
    skipped = Counter(report.longrepr[2].removeprefix("Skipped: ") for report in found.get("skipped", ()))
    allowed = [line for line in ALLOWED_SKIPS.read_text().splitlines() if not line.startswith("#")]
    lines = [f"{count} skipped: {reason}" for reason, count in skipped.most_common()]
    new = [f"A NEW REASON TO SKIP: {one}" for one in skipped if not any(re.fullmatch(line, one) for line in allowed)]
    ran = [report for reports in found.values() for report in reports if hasattr(report, "user_properties")]
    again = {report.nodeid for report in found.get("rerun", ())}
    flaky = {(report.nodeid, reason) for report in ran for name, reason in report.user_properties if name == "flaky"}
    lines += [f"{'RAN TWICE' if test in again else 'may run twice'}: {test}: {why}" for test, why in sorted(flaky)]
    with open(os.environ["MPIES_CI_REPORT"], "a") as file:
        file.writelines(f"{line}\n" for line in [*lines, *new])
    if new:
        print("\n" + "\n".join(new), f"\nmend it, or add it to {ALLOWED_SKIPS}")
        session.exitstatus = session.exitstatus or 1


@pytest.fixture(scope="session", autouse=True)
def outcomes_on_ranks(tmp_path_factory):
    """The folder with the outcomes of tests marked mpi, which all workers of pytest-xdist share."""
    folder = tmp_path_factory.getbasetemp()
    return folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    if not ranks_of_test(pyfuncitem) or INSIDE in os.environ:
        return None
    mpiexec_or_skip()
    if failure := run_on_ranks(pyfuncitem, pyfuncitem.funcargs["outcomes_on_ranks"]):
        pytest.fail(failure, pytrace=False)
    return True


def ranks_of_test(item):
    """On how many ranks a test runs, 0 without MPI."""
    marker = item.get_closest_marker("mpi")
    return marker.args[0] if marker else 0


def run_on_ranks(item, folder):
    """Why a test failed on its ranks, or None.  folder: of outcomes.

    One mpiexec runs all tests on so many ranks, since its start takes seconds.  It ends with the first that fails;
    another one runs those that it did not come to.
    """
    ranks = ranks_of_test(item)
    file = folder / f"on-{ranks}-ranks"
    with open(file, "a+") as outcomes:
        fcntl.flock(outcomes, fcntl.LOCK_EX)  # another worker may run them now
        failures, ended = read_outcomes(file, ranks)
        if item.nodeid in failures or item.nodeid in ended:
            return failures.get(item.nodeid)
        others = [test for test in item.session.items if ranks_of_test(test) == ranks]
        others.sort(key=lambda test: ("finalize" in test.name, test.location[:2]))  # nothing runs behind finalize
        tests = [test.nodeid for test in others if test.nodeid not in {*failures, *ended}]
        inside = {INSIDE: str(file), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # plugins take a second
        python = [sys.executable, "-m", "mpi4py", "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
        command, limit = [mpiexec.find(), "-n", str(ranks), *python], 100 + 10 * len(tests)
        try:
            done = mpiexec.run(command, mpiexec.environment() | inside, item.config.rootpath, limit)
            failure = f"{done.stdout[-6000:]}\n{done.stderr[-3000:]}" if done.returncode else ""
        except subprocess.TimeoutExpired as error:
            failure = str(error)
        if failure:
            _, ended = read_outcomes(file, ranks)
            failed = next((test for test in tests if test not in ended), item.nodeid)
            outcomes.write(json.dumps({failed: f"failed on {ranks} ranks:\n{failure}"}) + "\n")
            outcomes.flush()
        return read_outcomes(file, ranks)[0].get(item.nodeid)


def read_outcomes(file, ranks):
    """The failures by test, and the tests that have ended well on all ranks."""
    failures, ended = {}, Counter()
    for line in map(json.loads, file.read_text().splitlines()):
        if isinstance(line, dict):
            failures |= line
        else:
            ended[line] += 1
    return failures, {test for test, count in ended.items() if count == ranks}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """In ranks: note what has ended well."""
    failed = item.session.testsfailed
    outcome = yield
    if INSIDE in os.environ and item.session.testsfailed == failed:
        with open(os.environ[INSIDE], "a") as file:
            file.write(json.dumps(item.nodeid) + "\n")
    return outcome


@pytest.fixture
def start_mpies(tmp_path):
    """Start `mpies` with these arguments in tmp_path; 0 ranks is one rank without MPI.  Returns a Popen.

    flags: of mpiexec.  program: what Python runs in place of `-m mpies`.  stdout: of a process without mpiexec.
    """
    started = []

    def start(ranks, *arguments, flags=(), program=("-m", "mpies"), stdout=subprocess.PIPE):
        arguments = [str(argument) for argument in arguments]
        if not ranks and program == ("-m", "mpies") and WARM_START.fits(variables := mpiexec.environment()):
            started.append(WARM_START.start(arguments, tmp_path, variables, stdout))
            return started[-1]
        command = [sys.executable, "-m", "mpies", *arguments]
        if ranks:
            command = mpiexec.command(mpiexec_or_skip(), ranks, arguments)
            command[1:1] = flags
        place = command.index("-m")
        command[place : place + 2] = program
        pipes = {"stdin": subprocess.DEVNULL, "stdout": stdout, "stderr": subprocess.PIPE, "text": True}
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
def run_mpies(start_mpies, tmp_path):
    """Run `mpies` to its end in tmp_path; code: with which it must end.  Returns an Outcome."""

    def run(ranks, *arguments, timeout=300, code=None):
        skip_without_programs(arguments)
        variables = mpiexec.environment()
        if not ranks or mpiexec.find() is None or not WARM_START.fits(variables):
            process = start_mpies(ranks, *arguments)
            stdout, stderr = process.communicate(timeout=timeout)
            return Outcome(process.returncode, stdout, stderr).ended(code)
        rank = [sys.executable, "-I", "-S", str(HOME / "tests" / "warm_rank.py"), *map(str, arguments)]
        variables["MPIES_TEST_SERVER"] = WARM_START.path()
        done = mpiexec.run([mpiexec.find(), "-n", str(ranks), *rank], variables, tmp_path, timeout)
        return Outcome(done.returncode, done.stdout, done.stderr).ended(code)

    return run


@pytest.fixture
def here(tmp_path, monkeypatch):
    """tmp_path, which is the working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def without_envpool(monkeypatch):
    """Function that lets EnvPool be absent from now on."""

    from mpies.envs import envpool_env

    def remove():
        monkeypatch.setattr(envpool_env, "_import_envpool", lambda: None)
        envpool_env.offers.cache_clear()

    yield remove
    envpool_env.offers.cache_clear()


@pytest.fixture
def write_config(tmp_path):
    """Write YAML text to a config file.  Returns its path."""

    def write(text, name="config.yaml"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


@pytest.fixture(scope="session")
def trained(outcomes_on_ranks):
    """Train YAML text on one rank, without MPI, once in all tests and in all workers of pytest-xdist.

    Returns a function from the text to the run's path.  Tests must not change that run; they copy it.
    """

    def run_of(config):
        folder = outcomes_on_ranks / f"trained-{hashlib.sha256(config.encode()).hexdigest()[:16]}"
        folder.mkdir(exist_ok=True)
        with open(folder / "lock", "a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # another worker may train it now
            if not (folder / "trained").exists():
                train(folder, config)
                (folder / "trained").touch()
        return folder / "run"

    return run_of


@pytest.fixture(scope="session")
def digests_of(trained):
    """A function from YAML text to the digest of each generation of its undisturbed run on one rank."""
    return lambda config: read_digests(trained(config))
