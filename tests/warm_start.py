"""Runs commands of mpies in processes that are forked from one that has imported all they need.

A start of Python with these imports takes a second of processor time, a fork takes some milliseconds.  Each command has
a process, variables, a working directory and an end of its own, as `python -m mpies` has; the tests in
tests/test_importing.py and those of signals start that.
"""

import atexit
import contextlib
import gc
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import traceback

# What Python, the loader or NumPy read when they start: a command with other values needs a start of its own.
AT_START = ("PYTHON", "LD_PRELOAD", "LC_", "LANG", "OMP_", "OPENBLAS_", "MKL_", "COVERAGE", "MALLOC_")
MODULES = (
    *("mpies.launch.rank", "mpies.launch.train_again", "mpies.launch.forecast.dry_run", "mpies.sweeps.train_sweep"),
    *("mpies.api.train", "mpies.envs.gymnasium_env", "gymnasium", "envpool", "h5py", "email.message"),
)


def _at_start(variables):
    return {name: value for name, value in variables.items() if name.startswith(AT_START)}


class WarmStart:
    """The process that has imported mpies.  It is started with the first command, and ends with this one."""

    def __init__(self, variables):
        """variables: of the process that has imported mpies."""
        self._variables, self._server = variables, None
        atexit.register(self.end)

    def fits(self, variables):
        """Whether a command with these variables can be forked: what is read at a start is the same."""
        return _at_start(variables) == _at_start(self._variables)

    def run(self, arguments, cwd, variables, timeout):
        """The exit code, standard output and standard error of a command.  Raises subprocess.TimeoutExpired."""
        if self._server is None:
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            command = [sys.executable, os.path.abspath(__file__)]
            self._server = subprocess.Popen(command, env=self._variables, start_new_session=True, **pipes)
        with tempfile.NamedTemporaryFile() as output, tempfile.NamedTemporaryFile() as errors:
            request = [arguments, str(cwd), variables, output.name, errors.name]
            self._server.stdin.write(json.dumps(request).encode() + b"\n")
            self._server.stdin.flush()
            if not select.select([self._server.stdout], [], [], timeout)[0]:
                os.killpg(self._server.pid, signal.SIGKILL)
                self.end()
                raise subprocess.TimeoutExpired(arguments, timeout, output.read(), errors.read())
            code = int(self._server.stdout.readline())
            texts = (file.read().decode(errors="replace") for file in (output, errors))
            return code, *(text.replace("\r\n", "\n").replace("\r", "\n") for text in texts)

    def end(self):
        if self._server is not None:
            self._server.stdin.close()
            self._server.wait()
            self._server.stdout.close()
            self._server = None


def serve():
    """Fork for each request.  Returns in the child, whose standard streams, directory and variables are the asked."""
    while line := sys.stdin.readline():
        arguments, cwd, variables, output, errors = json.loads(line)
        child = os.fork()
        if child:
            _, status = os.waitpid(child, 0)
            print(os.waitstatus_to_exitcode(status), flush=True)
            continue
        for number, name, mode in ((0, os.devnull, os.O_RDONLY), (1, output, os.O_WRONLY), (2, errors, os.O_WRONLY)):
            opened = os.open(name, mode | os.O_APPEND)
            os.dup2(opened, number)
            os.close(opened)
        os.chdir(cwd)
        os.environ.clear()
        os.environ.update(variables)
        sys.argv[1:] = arguments
        sys.path.insert(0, os.getcwd())  # as -m does
        return
    sys.exit()


if __name__ == "__main__":
    from importlib import import_module
    from runpy import run_module

    from mpies.core.threads import limit_threads

    del sys.path[0]  # this folder
    limit_threads()
    for module in MODULES:
        with contextlib.suppress(ModuleNotFoundError):  # EnvPool is an extra
            import_module(module)
    gc.freeze()
    serve()
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
