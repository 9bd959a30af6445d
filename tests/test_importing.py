"""Importing mpies takes its own solvers and envs, whatever else is called so, and changes nothing of the process."""

import json
import os
import subprocess
import sys

import pytest

from tests.support import HOME

PROGRAM = """
import json, os, signal, sys, threading

def state():
    handlers = {number: repr(signal.getsignal(number)) for number in signal.valid_signals()}
    threads = sorted(thread.name for thread in threading.enumerate())
    kernel_threads = len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 0
    return {"variables": dict(os.environ), "handlers": handlers, "threads": threads, "folder": os.getcwd(),
            "kernel threads": kernel_threads, "path": list(sys.path), "switch": sys.getswitchinterval()}

before = state()
import IMPORTED
after = state()
ours = [name for name in sys.modules if name.split(".")[0] in ("mpies", "solvers", "envs")]
changed = [name for name in before if before[name] != after[name]]
print(json.dumps({"changed": changed, "files": {name: sys.modules[name].__file__ for name in ours}}))
"""
IMPORTS = ["mpies", "mpies.envs", "mpies.cli.main", "mpies.comm.mpi", "mpies.api.train"]


@pytest.fixture
def folder(tmp_path):
    """A working directory with packages `envs` and `solvers`, and a foreign `envs` installed beside; none may run."""
    for package in ("work/envs", "work/solvers", "site/envs"):
        (tmp_path / package).mkdir(parents=True)
        (tmp_path / package / "__init__.py").write_text("raise ImportError('the wrong package')")
        (tmp_path / package / "base.py").write_text("raise ImportError('the wrong package')")
    return tmp_path


def start_python(folder, program):
    """The JSON that a fresh Python prints, started as a user would: the working directory comes first."""
    path = os.pathsep.join([str(HOME), str(folder / "site")])
    limits = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), "1")  # NumPy's own threads are not ours
    environment = os.environ | limits | {"PYTHONPATH": path}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=folder / "work", env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


@pytest.mark.parametrize("module", IMPORTS)
def test_an_import_takes_our_packages_and_changes_nothing_of_the_process(module, folder):
    outcome = start_python(folder, PROGRAM.replace("IMPORTED", module))
    assert outcome["changed"] == []
    assert module in outcome["files"]
    for name, file in outcome["files"].items():
        assert name.split(".")[0] == "mpies" and file.startswith(f"{HOME}{os.sep}"), (name, file)


def test_the_users_own_packages_can_be_imported_beside_ours(folder):
    (folder / "work" / "envs" / "__init__.py").write_text("mine = 1")
    (folder / "work" / "solvers" / "__init__.py").write_text("mine = 2")
    program = """
import json, envs, solvers, mpies.envs, mpies.solvers
print(json.dumps([envs.mine, solvers.mine, mpies.envs.__name__, mpies.envs is envs, mpies.solvers is solvers]))
"""
    assert start_python(folder, program) == [1, 2, "mpies.envs", False, False]
