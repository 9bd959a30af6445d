"""Runs commands of mpies in processes that are forked from one that has imported all they need.

A start of Python with these imports takes a second of processor time, a fork takes some milliseconds.  Each command has
a process, variables, a working directory and an end of its own, as `python -m mpies` has; the tests in
tests/test_importing.py and those of ranks that are killed start that.
"""

import atexit
import contextlib
import functools
import gc
import importlib.metadata
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback

# What Python, the loader or NumPy read when they start: a command with other values needs a start of its own.
AT_START = ("PYTHON", "LD_PRELOAD", "LC_", "LANG", "OMP_", "OPENBLAS_", "MKL_", "COVERAGE", "MALLOC_")
MODULES = (
    *("mpies.launch.ranks.rank", "mpies.launch.train_again", "mpies.launch.forecast.dry_run"),
    *("mpies.sweeps.train_sweep", "mpies.api.train", "mpies.envs.gymnasium_env"),
    *("gymnasium", "envpool", "h5py", "email.message", "numpy"),
)


def _at_start(variables):
    return {name: value for name, value in variables.items() if name.startswith(AT_START)}


class WarmStart:
    """The process that has imported mpies.  It is started with the first command, and ends with this one."""

    def __init__(self, variables):
        """variables: of the process that has imported mpies."""
        self._variables, self._server = variables, None
        self._folder = tempfile.TemporaryDirectory()
        atexit.register(self.end)

    def fits(self, variables):
        """Whether a command with these variables can be forked: what is read at a start is the same."""
        return _at_start(variables) == _at_start(self._variables)

    def path(self):
        """Of the socket that takes requests."""
        if self._server is None:
            command = [sys.executable, os.path.abspath(__file__), os.path.join(self._folder.name, "socket")]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            self._server = subprocess.Popen(command, env=self._variables, **pipes)
            self._server.stdout.readline()  # it listens
        return self._server.args[2]

    def start(self, arguments, cwd, variables, stdout=subprocess.PIPE):
        """Start a command.  Returns its Popen, whose standard output and error are pipes of text."""
        pipes = {"stdin": subprocess.DEVNULL, "stdout": stdout, "stderr": subprocess.PIPE}
        return Forked(self.path(), arguments, cwd=str(cwd), env=variables, text=True, errors="replace", **pipes)

    def run(self, arguments, cwd, variables, timeout):
        """The exit code, standard output and standard error of a command.  Raises subprocess.TimeoutExpired."""
        process = self.start(arguments, cwd, variables)
        try:
            stdout, stderr = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        return process.returncode, stdout, stderr

    def end(self):
        if self._server is not None:
            self._server.communicate()  # its seconds are among those of this process
            self._server = None


class Forked(subprocess.Popen):
    """A Popen of `mpies` with these arguments.  What waits for the process in its place tells how it ended."""

    def __init__(self, path, arguments, **options):
        self._path = path
        super().__init__(arguments, **options)

    def _execute_child(self, arguments, *given):
        cwd, variables, pipes = given[4], given[5], given[9:15]
        self._keeper = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._keeper.connect(self._path)
        request = json.dumps([arguments, cwd, dict(variables)]).encode()
        socket.send_fds(self._keeper, [request], [pipes[0], pipes[3], pipes[5]])
        self.pid = int.from_bytes(self._keeper.recv(8), "little")
        self._child_created = True
        self._close_pipe_fds(*pipes)

    def _try_wait(self, flags):
        if flags and not select.select([self._keeper], [], [], 0)[0]:
            return 0, 0
        status = int.from_bytes(self._keeper.recv(8), "little")
        self._keeper.close()
        return self.pid, status

    def _internal_poll(self, *_, **__):
        if self.returncode is None and self._waitpid_lock.acquire(False):
            try:
                pid, status = self._try_wait(os.WNOHANG)
                if pid:
                    self._handle_exitstatus(status)
            finally:
                self._waitpid_lock.release()
        return self.returncode


def serve(path):
    """Fork for each request.  Returns in the child, whose standard streams, directory and variables are the asked."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(path)
    listener.listen(64)
    signal.signal(signal.SIGCHLD, reap)
    print("listens", flush=True)
    while True:
        if 0 in select.select([listener, 0], [], [])[0]:  # standard input has ended, and so have the tests
            os._exit(0)
        client = listener.accept()[0]
        if os.fork() == 0:
            break
        client.close()
    listener.close()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    content, descriptors, *_ = socket.recv_fds(client, 2**20, 3)
    if child := os.fork():
        keep(child, client, descriptors)
    client.close()
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    sys.stdin, sys.stdout = open(0), open(1, "w")  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace")  # noqa: SIM115
    arguments, cwd, variables = json.loads(content)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(variables)
    sys.argv[1:] = arguments
    sys.path.insert(0, os.getcwd())  # as -m does
    sys.modules["numpy"].random.seed()


def reap(*_):
    """Wait for those that have ended."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def keep(child, client, descriptors):
    """Wait for a process, and tell the client how it ended; kill it where the client is gone."""
    for descriptor in (*descriptors, 0, 1, 2):
        os.close(descriptor)
    ended = os.pidfd_open(child)
    client.send(child.to_bytes(8, "little"))
    if ended not in select.select([ended, client], [], [])[0]:
        os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    with contextlib.suppress(OSError):
        client.send(status.to_bytes(8, "little"))
    os._exit(0)


if __name__ == "__main__":
    from runpy import run_module

    from mpies.core.threads import limit_threads

    del sys.path[0]  # this folder
    limit_threads()
    for module in MODULES:
        with contextlib.suppress(ModuleNotFoundError):  # EnvPool is an extra
            importlib.import_module(module)
    assert "mpi4py.MPI" not in sys.modules
    importlib.metadata.version = functools.cache(importlib.metadata.version)
    # What the first use takes a tenth of a second for: what each package says of itself, and the schema of the keys.
    sys.modules["mpies.runs.machine"].versions()
    sys.modules["mpies.config.loading"].validate_config({"environment": {"id": "CartPole-v1"}}, "")
    gc.freeze()
    serve(sys.argv[1])
    code = 0
    try:
        run_module("mpies", run_name="__main__", alter_sys=True)
    except SystemExit as over:
        code = over.code if isinstance(over.code, int) else int(bool(over.code))
        if isinstance(over.code, str):
            print(over.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
        code = 1
    # As Python ends, but without taking apart what was imported, which takes longer than the rest.
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(code)
