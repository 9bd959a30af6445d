"""How ranks are started: the command, its variables, and what happens when mpiexec starts none."""

import os
import sys

import pytest

from mpies.comm import mpiexec
from tests.support import mpiexec_or_skip, write_program


def test_the_mpiexec_beside_this_python_comes_before_the_path(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python" / "python3"))
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    for program in [write_program(tmp_path / folder / "mpiexec", "") for folder in ("python", "path")]:
        assert mpiexec.find() == program
        os.unlink(program)
    assert mpiexec.find() is None


def test_variables_of_the_user_come_before_our_own(monkeypatch):
    ours = {"PRTE_MCA_oob_tcp_keepalive_time": "3", "OMPI_MCA_mpi_yield_when_idle": "1", "OMP_NUM_THREADS": "1"}
    for name in (*ours, "OMPI_ALLOW_RUN_AS_ROOT"):
        monkeypatch.delenv(name, raising=False)
    assert ours.items() <= mpiexec.environment().items()
    for user in (0, 1000):  # only root needs leave to run as root
        monkeypatch.setattr(mpiexec.os, "geteuid", lambda user=user: user)
        assert ("OMPI_ALLOW_RUN_AS_ROOT" in mpiexec.environment()) == (user == 0)
    for name in (*ours, "MINE"):
        monkeypatch.setenv(name, "4")
        assert mpiexec.environment()[name] == "4"


# Counts its runs in the file `runs`, and fails like Open MPI while there are fewer than the argument says.
PROGRAM = """
import sys
count = open("runs", "a+").tell() + 1
open("runs", "a").write("x")
if count < int(sys.argv[1]):
    sys.exit("PMIx: the listener thread failed to start")
print("ran as number", count, repr(sys.stdin.read()))
sys.exit(7)
"""


@pytest.mark.parametrize(("first_good", "expected"), [(1, 1), (3, 3), (9, 3)])
def test_a_command_is_started_again_while_mpiexec_starts_no_rank(first_good, expected, tmp_path):
    done = mpiexec.run([sys.executable, "-c", PROGRAM, str(first_good)], cwd=tmp_path)
    assert (tmp_path / "runs").read_text() == "x" * expected
    if first_good <= 3:
        assert done.returncode == 7 and done.stdout == f"ran as number {expected} ''\n"
    else:
        assert done.returncode == 1 and mpiexec.never_began(done.stderr)


def test_a_command_has_the_variables_that_it_is_given(monkeypatch):
    monkeypatch.delenv("OMPI_MCA_btl", raising=False)
    program = [sys.executable, "-c", "import os; os.write(1, os.environb.get(b'OMPI_MCA_btl'))"]
    assert mpiexec.run(program).stdout == "^ofi"
    given = {"OMPI_MCA_btl": os.fsdecode(b"21\xb0C")}  # what is printed need not be text
    assert mpiexec.run(program, env=given).stdout == "21\N{REPLACEMENT CHARACTER}C"


@pytest.mark.flaky(reruns=1, reason="mpirun itself may hang behind its ranks, and only a supervisor would end it")
def test_a_rank_that_is_lost_while_all_connect_ends_the_job():
    """With ULFM the others live on, and MPI_Finalize would wait for the lost one."""
    program = mpiexec_or_skip(has_ulfm=True)
    flags = ["--with-ft", "ulfm", "-n", "2"]
    connecting = [sys.executable, "-c", "from mpies.comm import connect; connect().finalize(0)"]
    dying = [sys.executable, "-c", "import os; from mpi4py import MPI; os.kill(os.getpid(), 9)"]
    done = mpiexec.run([program, *flags, *connecting, ":", "-n", "1", *dying], timeout=60)  # its code may be 0
    assert "could not connect:\nTraceback" in done.stderr
